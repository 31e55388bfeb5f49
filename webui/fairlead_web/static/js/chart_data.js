// What a chart draws, from the lines of the answer: aligned tables, bounds, labels and words. No drawing here.

import { count, latency, rate, seconds, share, span } from "./formats.js";
import { zoneOfAxes } from "./times.js";

const COLOURS = 8; // the tokens --s0 to --s7
const PERCENTILES = new Set(["ttft_p50", "ttft_p95", "tpot_p95"]); // of histograms, with two digits

// The lines of one chart. Each answer is another list, in which a line may be new, gone, or elsewhere; a line is the same object in all of them.
// So whatever was made for a line (its stroke, its entry in the legend) may hold it, and its colour and whether it is hidden stay with it.
export class Lines {
  constructor() {
    this.known = new Map();
  }

  take(found, labelled) {
    const lines = found.map((one) => {
      const id = `${one.metric} ${one.part ?? ""}`;
      if (!this.known.has(id)) this.known.set(id, { id, hidden: false, colour: null });
      return Object.assign(this.known.get(id), one, { begin: new Date(one.start).getTime() / 1000, label: labelled(one), limit: one.drawn === "steps" && !one.part });
    });
    for (const line of lines) if (!line.limit) line.colour ??= this.free(lines);
    if (lines.every((line) => line.hidden)) for (const line of lines) line.hidden = false; // those that were shown are gone
    return lines;
  }

  // The colour that the fewest lines of this answer have, and then the fewest of earlier ones.
  free(lines) {
    const used = (some, colour) => some.filter((line) => line.colour === colour).length;
    const cost = (colour) => used(lines, colour) * 1e6 + used([...this.known.values()], colour);
    return Array.from({ length: COLOURS }, (_, colour) => colour).reduce((best, colour) => (cost(colour) < cost(best) ? colour : best));
  }
}

// What must be built and not only filled: another answer of the same shape only has other values.
export function shape(lines) {
  return JSON.stringify(lines.map((line) => [line.id, line.drawn, line.unit, line.label]));
}

// A line's value at an instant, the newest known one without an instant; undefined where nothing is known.
export function lineAt(line, at) {
  if (at === null) {
    for (let index = line.values.length - 1; index >= 0; index -= 1) if (line.values[index] !== null) return line.values[index];
    return undefined;
  }
  const index = Math.floor((at - line.begin) / line.step_seconds);
  if (line.drawn !== "points") return line.values[index] ?? undefined;
  for (let back = index; back >= 0; back -= 1) if (line.values[back] != null) return line.values[back];
  return undefined;
}

// The figures of the range that the page's tiles show, by metric or by metric and part; the server renders both from one answer.
export function rangeValues() {
  const shown = document.querySelector("[data-range-values]");
  return shown ? JSON.parse(shown.dataset.rangeValues) : {};
}

// The end of the newest step of which something is known; undefined where nothing is.
export function knownUntil(line) {
  for (let index = line.values.length - 1; index >= 0; index -= 1) if (line.values[index] !== null) return line.begin + (index + 1) * line.step_seconds;
  return undefined;
}

// A step after "the": the minute, the 10 s.
export function stepWords(step) {
  return { 60: "minute", 3600: "hour", 86400: "day" }[step] ?? span(step);
}

// One table per line for uPlot.join, with how it treats nulls: a measured line keeps them, as gaps; points are joined.
export function tables(lines, stacked) {
  const drawn = stacked ? sums(lines).toReversed() : lines;
  const found = drawn.map((line) => {
    const middle = line.drawn === "steps" ? 0 : line.step_seconds / 2;
    return [line.values.map((_, index) => line.begin + index * line.step_seconds + middle), line.values];
  });
  return [found, drawn.map((line) => [0, line.drawn === "points" ? 0 : 1])];
}

// Where a value has gaps on both sides: no line shows it, so a point must. `undefined` stands where only other lines have an instant.
export function alone(values) {
  const known = values.flatMap((one, index) => (one === undefined ? [] : [index]));
  return known.filter((index, place) => values[index] !== null && values[known[place - 1]] == null && values[known[place + 1]] == null);
}

// Each line on top of those before it, all of the same steps.
function sums(lines) {
  const total = [];
  return lines.map((line) => ({ ...line, values: line.values.map((one, index) => {
    if (one !== null) total[index] = (total[index] ?? 0) + one;
    return total[index] ?? null;
  }) }));
}

// A limit far above everything would press all lines to the ground: it is told in the legend then.
export function bounds(lines, floor, stacked) {
  const measured = lines.filter((line) => line.drawn !== "steps" || line.part);
  const known = (some) => some.flatMap((line) => line.values.filter((one) => one !== null));
  const values = known(stacked ? sums(measured) : measured);
  const limits = known(lines.filter((line) => !measured.includes(line)));
  if (floor === "share") {
    const lowest = Math.min(1, ...values, ...limits);
    return [Math.min(0.9, Math.floor(lowest * 10 - 1e-9) / 10), 1];
  }
  const top = Math.max(0, ...values);
  const limit = Math.max(0, ...limits);
  const low = Math.min(0, ...values);
  const high = limit && limit <= Math.max(top * 4, Number.EPSILON) ? Math.max(top, limit) : top;
  if (high === 0 && low === 0) return [0, limit || 1];
  return [low * 1.08, high * 1.08];
}

// A label that ends with a colon names the whole only; a part stands for itself then.
export function labelOf(figure, line) {
  const metrics = figure.dataset.metrics.split(" ");
  const name = figure.dataset.labels.split("|")[metrics.indexOf(line.metric)] ?? line.metric;
  const part = JSON.parse(figure.dataset.parts ?? "{}")[line.part] ?? line.part?.replaceAll("-", " ");
  return [part && name.endsWith(":") ? "" : name.replace(/:$/, ""), part].filter(Boolean).join(" ");
}

export function value(number, unit, metric = "") {
  if (PERCENTILES.has(metric)) return latency(number);
  switch (unit) {
    case "share": return share(number);
    case "seconds": return Math.abs(number) < 60 ? seconds(number) : `${number < 0 ? "−" : ""}${span(Math.abs(number))}`;
    case "times": case "deviations": return number.toFixed(2);
    case "requests/s": return `${rate(number)} /s`;
    case "tokens/s": return `${rate(number)} /s`;
    default: return Number.isInteger(number) || number >= 99.95 ? count(number) : number.toFixed(1);
  }
}

// Room for an axis: the same numbers, shorter, with the digits that tell lines so many apart from each other.
export function shortValue(number, unit, step) {
  const size = Math.abs(number);
  if (unit === "share") return `${digits(number, step, 100)} %`;
  if (unit === "seconds") return size < 1 && number !== 0 ? `${digits(number, step, 1000)} ms` : `${digits(number, step, 1)} s`;
  const each = unit?.endsWith("/s") ? " /s" : "";
  if (size >= 1e6) return `${digits(number, step, 1e-6)} M${each}`;
  return (size >= 1e4 ? `${digits(number, step, 1e-3)} k` : digits(number, step, 1)) + each;
}

function digits(number, step, times) {
  const apart = step * times;
  const decimals = [0, 1, 2, 3, 4, 5].find((one) => Math.abs(apart * 10 ** one - Math.round(apart * 10 ** one)) < 1e-6) ?? 6;
  return String(Number((number * times).toFixed(decimals)));
}

export function axisTimes(splits, step, [from, to]) {
  const timeZone = zoneOfAxes();
  const days = step >= 86400;
  const options = days ? { day: "numeric", month: "short", timeZone } : { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }), timeZone };
  const long = !days && to - from > 86400;
  return splits.map((at) => {
    const date = new Date(at * 1000);
    const midnight = long && date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", timeZone }) === "00:00";
    return midnight ? date.toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone }) : date.toLocaleString("en-GB", options);
  });
}

// The chart in words, for those who do not see it.
export function summary(title, lines, [from, to], whole = {}) {
  const clock = (at) => `${new Date(at * 1000).toISOString().slice(0, 16).replace("T", " ")}`;
  const told = lines.map((line) => {
    const known = line.values.filter((one) => one !== null);
    if (!known.length) return `${line.label}: nothing is known`;
    const last = lineAt(line, null);
    if (line.drawn === "steps" && new Set(known).size === 1) return `${line.label} ${value(last, line.unit, line.metric)}`;
    const unknown = line.drawn === "line" ? (line.values.length - known.length) * line.step_seconds : 0;
    const gap = unknown >= 2 * line.step_seconds ? `, nothing known of ${span(unknown)}` : "";
    const shown = (number) => value(number, line.unit, line.metric);
    const newest = line.drawn === "line" ? ` in its last ${stepWords(line.step_seconds)}` : " last";
    const first = whole[line.id.trim()] === undefined ? `${shown(last)}${newest}` : `${whole[line.id.trim()]} over the range`;
    return `${line.label} ${first}, ${shown(Math.min(...known))} to ${shown(Math.max(...known))} in one step${gap}`;
  });
  return `${title}, ${clock(from)} to ${clock(to)} UTC. ${told.join(". ")}`;
}
