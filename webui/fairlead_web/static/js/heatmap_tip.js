// The tooltip of a cell: name, exact number, time, limit, and what moved. Pinned, it stays, can be pointed at, and has links.

import { exact } from "./formats.js";
import * as data from "./heatmap_data.js";
import { shown } from "./times.js";

const DWELL_MS = 80;
const MOVES = 4;

export const limitWords = (map) => exact(Math.floor(map.limit / map.resolution + 0.5), map.unit);

function signed(now, then, unit) {
  if (now == null || then == null) return "not comparable";
  return now === then ? "no change" : `${now > then ? "+" : "−"}${exact(Math.abs(now - then), unit)}`;
}

export class Tip {
  // `figure` gives addresses; `pinned` is told when a pinned tip closes.
  constructor(figure, onClose) {
    this.figure = figure;
    this.onClose = onClose;
    this.element = document.createElement("div");
    this.element.className = "heatmap-tip";
    this.element.hidden = true;
    document.body.append(this.element);
  }

  get pinned() { return this.element.classList.contains("pinned"); }

  add(tag, text, kind = "") {
    const part = document.createElement(tag);
    part.textContent = text;
    part.className = kind;
    this.element.append(part);
    return part;
  }

  show(map, cell, x, y) {
    const row = map.rows[cell.row];
    this.cell = cell;
    this.element.replaceChildren();
    this.add("strong", map.group === "instance" ? row.id : `${map.group} ${row.id}`);
    const number = this.add("div", "…", "exact");
    const note = map.earlier ? this.add("div", "") : null;
    this.add("div", `${shown(data.start(map, cell.column))} + ${map.step} s`);
    if (map.limit != null) this.add("div", data.isOver(map, cell.row, cell.column) ? `over the limit of ${limitWords(map)}` : `limit ${limitWords(map)}`);
    this.add("div", map.group === "instance" ? `${row.state}, role ${row.role}` : `${row.members} instance${row.members === 1 ? "" : "s"}`);
    this.moves(map, cell);
    this.fill(map, cell, number, note);
    this.place(x, y);
  }

  // What came to and went from the row within the column.
  moves(map, cell) {
    const row = map.rows[cell.row].id;
    const here = map.moves.filter((move) => (move.source === row || move.target === row) && data.columnOf(map, move.at) === cell.column);
    for (const move of here.slice(0, MOVES)) {
      const line = this.add("div", "", "tip-move");
      const words = `${move.source === row ? "→" : "←"} ${move.source === row ? move.target : move.source}${move.count > 1 ? ` ×${move.count}` : ""}`;
      const part = document.createElement("a");
      part.href = this.moveAddress(map, move);
      part.textContent = `${words}, ${move.trigger.replaceAll("-", " ")}`;
      line.append(part);
    }
    if (here.length > MOVES) this.add("div", `and ${here.length - MOVES} more pairs`, "tip-move");
  }

  // One migration has its own page; several of one column and pair are a list.
  moveAddress(map, move) {
    const { migration } = this.figure.dataset;
    if (move.count === 1) return migration + encodeURIComponent(move.id);
    const column = data.columnOf(map, move.at);
    const query = new URLSearchParams({ pool: map.pool, source: move.source, target: move.target, from: data.stamp(map, column), to: data.stamp(map, column + 1) });
    return `${migration.replace(/\/$/, "")}?${query}`;
  }

  fill(map, cell, number, note) {
    const write = (now, then) => {
      number.textContent = map.earlier ? signed(now, then, map.unit) : exact(now, map.unit);
      if (note) note.textContent = `${exact(now, map.unit)}, then ${exact(then, map.unit)}`;
    };
    const now = data.stepAt(map, cell.row, cell.column);
    if (now !== undefined) { write(now, map.then ? data.stepAt(map, cell.row, cell.column, map.then) : null); return; }
    clearTimeout(this.dwell);
    this.dwell = setTimeout(async () => {
      const address = this.figure.dataset.row;
      const [exactNow, then] = await Promise.all([
        data.exactAt(map, address, cell), map.earlier ? data.exactAt(map, address, cell, map.earlier) : null,
      ]);
      if (this.cell === cell) write(exactNow, then);
    }, DWELL_MS);
  }

  // Makes the tip stay, with a way to close it and links to what it is about.
  pin(links) {
    this.element.classList.add("pinned");
    this.element.setAttribute("role", "dialog");
    this.element.setAttribute("aria-label", "Pinned cell");
    const row = this.add("div", "", "tip-links");
    for (const [words, href] of links) {
      const link = document.createElement("a");
      link.href = href;
      link.textContent = words;
      row.append(link);
    }
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "Close";
    close.addEventListener("click", () => this.close());
    row.append(close);
  }

  place(x, y) {
    const { element } = this;
    element.hidden = false;
    const wide = element.offsetWidth;
    const tall = element.offsetHeight;
    element.style.left = `${Math.max(8, Math.min(x + 16, window.innerWidth - wide - 8))}px`;
    element.style.top = `${y + 18 + tall > window.innerHeight ? Math.max(8, y - tall - 14) : y + 18}px`;
  }

  hide() {
    if (this.pinned) return;
    this.element.hidden = true;
    this.cell = null;
  }

  close() {
    const was = this.pinned;
    this.element.classList.remove("pinned");
    this.element.removeAttribute("role");
    this.element.removeAttribute("aria-label");
    this.hide();
    if (was) this.onClose();
  }
}
