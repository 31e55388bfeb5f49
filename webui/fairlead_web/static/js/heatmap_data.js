// Reads `heatmap.bin`: header length (u32), JSON header, levels (u8, row-major), padding to 4, exact steps (u32), and in a comparison those of then.

export const NO_DATA = 255;
const NO_STEP = 0xffffffff;

// `words` asks for what the page says of the map too: "yes", or "rows" with the names of its rows.
export async function load(address, words = "") {
  const target = new URL(address, location.href);
  if (words) target.searchParams.set("words", words);
  const response = await fetch(target, { headers: { accept: "application/octet-stream" } });
  if (response.status === 401) { location.reload(); return null; }
  if (!response.ok) throw new Error(`heatmap: ${response.status}`);
  return parse(await response.arrayBuffer());
}

export function parse(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const rows = header.rows.map(([id, state, role, members]) => ({ id, state, role, members }));
  const cells = rows.length * header.columns;
  const levels = new Uint8Array(buffer.slice(4 + size, 4 + size + cells));
  const at = Math.ceil((4 + size + cells) / 4) * 4;
  const steps = header.exact ? new Uint32Array(buffer.slice(at, at + cells * 4)) : null;
  const then = header.exact && header.earlier ? new Uint32Array(buffer.slice(at + cells * 4, at + cells * 8)) : null;
  const lut = Uint8Array.from(header.lut.match(/../g), (pair) => parseInt(pair, 16));
  const moves = header.moves.map(([id, after, source, target, trigger, count]) => ({
    id, at: header.start + after, source: rows[source].id, target: rows[target].id, trigger, count,
  }));
  return { ...header, rows, levels, steps, then, lut, moves, rowOf: new Map(rows.map((row, index) => [row.id, index])) };
}

export function isOver(map, row, column) {
  if (map.limit == null || map.earlier) return false;
  const level = map.levels[row * map.columns + column];
  return level > map.limit_level && level !== NO_DATA;
}

// Exact number of one cell in steps; null = no data, undefined = not here, ask `exactAt`.
export function stepAt(map, row, column, steps = map.steps) {
  if (!steps) return undefined;
  const step = steps[row * map.columns + column];
  return step === NO_STEP ? null : step;
}

const asked = new Map();
// One cell's exact number, in steps; `earlier` seconds before. Found by its time: the row that is asked for may begin at another.
export async function exactAt(map, address, cell, earlier = 0) {
  const at = middle(map, cell.column) - earlier;
  const target = new URL(address, location.href);
  target.searchParams.set("instance", map.rows[cell.row].id);
  if (earlier) target.searchParams.set("earlier", earlier);
  const key = `${target.href} ${map.start}`;
  if (!asked.has(key)) {
    asked.set(key, fetch(target).then((response) => (response.ok ? response.json() : null)));
    setTimeout(() => asked.delete(key), 10000); // a live row changes
  }
  const answer = await asked.get(key);
  const value = answer?.rows[0]?.values[Math.floor((at - new Date(answer.start).getTime() / 1000) / answer.step_seconds)];
  return value == null ? null : Math.floor(value / map.resolution + 0.5);
}

// What is looked at by what it is, a row's id and an instant, and its place in whatever map is shown; null outside of it.
export function heldAt(map, cell) {
  return { id: map.rows[cell.row].id, at: middle(map, cell.column) };
}

export function placeOf(map, held) {
  const row = map.rowOf.get(held?.id);
  const column = held ? columnOf(map, held.at) : -1;
  return row == null || column < 0 || column >= map.columns ? null : { row, column };
}

const TOP_LEVEL = 254;

// Mirrors palette.levels_of: within a limit the levels to the map's limit level, beyond it the rest.
function levelOf(map, value) {
  const { top, limit, limit_level: limitLevel } = map;
  if (value == null) return NO_DATA;
  if (limit != null && limit > 0) {
    if (value <= limit) return Math.floor(Math.max(0, value / limit) * limitLevel + 0.5);
    const share = top > limit ? (value - limit) / (top - limit) : 1;
    return limitLevel + 1 + Math.floor(Math.min(1, share) * (TOP_LEVEL - limitLevel - 1) + 0.5);
  }
  if (top <= 0) return 0;
  return Math.floor(Math.max(0, Math.min(1, value / top)) * TOP_LEVEL + 0.5);
}

export function start(map, column) {
  return new Date((map.start + column * map.step) * 1000);
}

export function stamp(map, column) {
  return `${start(map, column).toISOString().slice(0, 19)}Z`;
}

function middle(map, column) {
  return map.start + (column + 0.5) * map.step;
}

export function columnOf(map, at) {
  return Math.floor((at - map.start) / map.step);
}

// Moves the window one column on: everything shifts left, the new column has no data yet.
export function shift(map) {
  const { columns } = map;
  for (let row = 0; row < map.rows.length; row += 1) {
    const at = row * columns;
    map.levels.copyWithin(at, at + 1, at + columns);
    map.levels[at + columns - 1] = NO_DATA;
    if (map.steps) {
      map.steps.copyWithin(at, at + 1, at + columns);
      map.steps[at + columns - 1] = NO_STEP;
    }
  }
  map.start += map.step;
}

export function put(map, row, column, value) {
  const at = row * map.columns + column;
  map.levels[at] = levelOf(map, value);
  if (map.steps) map.steps[at] = value == null ? NO_STEP : Math.floor(value / map.resolution + 0.5);
}

// The fresh map with its rows in the order of these ids, in which their names stand.
export function reordered(fresh, ids) {
  const order = ids.map((id) => fresh.rowOf.get(id));
  const { columns } = fresh;
  const sorted = (cells) => {
    if (!cells) return null;
    const made = new cells.constructor(cells.length);
    order.forEach((from, to) => made.set(cells.subarray(from * columns, (from + 1) * columns), to * columns));
    return made;
  };
  const kept = order.map((from) => fresh.rows[from]);
  return {
    ...fresh, levels: sorted(fresh.levels), steps: sorted(fresh.steps), then: sorted(fresh.then), rows: kept,
    rowOf: new Map(kept.map((row, index) => [row.id, index])),
  };
}
