// The tab's one event stream. Numbers are patched in place, lists ask for themselves again; a pause holds both back and counts what is new.
// When the server says `poll` (too many streams in this session) or the stream cannot be had, regions refresh every five seconds instead.

import { byName } from "./formats.js";

const LISTS = new Set(["migrations", "decisions", "rejections"]);
const REFRESH_MS = 1000;
const POLL_MS = 5000;

const state = { paused: false, polling: null, fresh: 0, seen: new Set(), due: new Map(), held: new Map(), timer: null, lastEvent: Date.now(), failed: false, connected: false };

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
  else if (state.polling) say("polling", "Every 5 s");
  else if (state.failed) say("reconnecting", "Reconnecting");
  else if (!state.connected) say("connecting", "Connecting");
  else say("live", "Live");
  document.documentElement.classList.toggle("stale", state.failed && !state.polling && Date.now() - state.lastEvent > 15000);
}

function patch(topic, items) {
  for (const item of items) {
    const key = topic === "pools" ? `${item.namespace}/${item.name}` : item.id;
    for (const row of document.querySelectorAll(`[data-live-row="${topic}"][data-key="${CSS.escape(key)}"]`)) {
      for (const cell of row.querySelectorAll("[data-field]")) {
        const text = byName[cell.dataset.format](item[cell.dataset.field]);
        if (cell.textContent !== text) cell.textContent = text;
      }
      if (row.dataset.state && row.dataset.state !== item.state) refresh("membership");
    }
  }
  const table = document.querySelector(`[data-live-set="${topic}"]`);
  if (table && items.some((item) => !table.querySelector(`[data-key="${CSS.escape(item.id)}"]`))) refreshOnce("membership", items);
}

const announced = new Set();
// A new id asks for the table once; rows a filter keeps out must not ask again and again.
function refreshOnce(topic, items) {
  const fresh = items.filter((item) => !announced.has(item.id));
  for (const item of items) announced.add(item.id);
  if (fresh.length) refresh(topic);
}

function refresh(topic) {
  for (const region of document.querySelectorAll("[data-live-refresh]")) {
    if (region.dataset.liveRefresh.split(" ").includes(topic)) state.due.set(region.id, region);
  }
  if (state.due.size && !state.timer) state.timer = setTimeout(flush, state.lastFlush && Date.now() - state.lastFlush < REFRESH_MS ? REFRESH_MS : 100);
}

function flush() {
  state.timer = null;
  state.lastFlush = Date.now();
  for (const id of state.due.keys()) document.getElementById(id)?.dispatchEvent(new CustomEvent("fairlead-refresh"));
  state.due.clear();
}

export function receive(topic, items) {
  state.lastEvent = Date.now();
  state.failed = false;
  if (state.paused) {
    if (LISTS.has(topic)) state.fresh += items.length;
    state.held.set(topic, topic === "migrations" || topic === "decisions" ? [...(state.held.get(topic) ?? []), ...items] : items);
  } else {
    apply(topic, items);
  }
  announce();
}

function apply(topic, items) {
  if (topic === "pools" || topic === "instances") patch(topic, items);
  refresh(topic);
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
  for (const topic of ["pools", "instances", "migrations", "decisions", "rejections", "membership"]) refresh(topic);
  document.dispatchEvent(new CustomEvent("fairlead:live", { detail: { topic: "poll", items: [] } }));
}

function poll() {
  if (state.polling) return;
  state.polling = setInterval(pollOnce, POLL_MS);
  announce();
}

export function start() {
  if (!document.querySelector("[data-live-stream]")) return;
  document.addEventListener("click", (event) => event.target.closest("#live-pill") && toggle());
  for (const topic of ["pools", "instances", "migrations", "decisions", "rejections"]) {
    document.addEventListener(topic, (event) => {
      if (!event.target.matches?.("[data-live-stream]")) return;
      let items;
      try { items = JSON.parse(event.detail.data); } catch { return; }
      if (Array.isArray(items)) receive(topic, items);
    });
  }
  document.addEventListener("poll", (event) => event.target.matches?.("[data-live-stream]") && poll());
  document.addEventListener("resync", (event) => event.target.matches?.("[data-live-stream]") && pollOnce());
  document.addEventListener("htmx:sse:after:connection", () => { state.failed = false; state.connected = true; state.lastEvent = Date.now(); announce(); });
  document.addEventListener("htmx:sse:before:connection", (event) => { if (event.detail.connection?.attempt > 0 && !document.hidden) { state.failed = true; announce(); } });
  document.addEventListener("htmx:sse:error", () => { state.failed = true; announce(); });
  const refused = (event) => event.target.matches?.("[data-live-stream]") && poll();
  document.addEventListener("htmx:response:error", refused);
  document.addEventListener("htmx:error", refused);
  document.addEventListener("htmx:after:swap", (event) => {
    announce();
    const stream = document.querySelector("[data-live-stream]");
    if (stream && !stream._htmx?.sse && !state.polling && event.detail.ctx?.target === document.body) connect(); // another pool was chosen
  });
  setInterval(announce, 5000);
  connect();
}

// The stream opens only now that everything listens; htmx may be ready before or after this module.
function connect() {
  const stream = document.querySelector("[data-live-stream]");
  if (stream?.hasAttribute("data-htmx-powered")) stream.dispatchEvent(new CustomEvent("fairlead-connect"));
  else setTimeout(connect, 20);
}
