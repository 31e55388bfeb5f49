// Reads `heatmap.bin`: header length (u32), JSON header, levels (u8, row-major), padding to 4, exact steps (u32).

export const NO_DATA = 255;
const NO_STEP = 0xffffffff;

export async function load(address) {
  const response = await fetch(address, { headers: { accept: "application/octet-stream" } });
  if (response.status === 401) { location.reload(); return null; }
  if (!response.ok) throw new Error(`heatmap: ${response.status}`);
  return parse(await response.arrayBuffer());
}

export function parse(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const cells = header.rows.length * header.columns;
  const levels = new Uint8Array(buffer.slice(4 + size, 4 + size + cells));
  const at = Math.ceil((4 + size + cells) / 4) * 4;
  const steps = header.exact ? new Uint32Array(buffer.slice(at, at + cells * 4)) : null;
  const breaches = header.rows.map((row) => new Set(row.breaches));
  const lut = Uint8Array.from(header.lut.match(/../g), (pair) => parseInt(pair, 16));
  return { ...header, levels, steps, breaches, lut, rowOf: new Map(header.rows.map((row, index) => [row.id, index])) };
}

// Exact number of one cell in steps; undefined = not here, ask `exactRow`.
export function stepAt(map, row, column) {
  if (!map.steps) return undefined;
  const step = map.steps[row * map.columns + column];
  return step === NO_STEP ? null : step;
}

const rows = new Map();
export async function exactRow(map, address, row) {
  const id = map.rows[row].id;
  if (!rows.has(id)) {
    const target = new URL(address, location.href);
    target.searchParams.set("instance", id);
    rows.set(id, fetch(target).then((response) => (response.ok ? response.json() : null)));
  }
  const answer = await rows.get(id);
  return answer?.rows[0]?.values.map((value) => (value == null ? null : Math.floor(value / map.resolution + 0.5))) ?? null;
}

// Mirrors palette.level_of: within a limit the first LIMIT_AT of the colours, beyond it the rest.
const LIMIT_AT = 0.6;
export function levelOf(value, maximum, limit) {
  if (value == null) return NO_DATA;
  if (maximum <= 0) return 0;
  let share = value / maximum;
  if (limit != null && limit > 0 && limit < maximum) share = value <= limit ? (value / limit) * LIMIT_AT : LIMIT_AT + ((value - limit) / (maximum - limit)) * (1 - LIMIT_AT);
  return Math.floor(Math.max(0, Math.min(1, share)) * 254 + 0.5);
}

export function start(map, column) {
  return new Date((map.start + column * map.step) * 1000);
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
    map.breaches[row] = new Set([...map.breaches[row]].filter((column) => column > 0).map((column) => column - 1));
  }
  map.start += map.step;
}

export function put(map, row, column, value) {
  const at = row * map.columns + column;
  map.levels[at] = levelOf(value, map.maximum, map.limit);
  if (map.steps) map.steps[at] = value == null ? NO_STEP : Math.floor(value / map.resolution + 0.5);
  if (map.limit != null && value > map.limit) map.breaches[row].add(column);
  else map.breaches[row].delete(column);
}
