// Mirrors health.state_mark and fleet.totals, for live events. A browser test compares them.

function late(pool) {
  return pool.attainment != null && pool.attainment * 100 + 1e-9 < pool.slo_percentile;
}

export function markOf(pool) {
  return `${pool.state_digest}.${late(pool) ? "o" : ""}${pool.rejections_per_second > 0 ? "r" : ""}`;
}

function weighted(pools, field) {
  const known = pools.filter((pool) => pool[field] != null && pool.requests_per_second > 0);
  const weight = known.reduce((sum, pool) => sum + pool.requests_per_second, 0);
  return weight ? known.reduce((sum, pool) => sum + pool[field] * pool.requests_per_second, 0) / weight : null;
}

export function totals(pools) {
  const sum = (field) => pools.reduce((all, pool) => all + pool[field], 0);
  return {
    requests_per_second: sum("requests_per_second"),
    rejections_per_second: sum("rejections_per_second"),
    migrations_per_hour: sum("migrations_per_hour"),
    attainment: weighted(pools, "attainment"),
    hit_rate: weighted(pools, "hit_rate"),
  };
}
