// A live heatmap of a pool without any load yet: the page is loaded again when there is something to draw.

import { load } from "./heatmap_data.js";

const REST_SECONDS = 5; // events come each second, and a pool may stay idle for long
const AGAIN_SECONDS = 60; // load may be stored a moment after the last event that told of it

export function start(section) {
  const pool = document.documentElement.dataset.pool;
  let asked = Date.now();

  const ask = async () => {
    if (document.hidden || Date.now() - asked < REST_SECONDS * 1000) return;
    asked = Date.now();
    const map = await load(section.dataset.heatmapAwaited).catch(() => null); // the pill shows that the API is away
    if (map?.rows.length && map.columns) location.reload();
  };

  document.addEventListener("fairlead:live", ({ detail }) => {
    if (detail.topic === "poll" || (detail.topic === "instances" && detail.items.some((item) => item.pool === pool))) ask();
  });
  setInterval(() => { if (document.getElementById("live-pill")?.dataset.state !== "paused") ask(); }, AGAIN_SECONDS * 1000);
}
