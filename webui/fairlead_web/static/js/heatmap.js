// The heatmap: canvas over the picture that works without scripts. Hover for exact numbers, click for the instance, drag to zoom, keys to walk.

import { exact } from "./formats.js";
import * as data from "./heatmap_data.js";
import * as draw from "./heatmap_draw.js";
import { follow } from "./heatmap_live.js";
import { shown } from "./times.js";

const DWELL_MS = 80;
const ANNOUNCE_MS = 300;

export async function start(figure) {
  let map;
  try { map = await data.load(figure.dataset.src); } catch { return; } // the picture stays
  if (!map) return;
  const heat = new Heatmap(figure, map);
  heat.mount();
  if (figure.dataset.live === "yes") follow(heat, figure.dataset.src);
}

class Heatmap {
  constructor(figure, map) {
    this.figure = figure;
    this.map = map;
    this.view = { arrows: figure.querySelector("[data-arrows]")?.checked ?? true, cursor: null, brush: null, move: null };
    this.tip = document.createElement("div");
    this.tip.className = "heatmap-tip";
    this.tip.hidden = true;
  }

  mount() {
    const base = this.figure.querySelector(".heatmap-base");
    const surface = document.createElement("div");
    surface.className = "heatmap-surface";
    surface.tabIndex = 0;
    surface.dataset.keyboard = "";
    surface.setAttribute("role", "application");
    surface.setAttribute("aria-label", "Heatmap. Arrow keys move between cells, Enter opens the instance.");
    surface.setAttribute("aria-describedby", "heatmap-summary");
    this.canvas = document.createElement("canvas");
    this.canvas.dataset.cells = "";
    this.marks = document.createElement("canvas");
    this.marks.className = "overlay";
    surface.append(this.canvas, this.marks);
    base.replaceWith(surface);
    this.surface = surface;
    document.body.append(this.tip);
    this.resize();
    new ResizeObserver(() => this.resize()).observe(this.figure.querySelector(".heatmap-box"));
    const box = this.figure.querySelector(".heatmap-box");
    if (this.figure.dataset.live === "yes") box.scrollLeft = box.scrollWidth; // the present is at the right end
    this.listen();
    this.figure.dataset.ready = "yes";
  }

  resize() {
    const box = this.figure.querySelector(".heatmap-box");
    const labels = this.figure.querySelector(".heatmap-labels");
    const room = box.clientWidth - labels.offsetWidth - 36;
    const width = Math.max(this.map.columns * Number(this.figure.dataset.cellWidth), room);
    const height = this.map.rows.length * Number(this.figure.dataset.cellHeight);
    if (this.size?.width === width && this.size?.height === height) return;
    this.size = { width, height };
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.surface.style.width = `${width + 2}px`;
    const axis = this.figure.querySelector("[data-axis]");
    axis.style.width = `${width}px`;
    axis.setAttribute("preserveAspectRatio", "none");
    axis.setAttribute("viewBox", `0 0 ${width} 22`);
    this.drawAll();
    this.axis(axis);
  }

  axis(axis) {
    const wide = this.size.width / this.map.columns;
    const steps = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
    const total = this.map.columns * this.map.step;
    const step = steps.find((one) => total / one <= Math.max(2, this.size.width / 110)) ?? 1209600;
    axis.replaceChildren();
    const timeZone = document.documentElement.dataset.time === "local" ? undefined : "UTC";
    for (let at = Math.ceil(this.map.start / step) * step; at < this.map.start + total; at += step) {
      const x = ((at - this.map.start) / this.map.step) * wide;
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      for (const [name, value] of [["x1", x], ["x2", x], ["y1", 0], ["y2", 5]]) line.setAttribute(name, value);
      axis.append(line);
      if (x < 18 || x > this.size.width - 18) continue;
      const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      for (const [name, value] of [["x", x], ["y", 17], ["text-anchor", "middle"]]) text.setAttribute(name, value);
      const date = new Date(at * 1000);
      text.textContent = step >= 86400
        ? date.toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone })
        : date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }), timeZone });
      axis.append(text);
    }
  }

  drawAll() {
    draw.cells(this.canvas, this.map);
    this.drawMarks();
  }

  drawMarks() {
    draw.overlay(this.marks, this.map, this.size, this.view);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const column = Math.floor((x / box.width) * this.map.columns);
    const row = Math.floor((y / box.height) * this.map.rows.length);
    if (column < 0 || row < 0 || column >= this.map.columns || row >= this.map.rows.length) return null;
    return { row, column, x, y };
  }

  moveNear(cell) {
    if (!this.view.arrows || !cell) return null;
    const wide = this.size.width / this.map.columns;
    const tall = this.size.height / this.map.rows.length;
    let best = null;
    let least = 4;
    for (const move of this.map.migrations) {
      const ends = draw.ends(this.map, move, wide, tall);
      if (!ends || cell.y < Math.min(ends.from, ends.to) || cell.y > Math.max(ends.from, ends.to)) continue;
      const distance = Math.abs(ends.x - cell.x);
      if (distance < least) { best = move; least = distance; }
    }
    return best;
  }

  address(cell) {
    const from = data.start(this.map, cell.column).toISOString().slice(0, 19) + "Z";
    const to = data.start(this.map, cell.column + 1).toISOString().slice(0, 19) + "Z";
    return `${this.figure.dataset.instance}${encodeURIComponent(this.map.rows[cell.row].id)}?${new URLSearchParams({ from, to })}`;
  }

  // One migration has its own page; several of one column and pair are a list.
  moveAddress(move) {
    if (move.count === 1) return this.figure.dataset.migration + encodeURIComponent(move.id);
    const column = Math.floor((move.at - this.map.start) / this.map.step);
    const moment = (at) => `${data.start(this.map, at).toISOString().slice(0, 19)}Z`;
    const query = new URLSearchParams({ pool: this.map.pool, source: move.source, target: move.target, from: moment(column), to: moment(column + 1) });
    return `${this.figure.dataset.migration.replace(/\/$/, "")}?${query}`;
  }

  zoom(fromColumn, toColumn) {
    const target = new URL(this.figure.dataset.here, location.href);
    target.searchParams.set("from", `${data.start(this.map, fromColumn).toISOString().slice(0, 19)}Z`);
    target.searchParams.set("to", `${data.start(this.map, toColumn).toISOString().slice(0, 19)}Z`);
    location.assign(target);
  }

  listen() {
    const { surface } = this;
    let down = null;
    surface.addEventListener("pointermove", (event) => {
      const cell = this.at(event);
      if (down) {
        this.view.brush = { from: down.x, to: Math.max(0, Math.min(this.size.width, event.clientX - this.canvas.getBoundingClientRect().left)) };
        this.tip.hidden = true;
        this.drawMarks();
        return;
      }
      const move = this.moveNear(cell);
      if (move !== this.view.move) { this.view.move = move; this.drawMarks(); }
      surface.classList.toggle("on-move", Boolean(move));
      if (cell) this.show(cell, event.clientX, event.clientY, move);
      else this.hide();
    });
    surface.addEventListener("pointerleave", () => { this.hide(); });
    surface.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      const cell = this.at(event);
      if (cell) { down = cell; surface.setPointerCapture(event.pointerId); }
    });
    surface.addEventListener("pointerup", (event) => {
      const brush = this.view.brush;
      down = null;
      this.view.brush = null;
      this.drawMarks();
      const wide = this.size.width / this.map.columns;
      if (!brush || Math.abs(brush.to - brush.from) < Math.max(6, wide)) return;
      this.skipClick = true;
      setTimeout(() => { this.skipClick = false; });
      const [from, to] = [Math.min(brush.from, brush.to), Math.max(brush.from, brush.to)];
      this.zoom(Math.floor(from / wide), Math.ceil(to / wide));
      event.preventDefault();
    });
    surface.addEventListener("click", (event) => {
      if (this.skipClick) return;
      const cell = this.at(event);
      if (!cell) return;
      const move = this.moveNear(cell);
      location.assign(move ? this.moveAddress(move) : this.address(cell));
    });
    surface.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") this.hide(); });
    surface.addEventListener("focus", () => { if (surface.matches(":focus-visible")) this.walk(this.view.cursor ?? { row: 0, column: this.map.columns - 1 }); });
    surface.addEventListener("blur", () => { this.view.cursor = null; this.hide(); this.drawMarks(); });
    this.figure.querySelector("[data-arrows]")?.addEventListener("change", (event) => { this.view.arrows = event.target.checked; this.drawMarks(); });
  }

  key(event) {
    const cursor = this.view.cursor ?? { row: 0, column: this.map.columns - 1 };
    const page = Math.max(1, Math.round(this.map.columns / 10));
    const moves = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
      PageUp: [0, -page], PageDown: [0, page], Home: [0, -this.map.columns], End: [0, this.map.columns],
    };
    if (event.key === "Enter") { location.assign(this.address(cursor)); event.preventDefault(); return; }
    if (!moves[event.key]) return;
    event.preventDefault();
    const clamp = (value, top) => Math.max(0, Math.min(top - 1, value));
    this.walk({ row: clamp(cursor.row + moves[event.key][0], this.map.rows.length), column: clamp(cursor.column + moves[event.key][1], this.map.columns) });
  }

  walk(cell) {
    this.view.cursor = cell;
    this.drawMarks();
    const box = this.canvas.getBoundingClientRect();
    const x = box.left + ((cell.column + 0.5) / this.map.columns) * box.width;
    const y = box.top + ((cell.row + 0.5) / this.map.rows.length) * box.height;
    const scroller = this.figure.querySelector(".heatmap-box");
    const room = scroller.getBoundingClientRect();
    if (x < room.left + 130 || x > room.right) scroller.scrollLeft += x - (room.left + room.width / 2);
    this.show(cell, x, y, null);
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => { this.figure.querySelector("[data-announce]").textContent = this.sentence(cell); }, ANNOUNCE_MS);
  }

  sentence(cell) {
    const steps = data.stepAt(this.map, cell.row, cell.column);
    const over = this.map.breaches[cell.row].has(cell.column);
    const limit = this.map.limit == null ? "" : `, limit ${exact(Math.floor(this.map.limit / this.map.resolution + 0.5), this.map.unit)}${over ? ", over" : ""}`;
    return `${this.map.rows[cell.row].id}, ${shown(data.start(this.map, cell.column))}, ${steps === undefined ? "" : exact(steps, this.map.unit)}${limit}`;
  }

  async show(cell, x, y, move) {
    const { map, tip } = this;
    const row = map.rows[cell.row];
    this.shownCell = cell;
    tip.replaceChildren();
    const add = (tag, text, kind = "") => { const part = document.createElement(tag); part.textContent = text; part.className = kind; tip.append(part); return part; };
    if (move) {
      add("strong", `${move.source} → ${move.target}`);
      add("div", move.count === 1 ? `Migration: ${move.trigger.replaceAll("-", " ")}` : `${move.count} migrations, the newest: ${move.trigger.replaceAll("-", " ")}`);
      add("div", shown(new Date(move.at * 1000)));
      add("div", move.count === 1 ? "Click to open it." : "Click to list them.");
    } else {
      add("strong", row.id);
      const number = add("div", "…", "exact");
      add("div", `${shown(data.start(map, cell.column))} + ${map.step} s`);
      if (map.limit != null) add("div", map.breaches[cell.row].has(cell.column) ? `over the limit of ${exact(Math.floor(map.limit / map.resolution + 0.5), map.unit)}` : `limit ${exact(Math.floor(map.limit / map.resolution + 0.5), map.unit)}`);
      add("div", `${row.state}, role ${row.role}`);
      this.fill(cell, number);
    }
    tip.hidden = false;
    const wide = tip.offsetWidth;
    const tall = tip.offsetHeight;
    tip.style.left = `${Math.max(8, Math.min(x + 16, window.innerWidth - wide - 8))}px`;
    tip.style.top = `${y + 18 + tall > window.innerHeight ? Math.max(8, y - tall - 14) : y + 18}px`;
  }

  fill(cell, number) {
    const step = data.stepAt(this.map, cell.row, cell.column);
    if (step !== undefined) { number.textContent = exact(step, this.map.unit); return; }
    clearTimeout(this.dwell);
    this.dwell = setTimeout(async () => {
      const row = await data.exactRow(this.map, this.figure.dataset.row, cell.row);
      if (row && this.shownCell === cell) number.textContent = exact(row[cell.column], this.map.unit);
    }, DWELL_MS);
  }

  hide() {
    this.tip.hidden = true;
    this.shownCell = null;
    if (this.view.move) { this.view.move = null; this.drawMarks(); }
  }
}
