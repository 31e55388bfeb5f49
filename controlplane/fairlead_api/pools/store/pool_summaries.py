"""A pool in a line: its state, and its traffic, latencies, refusals and moves of the last five minutes.

Figures from rollups are unknown while these are behind.
"""

import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import Role
from fairlead.table_content import MirroredFacts
from fairlead.tables import MIGRATIONS_MODES
from fairlead_api.infra.object_marks import owner_of
from fairlead_api.infra.pool_rows import conditions_of, share, slo_of
from fairlead_api.loads.store.rollups import complete_until
from fairlead_api.pools.fixed_engines import engines_file, scale_target_of, selector_of
from fairlead_api.pools.mirroring import ready_condition
from fairlead_api.pools.store.last_minutes import LastMinutes
from fairlead_api.pools.store.live_routers import COUNT_LIVE
from fairlead_client.resources.pools import PoolSummary

_TRAFFIC = """
SELECT r.pool_id, sum(ttft_within_slo) AS within, sum(ttft_total) AS total, sum(within_slo) AS within_slo, sum(judged_by_slo) AS judged,
       sum(requests_total) AS requests, sum(hit_tokens) AS hits, sum(prompt_tokens) AS prompts,
       extract(epoch FROM max(bucket) - min(bucket)) + 10 AS seconds
FROM pool_rollups_10s r WHERE r.pool_id = ANY(:pools) AND r.bucket > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY r.pool_id
"""
_REFUSED = """
SELECT pool_id, sum(count) AS refused FROM rejections
WHERE pool_id = ANY(:pools) AND second > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY pool_id
"""
_MOVED = """
SELECT pool_id, sum(moves) FILTER (WHERE sort = 'migrated') AS migrated, sum(moves) FILTER (WHERE sort = 'rerouted') AS rerouted,
       sum(moves) FILTER (WHERE sort = 'lost') AS lost
FROM (SELECT pool_id, at, 1 AS moves, 'migrated' AS sort FROM migrations UNION ALL SELECT pool_id, at, 1, 'rerouted' FROM reroutes
      UNION ALL SELECT pool_id, minute, moves, 'lost' FROM lost_moves) m
WHERE pool_id = ANY(:pools) AND at > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY pool_id
"""
_STATES = """
SELECT pool_id, count(*) FILTER (WHERE state = 'Serving') AS serving, count(*) FILTER (WHERE state = 'Draining') AS draining,
       string_agg(id || ' ' || state, ',' ORDER BY id) AS each
FROM instances WHERE pool_id = ANY(:pools) AND gone_at IS NULL GROUP BY pool_id
"""


async def pool_summaries(last_minutes: LastMinutes, connection: AsyncConnection, rows: list[Any], now: datetime) -> list[PoolSummary]:
    """In the order of `rows`, which are rows of the table pools."""
    ids = [row.id for row in rows]
    if not ids:
        return []
    traffic, refused, moved = [await _by_pool(connection, query, ids, now) for query in (_TRAFFIC, _REFUSED, _MOVED)]
    shares = [slo_of(row).percentile / 100 for row in rows]
    latency = await last_minutes.latencies(ids, shares, now)
    states = {row.pool_id: row for row in await connection.execute(text(_STATES), {"pools": ids})}
    behind = {pool: (now - at).total_seconds() for pool, at in (await complete_until(connection, ids, now)).items()}
    idle = 0.0 if (await connection.execute(COUNT_LIVE)).scalar_one() else None
    return [
        _summary(
            row,
            None if row.id in behind else traffic.get(row.id),
            None if row.id in behind else latency.get(row.id),
            refused.get(row.id),
            moved.get(row.id),
            states.get(row.id),
            behind.get(row.id, 0.0),
            None if row.id in behind else idle,
            now,
        )
        for row in rows
    ]


async def _by_pool(connection: AsyncConnection, query: str, pools: list[int], now: datetime) -> dict[int, Any]:
    return {row.pool_id: row for row in await connection.execute(text(query), {"pools": pools, "now": now})}


def _summary(
    row: Any, traffic: Any, latency: Any, refused: Any, moved: Any, states: Any, behind: float, idle: float | None, now: datetime
) -> PoolSummary:
    """`idle` are the requests per second of a pool without traffic: zero, or unknown without a report."""
    facts = msgspec.convert(row.facts, MirroredFacts) if row.facts else None
    ready = ready_condition(conditions_of(row), row.problem)
    p50, p95, at_percentile = latency if latency else (None, None, None)
    slo = slo_of(row)
    # over what there was of the last 5 minutes, so that a young pool's rates are not too low
    window = min(300.0, max(10.0, (now - row.created_at).total_seconds()))
    return PoolSummary(
        namespace=row.namespace,
        name=row.name,
        model=row.model,
        engine=facts.table.engine.type if facts else str(_inside(row.spec, "engine", "type") or "simulated"),
        policy=facts.table.routing.policy if facts else str(_inside(row.spec, "routing", "policy") or ""),
        ready=ready.status == "True",
        ready_reason=ready.reason,
        ready_message=ready.message,
        desired=sum(desired_of(row).values()),
        serving=states.serving if states else 0,
        draining=states.draining if states else 0,
        attainment=share(traffic.within, traffic.total) if traffic else None,
        slo_attainment=share(traffic.within_slo, traffic.judged) if traffic else None,
        slo_percentile=slo.percentile,
        ttft_slo_seconds=slo.ttft_seconds,
        ttft_p50_seconds=p50,
        ttft_p95_seconds=p95,
        ttft_at_percentile_seconds=at_percentile,
        hit_rate=share(traffic.hits, traffic.prompts) if traffic else None,
        requests_per_second=float(traffic.requests) / float(traffic.seconds) if traffic else idle,
        rejections_per_second=float(refused.refused) / window if refused else 0.0,
        sessions_moved=int(moved.migrated or 0) if moved else 0,
        requests_rerouted=int(moved.rerouted or 0) if moved else 0,
        lost_moves=int(moved.lost or 0) if moved else 0,
        figures_behind_seconds=behind,
        table_version=row.table_version,
        state_digest=_digest(row, states.each if states else ""),
        owner=owner_of(row.labels, row.annotations, (row.changed_by,)),
        engines_file=engines_file(row.annotations),
        migrations=facts.table.routing.migrations if facts else str(_inside(row.spec, "routing", "migrations") or MIGRATIONS_MODES[0]),
        selector=selector_of(row.spec),
        scale_target=scale_target_of(row.spec),
        created_at=row.created_at,
    )


def _digest(row: Any, instances: str) -> str:
    """Eight hex digits over what a page shows of the pool's state and no rate or latency."""
    seen = (row.generation, row.table_version, row.problem, row.conditions, row.desired, instances)
    return f"{zlib.crc32(msgspec.json.encode(seen)):08x}"


def desired_of(row: Any) -> dict[str, int]:
    """The instances wanted now, per role, of a row of the table pools."""
    return row.desired or declared_by(row.spec)


def declared_by(spec: Mapping[str, Any]) -> dict[str, int]:
    """The instances that a spec declares, per role; what cannot be read is left out.

    For a pool whose status has no number: the status of a new pool has none yet, and an older operator never sets one.
    """
    roles = [role for role in spec.get("roles") or () if isinstance(role, Mapping) and role.get("name") != Role.BOTH]
    declared = {str(role.get("name")): role.get("replicas") or max(1, role.get("minReplicas") or 0) for role in roles}
    found = declared or {Role.BOTH.value: spec.get("replicas", 1)}
    return {role: number for role, number in found.items() if isinstance(number, int)}


def _inside(spec: Mapping[str, Any], *path: str) -> Any:
    found: Any = spec
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
