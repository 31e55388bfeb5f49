// Pixels: cells one by one into a small canvas that CSS scales up; marks, arrows, cursor and brush on a second one in screen pixels.

import { placeOf } from "./heatmap_data.js";

export function cells(canvas, map) {
  canvas.width = map.columns;
  canvas.height = map.rows.length;
  put(canvas, map, 0, map.columns);
}

export function oneColumn(canvas, map, at) {
  put(canvas, map, at, 1);
}

function put(canvas, map, from, columns) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, map.rows.length);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = coloursOf(map.lut);
  let index = 0;
  for (let row = 0; row < map.rows.length; row += 1) {
    const first = row * map.columns + from;
    for (let at = first; at < first + columns; at += 1) {
      pixels[index] = colours[map.levels[at]];
      index += 1;
    }
  }
  context.putImageData(image, from, 0);
}

// By level a whole pixel, as bytes red, green, blue, opaque; 255, no data, stays transparent.
function coloursOf(lut) {
  const bytes = new Uint8Array(256 * 4);
  for (let level = 0; level < 255; level += 1) bytes.set([lut[level * 3], lut[level * 3 + 1], lut[level * 3 + 2], 255], level * 4);
  return new Uint32Array(bytes.buffer);
}

// `view` has the crosshair, the cursor and the pinned cell by id and instant ({ at, … }), the brush, and the moves to draw.
export function overlay(canvas, map, size, view) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
  if (canvas.width !== width || canvas.height !== height) {
    [canvas.width, canvas.height] = [width, height];
    canvas.style.width = `${size.width}px`;
    canvas.style.height = `${size.height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, size.width, size.height);
  const wide = size.width / map.columns;
  const tall = size.height / map.rows.length;
  if (map.limit != null && !map.earlier && tall >= 4) over(context, map, wide, tall);
  if (view.cross) crosshair(context, map, view.cross, size, wide, tall);
  const faint = view.moves.length > 60;
  for (const move of view.moves) arrow(context, map, move, wide, tall, faint);
  for (const cell of [view.pinned, view.cursor].map((held) => placeOf(map, held))) if (cell) box(context, cell.column * wide, cell.row * tall, Math.max(wide, 4), Math.max(tall, 4));
  if (view.brush) {
    const [from, to] = [Math.min(view.brush.from, view.brush.to), Math.max(view.brush.from, view.brush.to)];
    context.fillStyle = "rgb(255 255 255 / 30%)";
    const { top = 0, bottom = size.height } = view.brush;
    context.fillRect(from, top, to - from, bottom - top);
    context.strokeStyle = "#fff";
    context.strokeRect(from + 0.5, top + 0.5, to - from - 1, bottom - top - 1);
  }
}

// What is over the limit is not told by colour alone: a light line with a dark edge runs under it.
function over(context, map, wide, tall) {
  const thick = tall >= 10 ? 2 : 1;
  const dark = new Path2D();
  const light = new Path2D();
  for (let row = 0; row < map.rows.length; row += 1) {
    const y = (row + 1) * tall - thick;
    let from = -1;
    for (let column = 0; column <= map.columns; column += 1) {
      const level = column < map.columns ? map.levels[row * map.columns + column] : 255;
      const is = level > map.limit_level && level !== 255;
      if (is && from < 0) from = column;
      if (is || from < 0) continue;
      dark.rect(from * wide, y - 1, (column - from) * wide, thick + 1);
      light.rect(from * wide, y, (column - from) * wide, thick);
      from = -1;
    }
  }
  context.fillStyle = "rgb(20 0 10 / 55%)";
  context.fill(dark);
  context.fillStyle = "#fff";
  context.fill(light);
}

function crosshair(context, map, cross, size, wide, tall) {
  const x = ((cross.at - map.start) / map.step) * wide;
  const line = (from, to, fill) => { context.fillStyle = fill; context.fillRect(...from, ...to); };
  if (x >= 0 && x <= size.width) {
    line([x - 1.5, 0], [3, size.height], "rgb(0 0 0 / 35%)");
    line([x - 0.5, 0], [1, size.height], "rgb(255 255 255 / 90%)");
  }
  const row = map.rowOf.get(cross.instance);
  if (row == null || tall < 3) return;
  for (const y of [row * tall, (row + 1) * tall - 1]) line([0, y], [size.width, 1], "rgb(255 255 255 / 75%)");
}

export function ends(map, move, wide, tall) {
  const source = map.rowOf.get(move.source);
  const target = map.rowOf.get(move.target);
  const column = (move.at - map.start) / map.step;
  if (source == null || target == null || column < 0 || column > map.columns) return null;
  return { x: column * wide, from: (source + 0.5) * tall, to: (target + 0.5) * tall };
}

function arrow(context, map, move, wide, tall, faint) {
  const at = ends(map, move, wide, tall);
  if (!at) return;
  const direction = at.to > at.from ? 1 : -1;
  const path = new Path2D();
  path.moveTo(at.x, at.from);
  path.lineTo(at.x, at.to);
  path.moveTo(at.x - 3.5, at.to - 6 * direction);
  path.lineTo(at.x, at.to);
  path.lineTo(at.x + 3.5, at.to - 6 * direction);
  context.lineCap = "round";
  const heavier = Math.min(3, Math.log2(move.count ?? 1));
  context.strokeStyle = faint ? "rgb(0 0 0 / 30%)" : "rgb(0 0 0 / 65%)";
  context.lineWidth = 3 + heavier;
  context.stroke(path);
  context.strokeStyle = faint ? "rgb(255 255 255 / 55%)" : "rgb(255 255 255 / 92%)";
  context.lineWidth = 1.2 + heavier;
  context.stroke(path);
}

function box(context, x, y, width, height) {
  context.lineWidth = 3;
  context.strokeStyle = "#000";
  context.strokeRect(x - 0.5, y - 0.5, width + 1, height + 1);
  context.lineWidth = 1.5;
  context.strokeStyle = "#fff";
  context.strokeRect(x - 0.5, y - 0.5, width + 1, height + 1);
}
