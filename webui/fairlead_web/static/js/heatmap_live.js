// Live columns: the running bucket grows from instance events; when it ends the picture moves on by one column.
// Metrics that events do not carry, new instances and anything missed come from the server at the end of a bucket.

import * as data from "./heatmap_data.js";
import { tell } from "./heatmap_words.js";

const FIELD = {
  pending_prefill_tokens: "pending_prefill_tokens", running: "running", waiting: "waiting", in_flight: "in_flight", kv_usage: "kv_usage",
  ttft_p95: "ttft_p95_seconds", hit_rate: "hit_rate",
};
const RESYNC_SECONDS = 60;
const HASTE_SECONDS = 5;
const OUTGROWN_SECONDS = 15; // values beyond the scale's end look like its end until then
const BRIDGED = 3;

export function follow(heat, address) {
  let sums = new Map(); // of the running bucket
  let begun = 0; // when it began
  let loaded = Date.now() / 1000;
  let loading = false;
  const counted = new Set();
  const strangers = new Set(); // instances without a row, which were asked for: a map of a large pool never has them all
  const fieldOf = (map) => (map.earlier || map.group !== "instance" ? undefined : FIELD[map.metric]);

  const reload = async () => {
    if (loading || document.hidden) return;
    loading = true;
    loaded = Date.now() / 1000;
    try {
      const fresh = await data.load(address, "yes");
      const same = fresh && hasSameRows(fresh);
      const named = same ? fresh : fresh && await data.load(address, "rows");
      if (named) adopt(same ? data.reordered(named, heat.map.rows.map((row) => row.id)) : named);
    } catch { /* the next bucket tries again; the pill shows that the stream is away */ } finally { loading = false; }
  };

  // Then their names and their order stay as they are.
  const hasSameRows = (fresh) => {
    const shown = (row) => heat.map.rows[heat.map.rowOf.get(row.id)];
    return fresh.rows.length === heat.map.rows.length && fresh.rows.every((row) => shown(row)?.role === row.role);
  };

  const adopt = (fresh) => {
    tell(heat.figure, fresh.words);
    heat.adopt(fresh); // the range may begin in another bucket, one column more or less
  };

  const advance = (now) => {
    const { map } = heat;
    let moved = 0;
    while (now >= map.start + map.columns * map.step && moved < map.columns) {
      data.shift(map);
      moved += 1;
    }
    if (!moved) return;
    const last = sums;
    // Events come every second or two; with shorter buckets the ones between take the value seen last.
    for (let back = 2; back <= Math.min(moved, BRIDGED); back += 1) {
      for (const [id, sum] of last) data.put(map, map.rowOf.get(id), map.columns - back, sum.top);
    }
    heat.advanced();
    const patience = fieldOf(map) && moved <= BRIDGED + 1 && map.step > 1 ? RESYNC_SECONDS : Math.max(HASTE_SECONDS, map.step);
    if (now - loaded >= patience) reload();
  };

  const record = (items) => {
    const { map } = heat;
    const field = fieldOf(map);
    if (!field) return;
    const newest = map.start + (map.columns - 1) * map.step;
    if (newest !== begun) { // moved on, or read again from another time on
      sums = new Map();
      begun = newest;
    }
    const rested = Date.now() / 1000 - loaded;
    let changed = false;
    let wanted = false;
    for (const item of items) {
      if (item.pool !== map.pool) continue;
      const row = map.rowOf.get(item.id);
      if (row == null) {
        const stranger = `${item.id} ${item.state}`;
        if (item.state === "Gone" || item.state === "Pending" || rested < HASTE_SECONDS || strangers.has(stranger)) continue;
        strangers.add(stranger);
        wanted = true;
        continue;
      }
      const value = item[field];
      if (value == null) continue;
      const sum = sums.get(item.id) ?? { total: 0, count: 0, top: 0 };
      sum.total += value;
      sum.count += 1;
      sum.top = Math.max(sum.top, value);
      sums.set(item.id, sum);
      const shown = map.aggregate === "mean" ? sum.total / sum.count : sum.top;
      data.put(map, row, map.columns - 1, shown);
      changed = true;
      if (shown > map.top && rested >= Math.max(OUTGROWN_SECONDS, map.step)) wanted = true;
    }
    if (changed) heat.drawNewest();
    if (wanted) reload();
  };

  document.addEventListener("fairlead:live", (event) => {
    const { topic, items } = event.detail;
    if (topic === "instances") { advance(Date.now() / 1000); record(items); }
    if (topic === "poll") reload();
    if (topic === "migrations") {
      for (const move of items) {
        if (move.pool !== heat.map.pool || counted.has(move.id)) continue;
        counted.add(move.id);
        count(heat.map, move);
      }
      heat.drawMarks();
    }
  });
}

// Adds a migration to the arrow of its column and pair, or begins one; the newest gives the arrow its name.
function count(map, move) {
  if (map.group !== "instance") return;
  const at = new Date(move.at).getTime() / 1000;
  const column = data.columnOf(map, at);
  const known = map.moves.find((one) => one.source === move.source && one.target === move.target && data.columnOf(map, one.at) === column);
  if (known?.id === move.id) return;
  map.moves_total += 1;
  if (known) Object.assign(known, { id: move.id, at, trigger: move.trigger, count: known.count + 1 });
  else map.moves.push({ id: move.id, at, source: move.source, target: move.target, trigger: move.trigger, count: 1 });
}
