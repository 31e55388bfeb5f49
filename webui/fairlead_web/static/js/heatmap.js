// The heatmap: canvas over the picture that works without scripts. Hover for exact numbers, click for the instance, drag to zoom, keys to walk,
// Shift-click or `p` to pin, `e` to explain. Several maps of one page share one crosshair, by the event `fairlead:crosshair`.

import { exact } from "./formats.js";
import { names, rowHeight, times } from "./heatmap_axis.js";
import * as data from "./heatmap_data.js";
import * as draw from "./heatmap_draw.js";
import { explain } from "./heatmap_explain.js";
import { follow } from "./heatmap_live.js";
import { Tip, limitWords } from "./heatmap_tip.js";
import { tell } from "./heatmap_words.js";
import { shown } from "./times.js";
import { turn } from "./turns.js";

const ANNOUNCE_MS = 300;
const FRAME = 64; // axis and legend below the cells

export async function start(figures) {
  const panel = document.querySelector("#explanation[data-worst]");
  const maps = await Promise.allSettled([...figures].map((figure) => data.load(figure.dataset.src)));
  for (const [index, figure] of [...figures].entries()) {
    const found = maps[index].value;
    const map = found && await beside(figure, found);
    if (!map) continue; // the picture stays
    const heat = new Heatmap(figure, map, figures.length);
    await turn();
    heat.paint();
    await turn();
    heat.mount();
    await turn();
    heat.open();
    if (figure.dataset.live === "yes") follow(heat, figure.dataset.src);
  }
  if (panel?.dataset.worst) explain(panel, panel.dataset.worst);
}

// The map with its rows beside their names, which the page has from a moment before; read once more with their names when others came or went
// meanwhile. Null when that fails.
async function beside(figure, map) {
  const ids = [...figure.querySelectorAll(".heatmap-labels [data-row]")].map((item) => item.dataset.row);
  if (ids.length === map.rows.length && ids.every((id) => map.rowOf.has(id))) return data.reordered(map, ids);
  const fresh = await data.load(figure.dataset.src, "rows").catch(() => null);
  if (fresh) tell(figure, fresh.words);
  return fresh;
}

// The address with these parameters in place of its own of the same names.
function asking(address, query) {
  const found = new URL(address, location.href);
  for (const [name, value] of Object.entries(query)) found.searchParams.set(name, value);
  return found.href;
}

class Heatmap {
  constructor(figure, map, count) {
    this.figure = figure;
    this.map = map;
    this.count = count;
    this.view = { cross: null, cursor: null, pinned: null, brush: null, moves: [] };
    this.tip = new Tip(figure, () => { this.view.pinned = null; this.drawMarks(); });
    this.box = figure.querySelector(".heatmap-box");
    this.axisLine = figure.querySelector("[data-axis]");
    this.readout = figure.querySelector("[data-readout]");
  }

  // The cells, before they are on the page.
  paint() {
    this.canvas = document.createElement("canvas");
    this.canvas.dataset.cells = "";
    this.marks = document.createElement("canvas");
    this.marks.className = "overlay";
    this.drawCells();
  }

  // Puts them in the place of the picture.
  mount() {
    const surface = document.createElement("div");
    surface.className = "heatmap-surface";
    surface.tabIndex = 0;
    surface.dataset.keyboard = "";
    surface.setAttribute("role", "application");
    surface.setAttribute("aria-label", `Heatmap of ${this.figure.dataset.words}. Arrow keys move between cells, Enter opens the instance, p pins, e explains.`);
    surface.setAttribute("aria-describedby", this.figure.dataset.summary);
    surface.append(this.canvas, this.marks);
    this.figure.querySelector(".heatmap-base").replaceWith(surface);
    this.surface = surface;
    this.resize();
    this.listen();
  }

  // From now on it follows the window and answers.
  open() {
    this.axis();
    new ResizeObserver(() => this.fit()).observe(this.box);
    window.addEventListener("resize", () => this.fit());
    this.figure.heat = this;
    this.figure.dataset.ready = "yes";
  }

  // Whether its size changed; marks and axis are in pixels of the window, the cells are not.
  resize() {
    const labels = this.figure.querySelector(".heatmap-labels");
    const height = rowHeight(this.box.getBoundingClientRect().top + window.scrollY, this.map.rows.length, this.count, FRAME);
    names(labels, height);
    const room = this.box.clientWidth - labels.offsetWidth - 4;
    const least = window.innerWidth < 720 ? 6 : 2; // on a phone a finger needs a wider column, and the box scrolls
    const size = { width: Math.max(this.map.columns * least, room), height: this.map.rows.length * height };
    if (this.size?.width === size.width && this.size?.height === size.height) return false;
    this.size = size;
    this.canvas.style.width = `${size.width}px`;
    this.canvas.style.height = `${size.height}px`;
    this.surface.style.width = `${size.width + 2}px`;
    this.drawMarks();
    return true;
  }

  fit() {
    if (this.resize()) this.axis();
  }

  // Another reading, maybe with other rows.
  adopt(map) {
    if (map.columns !== this.map.columns) this.size = null;
    this.map = map;
    if (this.hovered?.row >= map.rows.length || this.hovered?.column >= map.columns) this.hovered = null;
    this.drawCells();
    if (!this.resize()) this.drawMarks();
    this.axis();
    this.lookAgain();
    const panel = document.getElementById("explanation");
    if (panel) import("./heatmap_again.js").then((again) => again.explainAgain(panel, map, explain), () => {});
  }

  // The map moved on by some columns.
  advanced() {
    this.drawAll();
    this.axis();
    this.lookAgain();
  }

  // What is pinned and the cursor stay with their row and time. The pointer stays where it is: below it is another cell now.
  lookAgain() {
    const { pinned } = this.view;
    if (pinned && !data.placeOf(this.map, pinned)) this.tip.close();
    if (this.tip.pinned || this.tip.element.hidden) return;
    const cursor = data.placeOf(this.map, this.view.cursor);
    if (this.hovered) {
      this.look(this.hovered);
      this.tip.show(this.map, this.hovered, ...this.pointer);
    } else if (cursor) this.tip.show(this.map, cursor, ...this.centre(cursor));
    else this.tip.hide();
  }

  axis() {
    times(this.axisLine, this.map, this.size.width);
  }

  drawAll() {
    this.drawCells();
    this.drawMarks();
  }

  drawCells() {
    draw.cells(this.canvas, this.map);
  }

  // The running column, and what is marked in it.
  drawNewest() {
    draw.oneColumn(this.canvas, this.map, this.map.columns - 1);
    this.drawMarks();
    if (this.hovered?.column === this.map.columns - 1) this.lookAgain();
  }

  drawMarks() {
    this.view.moves = this.movesShown();
    draw.overlay(this.marks, this.map, this.size, this.view);
  }

  // `hovered`: only the moves of the instance under the pointer or the cursor.
  movesShown() {
    const kind = document.querySelector("[data-moves]")?.value ?? "none";
    if (kind === "none") return [];
    if (kind === "all") return this.map.moves;
    const id = this.view.pinned?.id ?? this.map.rows[this.hovered?.row]?.id ?? this.view.cursor?.id;
    return id == null ? [] : this.map.moves.filter((move) => move.source === id || move.target === id);
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

  window(cell) {
    return { from: data.stamp(this.map, cell.column), to: data.stamp(this.map, cell.column + 1) };
  }

  // The instance in the cell's window; the members of a group over the whole range.
  address(cell) {
    const row = encodeURIComponent(this.map.rows[cell.row].id);
    if (this.map.group === "instance") return `${this.figure.dataset.instance}${row}?${new URLSearchParams(this.window(cell))}`;
    const { instance } = this.figure.dataset;
    return `${instance.replace(/\/$/, "")}?q=${this.map.group === "node" ? row : ""}`;
  }

  explanation(cell) {
    const { metric, limit } = this.map;
    const query = new URLSearchParams({ metric, ...this.window(cell), ...(limit != null && { limit }) }); // by which the panel judges too
    return `${this.figure.dataset.instance}${encodeURIComponent(this.map.rows[cell.row].id)}/explanation?${query}`;
  }

  explain(cell) {
    if (this.map.group === "instance") this.answer(this.explanation(cell));
  }

  // Beside the map, or on its own page.
  answer(address) {
    const panel = document.getElementById("explanation");
    if (panel) explain(panel, address);
    else location.assign(address);
  }

  zoom(fromColumn, toColumn) {
    location.assign(asking(this.figure.dataset.here, { from: data.stamp(this.map, fromColumn), to: data.stamp(this.map, toColumn) }));
  }

  // What the pointer drags over: a stretch of time, or with Shift also the rows from one to the other.
  brushed(down, event) {
    const box = this.canvas.getBoundingClientRect();
    const inside = (at, most) => Math.max(0, Math.min(most, at));
    const brush = { from: down.x, to: inside(event.clientX - box.left, this.size.width) };
    if (!down.shift) return brush;
    const high = this.size.height / this.map.rows.length;
    const row = Math.floor(inside(event.clientY - box.top, this.size.height - 1) / high);
    const rows = [Math.min(down.row, row), Math.max(down.row, row)];
    return { ...brush, rows, top: rows[0] * high, bottom: (rows[1] + 1) * high };
  }

  // What differs in the region from the rest.
  compare({ from, to, rows }, wide) {
    if (this.map.group !== "instance") return;
    const first = Math.floor(Math.min(from, to) / wide);
    const end = Math.max(first + 1, Math.ceil(Math.max(from, to) / wide));
    this.answer(asking(this.figure.dataset.differences, {
      instances: this.map.rows.slice(rows[0], rows[1] + 1).map((row) => row.id).join(","),
      region_from: data.stamp(this.map, first),
      region_to: data.stamp(this.map, end),
    }));
  }

  // Tells all maps and charts of the page where the reader looks; null when nowhere.
  look(cell) {
    const { at, id } = cell ? data.heldAt(this.map, cell) : { at: null, id: null };
    document.dispatchEvent(new CustomEvent("fairlead:crosshair", { detail: { at, instance: id, source: this } }));
  }

  listen() {
    const { surface } = this;
    let down = null;
    surface.addEventListener("pointermove", (event) => {
      const cell = this.at(event);
      if (down) {
        this.view.brush = this.brushed(down, event);
        this.tip.hide();
        this.drawMarks();
        return;
      }
      if (event.pointerType === "touch") return;
      this.pointer = [event.clientX, event.clientY];
      if (cell?.row === this.hovered?.row && cell?.column === this.hovered?.column) {
        if (cell && !this.tip.pinned) this.tip.place(...this.pointer);
        return;
      }
      this.hovered = cell;
      this.look(cell);
      if (cell && !this.tip.pinned) this.tip.show(this.map, cell, ...this.pointer);
      else this.tip.hide();
    });
    surface.addEventListener("pointerleave", () => { this.hovered = null; this.look(null); this.tip.hide(); });
    surface.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      const cell = this.at(event);
      if (cell) { down = { ...cell, shift: event.shiftKey }; surface.setPointerCapture(event.pointerId); }
    });
    surface.addEventListener("pointerup", (event) => {
      const { brush } = this.view;
      down = null;
      this.view.brush = null;
      this.drawMarks();
      const wide = this.size.width / this.map.columns;
      const far = brush && Math.max(Math.abs(brush.to - brush.from), Math.abs((brush.bottom ?? 0) - (brush.top ?? 0)));
      if (!brush || far < Math.max(6, wide)) return;
      this.skipClick = true;
      setTimeout(() => { this.skipClick = false; });
      event.preventDefault();
      if (brush.rows) { this.compare(brush, wide); return; }
      const [from, to] = [Math.min(brush.from, brush.to), Math.max(brush.from, brush.to)];
      this.zoom(Math.floor(from / wide), Math.ceil(to / wide));
    });
    surface.addEventListener("click", (event) => {
      if (this.skipClick) return;
      const cell = this.at(event);
      if (!cell) return;
      if (event.shiftKey || event.pointerType === "touch") this.pin(cell, event.clientX, event.clientY);
      else location.assign(this.address(cell));
    });
    surface.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") { this.tip.close(); this.tip.hide(); } });
    document.addEventListener("pointerdown", (event) => {
      if (this.tip.pinned && !this.tip.element.contains(event.target) && !surface.contains(event.target)) this.tip.close();
    });
    surface.addEventListener("focus", () => { if (surface.matches(":focus-visible")) this.walk(this.cursor()); });
    surface.addEventListener("blur", () => { this.view.cursor = null; this.tip.hide(); this.look(null); });
    document.querySelector("[data-moves]")?.addEventListener("change", () => this.drawMarks());
    document.addEventListener("fairlead:crosshair", (event) => this.cross(event.detail));
  }

  // The place where the reader looks, on this map or on another map or chart of the page.
  cross({ at, instance, source }) {
    this.view.cross = at == null ? null : { at, instance };
    this.drawMarks();
    if (!this.readout || source === this) { if (this.readout) this.readout.textContent = ""; return; }
    const row = this.map.rowOf.get(instance);
    const column = at == null ? -1 : data.columnOf(this.map, at);
    const step = row == null || column < 0 || column >= this.map.columns || this.map.earlier ? undefined : data.stepAt(this.map, row, column);
    this.readout.textContent = step === undefined ? "" : exact(step, this.map.unit);
  }

  pin(cell, x, y) {
    this.tip.close();
    this.tip.show(this.map, cell, x, y);
    const links = this.map.group === "instance" ? [["Instance", this.address(cell)], ["Decisions", this.decisions(cell)]] : [["Instances", this.address(cell)]];
    this.tip.pin(links);
    this.tip.place(x, y);
    this.view.pinned = data.heldAt(this.map, cell);
    this.drawMarks();
    this.explain(cell);
  }

  decisions(cell) {
    const query = new URLSearchParams({ instance: this.map.rows[cell.row].id, ...this.window(cell) });
    return `${this.figure.dataset.decisions}?${query}`;
  }

  // Where the keys are: at first in the newest column.
  cursor() {
    return data.placeOf(this.map, this.view.cursor) ?? { row: 0, column: this.map.columns - 1 };
  }

  key(event) {
    const cursor = this.cursor();
    const page = Math.max(1, Math.round(this.map.columns / 10));
    const moves = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
      PageUp: [0, -page], PageDown: [0, page], Home: [0, -this.map.columns], End: [0, this.map.columns],
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") { location.assign(this.address(cursor)); event.preventDefault(); return; }
    if (event.key === "e") { this.explain(cursor); event.preventDefault(); return; }
    if (event.key === "p") { const [x, y] = this.centre(cursor); this.pin(cursor, x, y); event.preventDefault(); return; }
    if (!moves[event.key]) return;
    event.preventDefault();
    const clamp = (value, top) => Math.max(0, Math.min(top - 1, value));
    this.walk({ row: clamp(cursor.row + moves[event.key][0], this.map.rows.length), column: clamp(cursor.column + moves[event.key][1], this.map.columns) });
  }

  centre(cell) {
    const box = this.canvas.getBoundingClientRect();
    return [box.left + ((cell.column + 0.5) / this.map.columns) * box.width, box.top + ((cell.row + 0.5) / this.map.rows.length) * box.height];
  }

  walk(cell) {
    this.view.cursor = data.heldAt(this.map, cell);
    this.look(cell);
    const room = this.box.getBoundingClientRect();
    let [x, y] = this.centre(cell);
    if (x < room.left + 130 || x > room.right) { this.box.scrollLeft += x - (room.left + room.width / 2); [x, y] = this.centre(cell); }
    if (!this.tip.pinned) this.tip.show(this.map, cell, x, y);
    clearTimeout(this.speaking);
    this.speaking = setTimeout(async () => { this.figure.querySelector("[data-announce]").textContent = await this.sentence(cell); }, ANNOUNCE_MS);
  }

  async sentence(cell) {
    const { map } = this;
    const [row, begun, over] = [map.rows[cell.row], data.start(map, cell.column), data.isOver(map, cell.row, cell.column)];
    const step = data.stepAt(map, cell.row, cell.column) ?? (map.steps ? null : await data.exactAt(map, this.figure.dataset.row, cell));
    return `${row.id}, ${shown(begun)}, ${exact(step, map.unit)}${map.limit == null ? "" : `, limit ${limitWords(map)}${over ? ", over" : ""}`}`;
  }
}
