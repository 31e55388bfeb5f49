// Every <time> in the reader's own mode: relative, local, UTC or of a zone. The markup holds UTC, so nothing is lost without scripts.

import { span } from "./formats.js";

const root = document.documentElement;
let zone = null; // made when the first local time is shown: it takes some milliseconds

export function utc(date) {
  return `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

// The same shape in the reader's zone, which it names.
function local(date) {
  zone ??= new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
  const name = zone.formatToParts(date).find((part) => part.type === "timeZoneName")?.value ?? "local";
  const moved = new Date(date.getTime() - date.getTimezoneOffset() * 60000);
  return `${moved.toISOString().slice(0, 19).replace("T", " ")} ${name}`;
}

let clock = null;

// Writes moments in the zone that the reader chose; false if this browser does not know it.
function clockOfZone() {
  if (clock === null) {
    const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
    try {
      clock = new Intl.DateTimeFormat("en-GB", { ...parts, hourCycle: "h23", timeZone: root.dataset.zone, timeZoneName: "short" });
    } catch {
      clock = false;
    }
  }
  return clock;
}

// The zone of the times below charts and heatmaps, as `Intl` takes it: that of the times that `shown` writes.
export function zoneOfAxes() {
  if (root.dataset.time === "local") return undefined;
  return root.dataset.time === "zone" && clockOfZone() ? root.dataset.zone : "UTC";
}

// The same shape in a zone that the reader chose; UTC if this browser does not know it.
function zoned(date) {
  if (!clockOfZone()) return utc(date);
  const found = Object.fromEntries(clock.formatToParts(date).map((part) => [part.type, part.value]));
  const { year, month, day, hour, minute, second, timeZoneName } = found;
  return `${year}-${month}-${day} ${hour}:${minute}:${second} ${timeZoneName}`;
}

// A moment with its zone: local only for who chose local times; what the server draws is UTC.
export function shown(date) {
  if (root.dataset.time === "zone") return zoned(date);
  return root.dataset.time === "local" ? local(date) : utc(date);
}

const SKEW_SECONDS = 10; // as formats.py has it

function ago(gone) {
  if (gone <= -SKEW_SECONDS) return `in ${span(-gone)}`;
  if (gone < 1) return "now";
  return gone >= 60 && gone < 3600 ? `${Math.floor(gone / 60)} min ago` : `${span(gone)} ago`;
}

export function rewrite(scope = document) {
  const now = Date.now();
  for (const element of scope.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const gone = (now - at.getTime()) / 1000;
    const relative = root.dataset.time === "relative" && !("paper" in root.dataset) && !element.hasAttribute("data-absolute");
    const text = relative ? ago(gone) : shown(at);
    if (element.textContent !== text) element.textContent = text;
    element.title = relative ? shown(at) : utc(at);
  }
}

// A sheet is read later: it has moments, and what is drawn on it is drawn for white.
function onPaper(printed) {
  if (printed) root.dataset.paper = "";
  else delete root.dataset.paper;
  rewrite();
}

export function start() {
  rewrite();
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));
  matchMedia("print").addEventListener("change", (event) => onPaper(event.matches));
  setInterval(() => document.hidden || rewrite(), 5000);
  document.addEventListener("htmx:after:swap", () => rewrite());
}
