// Pixels: cells one by one into a small canvas that CSS scales up; marks, arrows, cursor and brush on a second one in screen pixels.

export function cells(canvas, map) {
  canvas.width = map.columns;
  canvas.height = map.rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(map.columns, map.rows.length);
  for (let index = 0; index < map.levels.length; index += 1) {
    const level = map.levels[index];
    if (level === 255) continue;
    image.data[index * 4] = map.lut[level * 3];
    image.data[index * 4 + 1] = map.lut[level * 3 + 1];
    image.data[index * 4 + 2] = map.lut[level * 3 + 2];
    image.data[index * 4 + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

export function overlay(canvas, map, size, view) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(size.width * ratio);
  canvas.height = Math.round(size.height * ratio);
  canvas.style.width = `${size.width}px`;
  canvas.style.height = `${size.height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const wide = size.width / map.columns;
  const tall = size.height / map.rows.length;
  breaches(context, map, wide, tall);
  const faint = map.migrations.length > 60;
  if (view.arrows) for (const move of map.migrations) arrow(context, map, move, wide, tall, move === view.move, faint);
  if (view.cursor) {
    const { row, column } = view.cursor;
    box(context, column * wide, row * tall, Math.max(wide, 4), Math.max(tall, 4));
  }
  if (view.brush) {
    const [from, to] = [Math.min(view.brush.from, view.brush.to), Math.max(view.brush.from, view.brush.to)];
    context.fillStyle = "rgb(255 255 255 / 30%)";
    context.fillRect(from, 0, to - from, size.height);
    context.strokeStyle = "#fff";
    context.strokeRect(from + 0.5, 0.5, to - from - 1, size.height - 1);
  }
}

function breaches(context, map, wide, tall) {
  const radius = Math.max(1, Math.min(3, wide / 3, tall / 4));
  context.lineWidth = radius > 1.5 ? 1.5 : 1;
  map.breaches.forEach((columns, row) => {
    for (const column of columns) {
      context.beginPath();
      context.arc((column + 0.5) * wide, (row + 0.5) * tall, radius, 0, Math.PI * 2);
      context.fillStyle = "#fff";
      context.fill();
      context.strokeStyle = "#000";
      context.stroke();
    }
  });
}

export function ends(map, move, wide, tall) {
  const source = map.rowOf.get(move.source);
  const target = map.rowOf.get(move.target);
  const column = (move.at - map.start) / map.step;
  if (source == null || target == null || column < 0 || column > map.columns) return null;
  return { x: column * wide, from: (source + 0.5) * tall, to: (target + 0.5) * tall };
}

function arrow(context, map, move, wide, tall, strong, faint) {
  const at = ends(map, move, wide, tall);
  if (!at) return;
  const direction = at.to > at.from ? 1 : -1;
  const path = new Path2D();
  path.moveTo(at.x, at.from);
  path.lineTo(at.x, at.to);
  path.moveTo(at.x - 3, at.to - 5 * direction);
  path.lineTo(at.x, at.to);
  path.lineTo(at.x + 3, at.to - 5 * direction);
  context.lineCap = "round";
  context.strokeStyle = strong ? "#000" : faint ? "rgb(0 0 0 / 30%)" : "rgb(0 0 0 / 55%)";
  const heavier = Math.min(3, Math.log2(move.count ?? 1));
  context.lineWidth = (strong ? 5 : 2.6) + heavier;
  context.stroke(path);
  context.strokeStyle = strong ? "#fff" : faint ? "rgb(255 255 255 / 55%)" : "rgb(255 255 255 / 80%)";
  context.lineWidth = (strong ? 2.4 : 1.1) + heavier;
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
