// Entry of every page. Each part works on markup that already works without it.

import * as forms from "./forms.js";
import * as live from "./live.js";
import * as shortcuts from "./shortcuts.js";
import * as times from "./times.js";
import { turn } from "./turns.js";

function showCurrentTab() {
  for (const current of document.querySelectorAll(".tabs [aria-current]")) {
    const row = current.parentElement;
    if (row.scrollWidth > row.clientWidth) row.scrollLeft = current.offsetLeft - row.clientWidth / 2 + current.offsetWidth / 2;
  }
}

// Whoever can see a page can press its keys: all listeners are there before the page counts as loaded.
forms.start();
shortcuts.start();
// The rest comes one after the other, each as a task of its own, so that a key or a click never waits for all. Times come before what is live,
// which compares rows as they are shown.
for (const start of [times.start, live.start, showCurrentTab]) {
  await turn();
  start();
}
document.documentElement.classList.add("scripted");

const figures = document.querySelectorAll("[data-heatmap]");
if (figures.length) import("./heatmap.js").then((heatmap) => heatmap.start(figures));
const awaited = document.querySelector("[data-heatmap-awaited]");
if (awaited) import("./heatmap_awaited.js").then((heatmap) => heatmap.start(awaited));

const charts = document.querySelectorAll("[data-chart]");
if (charts.length) import("./charts.js").then((module) => module.start(charts));

const explorer = document.getElementById("explorer");
if (explorer) import("./explorer.js").then((module) => module.start(explorer));

if (document.querySelector("[data-present]")) import("./present_values.js").then((values) => values.start());

// Small heatmaps are pictures; while the page is live they are fetched again now and then.
setInterval(() => {
  if (document.hidden || document.getElementById("live-pill")?.dataset.state === "paused") return;
  for (const picture of document.querySelectorAll("img[data-minimap]")) {
    const address = new URL(picture.src);
    address.searchParams.set("tick", String(Math.floor(Date.now() / 1000)));
    picture.src = address.href;
  }
}, 15000);
