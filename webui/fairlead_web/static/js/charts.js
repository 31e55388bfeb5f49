// Charts over time. A figure names its metrics; those of one address are fetched together when one comes into view, and again while the
// page is live. Dragging zooms the page; the instant at the pointer is shared by the event `fairlead:crosshair`.

import { Chart } from "./chart.js";
import { rewrite } from "./times.js";

const REFRESH_MS = 10000;
const AHEAD = "300px";

const charts = new Map(); // figure → Chart
let library = null;
let own = null; // the chart under the pointer
let told = null;

// uPlot makes a format for numbers of the browser's language while it loads. Some browsers name as their language what is none ("C",
// "en-US@posix"), and formats of it cannot be made: then it is English, as all of the page.
function nameLanguage() {
  try {
    new Intl.NumberFormat(navigator.language);
  } catch {
    Object.defineProperty(navigator, "language", { value: "en-GB", configurable: true });
  }
}

function load() {
  const vendor = (name) => new URL(`../vendor/${name}`, import.meta.url).href;
  library ??= new Promise((resolve, reject) => {
    nameLanguage();
    const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: vendor("uPlot.min.css") });
    const script = Object.assign(document.createElement("script"), { src: vendor("uPlot.iife.min.js") });
    script.addEventListener("load", () => (window.uPlot ? resolve(window.uPlot) : reject(new Error("uPlot ended while it loaded"))));
    script.addEventListener("error", () => reject(new Error("uPlot could not be loaded")));
    document.head.append(style, script);
  }).catch((error) => {
    library = null; // whoever tries again loads it again
    throw error;
  });
  return library;
}

function tell(at, chart) {
  if (at === null && told === null) return;
  own = chart;
  told = at;
  document.dispatchEvent(new CustomEvent("fairlead:crosshair", { detail: { at } }));
  own = null;
}

function zoom(from, to) {
  const middle = (from + to) / 2;
  const half = Math.max(to - from, 30) / 2;
  const stamp = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;
  const target = new URL(location.href);
  target.searchParams.delete("cursor");
  target.searchParams.set("from", stamp(Math.floor(middle - half)));
  target.searchParams.set("to", stamp(Math.ceil(middle + half)));
  location.assign(target);
}

// One request for all figures of an address; each gets its own lines.
async function fill(figures) {
  const groups = new Map();
  for (const figure of figures) groups.set(figure.dataset.src, [...(groups.get(figure.dataset.src) ?? []), figure]);
  await Promise.all([...groups].map(async ([src, members]) => {
    const address = new URL(src, location.href);
    address.searchParams.set("metrics", [...new Set(members.flatMap((one) => one.dataset.metrics.split(" ")))].join(","));
    address.searchParams.set("buckets", "180"); // as many as a range has steps, on any screen: so bars add up to its figures
    let found;
    try {
      const [answer, uPlot] = await Promise.all([fetch(address, { headers: { accept: "application/json" } }), load()]);
      if (!answer.ok) throw new Error(String(answer.status));
      found = [await answer.json(), uPlot];
    } catch {
      for (const figure of members) {
        if (charts.get(figure)?.drawn) charts.get(figure).missed();
        else failed(figure);
      }
      return;
    }
    for (const figure of members) {
      if (figure.dataset.src !== src) continue; // a filter came between
      try {
        show(figure, ...found);
      } catch (error) {
        charts.get(figure)?.erased();
        failed(figure);
        reportError(error); // as if nobody had caught it: the other charts are drawn all the same
      }
    }
  }));
}

function show(figure, { series, annotations }, uPlot) {
  const wanted = figure.dataset.metrics.split(" ");
  const lines = series.lines.filter((one) => wanted.includes(one.metric));
  if (!charts.has(figure)) charts.set(figure, new Chart(figure, uPlot, { tell, zoom }));
  figure.querySelector("[data-failed]")?.remove();
  charts.get(figure).update(series, lines, annotations.items);
  happened(annotations);
}

function failed(figure) {
  if (figure.querySelector("[data-failed]")) return;
  figure.dataset.ready = "failed";
  const words = document.createElement("p");
  words.className = "muted";
  words.dataset.failed = "";
  words.textContent = "This chart could not be loaded. ";
  const again = Object.assign(document.createElement("button"), { type: "button", className: "small", textContent: "Try again" });
  again.addEventListener("click", () => { words.remove(); fill([figure]); });
  words.append(again);
  figure.querySelector("[data-plot]").prepend(words);
}

// What happened, as a list: the marks in the charts are for eyes and pointers only.
function happened({ items, complete }) {
  const box = document.querySelector("[data-chart-events]");
  if (!box) return;
  box.hidden = !items.length;
  box.querySelector("summary").textContent = `${items.length} marked ${items.length === 1 ? "event" : "events"}${complete ? "" : ", the newest of each kind"}`;
  const list = box.querySelector("ol");
  list.replaceChildren(...items.toReversed().slice(0, 40).map((one) => {
    const row = document.createElement("li");
    const time = document.createElement("time");
    time.dateTime = one.at;
    time.dataset.absolute = "";
    time.textContent = `${one.at.slice(0, 19).replace("T", " ")} UTC`;
    const words = document.createElement("span");
    words.textContent = document.documentElement.dataset.pool ? one.words : `${one.pool}: ${one.words}`;
    row.className = `mark-${one.kind}`;
    row.append(time, " ", words);
    return row;
  }));
  rewrite(list);
}

function moving() {
  return !document.hidden && document.getElementById("live-pill")?.dataset.state !== "paused";
}

function prune() {
  for (const [figure, chart] of charts) {
    if (chart.plot.isConnected) continue;
    chart.end();
    charts.delete(figure);
  }
}

export function start(figures) {
  const waiting = new Set();
  const near = new IntersectionObserver((seen) => {
    for (const one of seen) {
      if (!one.isIntersecting) continue;
      near.unobserve(one.target);
      if (!waiting.size) setTimeout(() => { const now = [...waiting]; waiting.clear(); fill(now); }, 30);
      waiting.add(one.target);
    }
  }, { rootMargin: AHEAD });
  for (const figure of figures) near.observe(figure);
  // What htmx swaps in, a filter's answer or a part, is as the server has it: without anything that was drawn.
  document.addEventListener("htmx:after:swap", () => {
    prune();
    for (const chart of charts.values()) if (chart.drawn) chart.readout(); // by the figures that came with the swap
    for (const figure of document.querySelectorAll("[data-chart]")) {
      const { ready } = figure.dataset;
      if (ready === "failed" || (ready && charts.get(figure)?.intact)) continue;
      charts.get(figure)?.erased();
      near.unobserve(figure);
      near.observe(figure); // tells once more whether it is in view
    }
  });
  document.addEventListener("fairlead:crosshair", (event) => {
    for (const chart of charts.values()) chart.point(event.detail.at, chart === own);
  });
  const redraw = () => { for (const chart of charts.values()) chart.restyle(); };
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme", "data-time", "data-paper"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  setInterval(() => {
    prune();
    const live = [...document.querySelectorAll("[data-chart][data-live=yes][data-ready]")]; // also those that failed
    if (live.length && moving()) fill(live);
  }, REFRESH_MS);
}
