// The tab's one event stream. Rates and latencies are patched in place from its data; when a pool's state changes, all regions that show it
// are asked for in one request and replaced together, so that no two of them ever disagree. A pause holds both back and counts what is new.
// When the server says `poll` (too many streams in this session) or the stream cannot be had, regions refresh every five seconds instead.

import { show as showAway } from "./away.js";
import { byName } from "./formats.js";
import { take } from "./lists.js";
import { markOf, totals } from "./pool_state.js";

const LISTS = new Set(["migrations", "reroutes", "decisions", "rejections"]);
const TOPICS = ["pools", "instances", "migrations", "reroutes", "decisions", "rejections"];
const REFRESH_MS = 1500;
const POLL_MS = 5000;
const TICK_MS = 10000; // what no event tells of (conditions' ages, events, a stale database) is at most this old

const state = { paused: false, polling: null, fresh: 0, due: new Set(), held: new Map(), timer: null, lastEvent: Date.now(), failed: false, connected: false, pools: new Map() };

const pill = () => document.getElementById("live-pill");

function say(name, words) {
  const button = pill();
  if (!button) return;
  button.dataset.state = name;
  button.setAttribute("aria-pressed", String(state.paused));
  button.querySelector("[data-live-words]").textContent = words;
}

function announce() {
  if (state.paused) say("paused", state.fresh ? `Paused, ${state.fresh} new` : "Paused");
  else if (state.polling && !state.failed) say("polling", "Every 5 s");
  else if (state.failed) say("reconnecting", "Reconnecting");
  else if (!state.connected) say("connecting", "Connecting");
  else say("live", "Live");
  showAway(state.failed && !state.paused, state.lastEvent);
}

function keyOf(topic, item) {
  return topic === "pools" ? `${item.namespace}/${item.name}` : item.id;
}

function write(cell, value) {
  const text = byName[cell.dataset.format](value);
  if (cell.textContent !== text) cell.textContent = text;
}

function patch(topic, items) {
  for (const item of items) {
    for (const row of document.querySelectorAll(`[data-live-row="${topic}"][data-key="${CSS.escape(keyOf(topic, item))}"]`)) {
      for (const cell of row.matches("[data-field]") ? [row] : row.querySelectorAll("[data-field]")) write(cell, item[cell.dataset.field]);
      if (row.dataset.state && row.dataset.state !== item.state) refresh("membership");
    }
  }
  const shown = document.querySelector(`[data-live-set="${topic}"]`);
  if (shown && items.some((item) => !shown.querySelector(`[data-key="${CSS.escape(keyOf(topic, item))}"]`))) refreshOnce("membership", topic, items);
  if (topic === "pools") judge(items);
}

// Sums over all pools, and whether what the page shows of each is still its state.
function judge(items) {
  for (const item of items) state.pools.set(keyOf("pools", item), item);
  const summed = document.querySelectorAll("[data-total]");
  if (summed.length) {
    const sums = totals(items);
    for (const cell of summed) write(cell, sums[cell.dataset.total]);
  }
  if (outdated()) refresh("state");
}

function outdated() {
  return [...document.querySelectorAll("[data-mark]")].some((row) => {
    const item = state.pools.get(row.dataset.key);
    return item && markOf(item) !== row.dataset.mark;
  });
}

const announced = new Set();
// A new id asks for the table once; rows a filter keeps out must not ask again and again.
function refreshOnce(name, topic, items) {
  const fresh = items.map((item) => keyOf(topic, item)).filter((key) => !announced.has(key));
  for (const key of fresh) announced.add(key);
  if (fresh.length) refresh(name);
}

function refresh(...topics) {
  for (const region of document.querySelectorAll("[data-live-refresh]")) {
    if (topics.some((topic) => region.dataset.liveRefresh.split(" ").includes(topic))) state.due.add(region.id);
  }
  if (state.due.size && !state.timer) state.timer = setTimeout(flush, Math.max(50, (state.lastFlush ?? 0) + REFRESH_MS - Date.now()));
}

function flush() {
  state.timer = null;
  const asker = document.getElementById("live-regions");
  const names = [...state.due].filter((name) => document.getElementById(name));
  state.due.clear();
  if (!asker || !names.length) return;
  state.lastFlush = Date.now();
  asker.dataset.names = names.join(" ");
  asker.dispatchEvent(new CustomEvent("fairlead-refresh"));
}

export function receive(topic, items) {
  state.lastEvent = Date.now();
  state.failed = false;
  if (state.paused) {
    if (LISTS.has(topic)) state.fresh += items.length;
    state.held.set(topic, ["migrations", "reroutes", "decisions"].includes(topic) ? [...(state.held.get(topic) ?? []), ...items] : items);
  } else {
    apply(topic, items);
  }
  announce();
}

function apply(topic, items) {
  if (topic === "pools" || topic === "instances") patch(topic, items);
  else refresh(topic);
  document.dispatchEvent(new CustomEvent("fairlead:live", { detail: { topic, items } }));
}

export function toggle() {
  state.paused = !state.paused;
  if (!state.paused) {
    state.fresh = 0;
    for (const [topic, items] of state.held) apply(topic, items);
    state.held.clear();
    if (state.polling) pollOnce();
  }
  announce();
}

function pollOnce() {
  if (state.paused || document.hidden) return;
  refresh(...TOPICS, "state", "membership", "tick");
  document.dispatchEvent(new CustomEvent("fairlead:live", { detail: { topic: "poll", items: [] } }));
}

function poll() {
  if (state.polling) return;
  state.polling = setInterval(pollOnce, POLL_MS);
  announce();
}

function lost() {
  state.failed = true;
  announce();
}

function swapped(event) {
  announce();
  take();
  if (event.target.id === "live-regions" && outdated()) refresh("state"); // the answer was older than the event that asked for it
  const stream = document.querySelector("[data-live-stream]");
  if (stream && !stream._htmx?.sse && !state.polling && event.detail.ctx?.target === document.body) connect(); // another pool was chosen
}

export function start() {
  if (!document.querySelector("[data-live-stream]")) return;
  document.addEventListener("click", (event) => event.target.closest("#live-pill") && toggle());
  for (const topic of TOPICS) {
    document.addEventListener(topic, (event) => {
      if (!event.target.matches?.("[data-live-stream]")) return;
      let items;
      try { items = JSON.parse(event.detail.data); } catch { return; }
      if (Array.isArray(items)) receive(topic, items);
    });
  }
  const ofStream = (event) => event.target.matches?.("[data-live-stream]");
  const ofRegions = (event) => event.target.id === "live-regions";
  document.addEventListener("htmx:config:request", (event) => {
    if (ofRegions(event)) event.detail.ctx.request.headers["Fairlead-Regions"] = event.target.dataset.names ?? "";
  });
  document.addEventListener("htmx:after:request", (event) => {
    if (!ofRegions(event)) return;
    if (event.detail.ctx.response.status >= 500) lost();
    else if (state.polling) { state.lastEvent = Date.now(); state.failed = false; announce(); }
  });
  document.addEventListener("poll", (event) => ofStream(event) && poll());
  document.addEventListener("resync", (event) => ofStream(event) && pollOnce());
  document.addEventListener("htmx:sse:after:connection", () => { state.failed = false; state.connected = true; state.lastEvent = Date.now(); announce(); });
  document.addEventListener("htmx:sse:before:connection", (event) => { if (event.detail.connection?.attempt > 0 && !document.hidden) lost(); });
  document.addEventListener("htmx:sse:error", lost);
  document.addEventListener("htmx:response:error", (event) => ofStream(event) && poll());
  document.addEventListener("htmx:error", (event) => { if (ofStream(event)) poll(); else if (ofRegions(event)) lost(); });
  document.addEventListener("htmx:after:swap", swapped);
  setInterval(announce, 2000);
  setInterval(() => { if (!state.paused && !state.polling && !document.hidden) refresh("tick"); }, TICK_MS);
  connect();
}

// The stream opens only now that everything listens; htmx may be ready before or after this module.
function connect() {
  const stream = document.querySelector("[data-live-stream]");
  if (stream?.hasAttribute("data-htmx-powered")) stream.dispatchEvent(new CustomEvent("fairlead-connect"));
  else setTimeout(connect, 20);
}
