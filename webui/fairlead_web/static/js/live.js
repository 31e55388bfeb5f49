// The tab's one event stream. It carries the API's events, and after them the parts of this page that changed: the server renders them from
// one read, once for all who look at the same page, and all of them are replaced together, so no two ever disagree. A pause leaves them out and
// counts what is new. When the server says `poll` (too many streams in this session) or the stream cannot be had, the page asks for its parts
// every five seconds instead. When it says `refused`, events still come but the parts do not: what is shown is gone, or grows old.

import { show as showAway } from "./away.js";
import { keepTyped } from "./kept_forms.js";
import { take } from "./lists.js";
import { noticed } from "./upgrades.js";

const LISTS = new Set(["migrations", "reroutes", "decisions", "rejections"]);
const TOPICS = ["pools", "instances", "migrations", "reroutes", "decisions", "rejections"];
const WHOLE = new Set(["pool", "from", "to", "sort", "view"]); // what an address may have while its list has all new rows; events are of the pool only
const POLL_MS = 5000;
const SILENCE_MS = 20000; // parts come with each tick of the server's clock, every ten seconds or so
const GONE = new Set([403, 404]); // nothing that comes back by itself, unlike an API that is away

const state = { paused: false, polling: null, fresh: 0, held: new Map(), lastEvent: Date.now(), failed: false, refused: 0, connected: false, returning: false, cameAt: 0 };

const pill = () => document.getElementById("live-pill");
const parts = () => [...document.querySelectorAll("[data-live-refresh]")];

function say(name, words) {
  const button = pill();
  if (!button) return;
  button.dataset.state = name;
  button.setAttribute("aria-pressed", String(state.paused));
  button.querySelector("[data-live-words]").textContent = words;
}

function announce() {
  const gone = GONE.has(state.refused);
  const away = !gone && (state.failed || state.refused > 0);
  if (state.paused) say("paused", state.fresh ? `Paused, ${state.fresh} new` : "Paused");
  else if (gone) say("gone", "Not live");
  else if (away) say("reconnecting", "Reconnecting");
  else if (state.polling) say("polling", "Every 5 s");
  else if (!state.connected || state.returning) say("connecting", "Connecting");
  else say("live", "Live");
  showAway(gone ? "gone" : away && !state.paused ? "away" : "", state.lastEvent);
}

// While its parts are refused, the page is as old as when the last of them came.
function heard() {
  if (!state.refused) state.lastEvent = Date.now();
  state.failed = false;
}

// With which status the page's parts came or were refused.
function answered(status) {
  state.refused = status < 400 ? 0 : status;
  if (!state.refused) state.lastEvent = Date.now();
  announce();
}

// Whether the page shows some of its list only: which of the events are among them is known when they are shown.
function narrowed() {
  return [...new URLSearchParams(location.search)].some(([name, value]) => value && !WHOLE.has(name));
}

export function receive(topic, items) {
  heard();
  if (state.paused) {
    if (LISTS.has(topic) && !narrowed()) state.fresh += items.length;
    state.held.set(topic, ["migrations", "reroutes", "decisions"].includes(topic) ? [...(state.held.get(topic) ?? []), ...items] : items);
  } else {
    tell(topic, items);
  }
  announce();
}

function tell(topic, items) {
  document.dispatchEvent(new CustomEvent("fairlead:live", { detail: { topic, items } }));
}

export function toggle() {
  state.paused = !state.paused;
  if (!state.paused) {
    state.fresh = 0;
    for (const [topic, items] of state.held) tell(topic, items);
    state.held.clear();
    ask();
  }
  announce();
}

// All parts in one request: after a pause, a gap in the stream, or without one.
function ask() {
  if (state.paused || document.hidden) return;
  const asker = document.getElementById("live-regions");
  const names = parts().map((one) => one.id);
  if (!asker || !names.length) return;
  asker.dataset.names = names.join(" ");
  asker.dispatchEvent(new CustomEvent("fairlead-refresh"));
}

function pollOnce() {
  ask();
  tell("poll", []);
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

// A connection that went without a word, as those of a suspended machine do, is no longer live: it is made again.
function watchSilence() {
  const due = state.connected && !state.failed && !state.returning && !state.polling && !document.hidden && parts().some((one) => one.dataset.liveRefresh.includes("tick"));
  if (!due || Date.now() - state.cameAt < SILENCE_MS) return;
  lost();
  document.querySelector("[data-live-stream]")?._htmx?.sse?.reader?.cancel();
}

// Firefox ends what a page is fetching as soon as a link is followed, and calls it an error. So it is ended before, without one; where the link was
// to a file, the page stays, and its stream comes back as after a while in the background.
function leaving() {
  state.returning = state.connected && !state.failed;
  document.querySelector("[data-live-stream]")?._htmx?.sse?.reader?.cancel();
  document.getElementById("live-regions")?.dispatchEvent(new Event("htmx:abort"));
}

function swapped(event) {
  if (event.detail.ctx?.target === document.body) state.refused = 0; // another page, which came
  announce();
  take();
  const stream = document.querySelector("[data-live-stream]");
  if (stream && !stream._htmx?.sse && !state.polling && event.detail.ctx?.target === document.body) connect(); // its id has the address: another one is a new element
}

function configure(event) {
  const { request } = event.detail.ctx;
  if (event.target.id === "live-regions") request.headers["Fairlead-Regions"] = event.target.dataset.names ?? "";
  else if (event.target.matches?.("[data-live-stream]")) {
    request.headers["Fairlead-Page"] = event.target.dataset.page;
    request.headers["Fairlead-Parts"] = parts().map((one) => `${one.id}=${one.dataset.liveRefresh.split(" ").join(",")}`).join(" ");
    const read = [...document.querySelectorAll("[data-live-reads]")].flatMap((one) => one.dataset.liveReads.split(/\s+/));
    request.headers["Fairlead-Reads"] = read.join(" ") || "nothing"; // of the events' items
  }
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
  document.addEventListener("htmx:config:request", configure);
  document.addEventListener("htmx:sse:before:message", (event) => {
    state.cameAt = Date.now();
    if (event.detail.message.event) return;
    state.refused = 0;
    heard();
    if (state.paused) event.preventDefault();
  });
  document.addEventListener("htmx:after:request", (event) => {
    if (!ofRegions(event)) return;
    const { status, headers } = event.detail.ctx.response;
    noticed(headers?.get?.("fairlead-release"));
    if (status === 401) keepTyped(); // the answer leads to the login
    if (state.polling && status < 400) state.failed = false;
    answered(status);
  });
  document.addEventListener("refused", (event) => ofStream(event) && answered(Number(event.detail.data)));
  document.addEventListener("release", (event) => ofStream(event) && noticed(event.detail.data));
  document.addEventListener("poll", (event) => ofStream(event) && poll());
  document.addEventListener("resync", (event) => ofStream(event) && pollOnce());
  document.addEventListener("htmx:sse:after:connection", (event) => {
    heard();
    state.cameAt = Date.now();
    state.returning = false;
    if (state.connected && event.detail.connection?.attempt > 0) ask(); // what was missed meanwhile
    state.connected = true;
    announce();
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden) state.returning = state.connected && !state.failed; }); // its stream is ended
  addEventListener("beforeunload", leaving);
  document.addEventListener("htmx:sse:before:connection", (event) => { if (event.detail.connection?.attempt > 0 && !document.hidden && !state.returning) lost(); });
  document.addEventListener("htmx:sse:error", (event) => {
    state.returning = false;
    lost();
    if (event.detail.status < 500) ask(); // the answer for the parts tells what is wrong, or leads to the login
  });
  document.addEventListener("htmx:response:error", (event) => ofStream(event) && poll());
  document.addEventListener("htmx:error", (event) => { if (ofStream(event)) poll(); else if (ofRegions(event)) lost(); });
  document.addEventListener("htmx:after:swap", swapped);
  setInterval(() => { watchSilence(); announce(); }, 2000);
  connect();
}

// The stream opens only now that everything listens; htmx may be ready before or after this module.
function connect() {
  const stream = document.querySelector("[data-live-stream]");
  if (stream?.hasAttribute("data-htmx-powered")) stream.dispatchEvent(new CustomEvent("fairlead-connect"));
  else setTimeout(connect, 20);
}
