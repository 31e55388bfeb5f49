// What frames the cells: the size of a row, the names beside the rows, and the times below the columns.

import { zoneOfAxes } from "./times.js";

const STEPS = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
const TALLEST = 24;
const NAME_ROOM = 12; // pixels that a name needs

// As tall as the window has room for, 24 pixels at most; `taken` is what legend and axis need, shared by `count` maps.
export function rowHeight(top, rows, count, taken) {
  const room = (window.innerHeight - Math.min(top, window.innerHeight / 2)) / count - taken;
  const least = rows > 256 ? 2 : rows > 96 ? 4 : 8;
  return Math.max(least, Math.min(TALLEST, Math.floor(room / Math.max(1, rows))));
}

// Every name where there is room, else every second, fifth, tenth … Of a large map only each fifth has one.
export function names(list, height) {
  const each = [1, 2, 5, 10, 20, 50].find((one) => one * height >= NAME_ROOM) ?? 100;
  list.style.setProperty("--row", `${height}px`);
  list.classList.toggle("sparse", each > 1);
  [...list.children].forEach((item, index) => item.classList.toggle("unnamed", index % each !== 0));
}

// Seconds by which the zone's clock is ahead of UTC.
function offset(at, timeZone) {
  const parts = new Intl.DateTimeFormat("en-GB", {
    timeZone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric",
  }).formatToParts(new Date(at * 1000));
  const { year, month, day, hour, minute, second } = Object.fromEntries(parts.map(({ type, value }) => [type, Number(value)]));
  return Date.UTC(year, month - 1, day, hour, minute, second) / 1000 - at;
}

// Multiples of the step; from half a day on those of the zone's clock, whose days they name.
export function marks(start, end, step, timeZone) {
  const found = [];
  for (let at = Math.ceil((start - 86400) / step) * step; at < end + 86400; at += step) {
    const place = step < 43200 ? at : at - offset(at - offset(at, timeZone), timeZone);
    if (place >= start && place < end) found.push(place);
  }
  return found;
}

function mark(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function times(axis, map, width) {
  const wide = width / map.columns;
  const total = map.columns * map.step;
  const step = STEPS.find((one) => total / one <= Math.max(2, width / 110)) ?? 1209600;
  const timeZone = zoneOfAxes();
  axis.style.width = `${width}px`;
  axis.style.height = "22px";
  axis.setAttribute("viewBox", `0 0 ${width} 22`);
  axis.replaceChildren();
  for (const at of marks(map.start, map.start + total, step, timeZone)) {
    const x = ((at - map.start) / map.step) * wide;
    axis.append(mark("line", { x1: x, x2: x, y1: 0, y2: 5 }));
    if (x < 18 || x > width - 18) continue;
    const text = mark("text", { x, y: 17, "text-anchor": "middle" });
    const date = new Date(at * 1000);
    text.textContent = step >= 86400
      ? date.toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone })
      : date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }), timeZone });
    axis.append(text);
  }
}
