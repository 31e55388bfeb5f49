"""Reads the figures of a range of time, for instances, pools and all pools. Pages show them in tiles, legends and
sentences.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.latency_cells import WIDTH, added, quantile
from fairlead.range_steps import Covered, rollup_of
from fairlead_api.infra.database import Database
from fairlead_api.infra.pool_rows import pool_row, slo_of
from fairlead_api.loads.store.rollups import complete_until
from fairlead_api.moves.store import COLUMNS as MOVE_COUNTS
from fairlead_api.moves.store import within as moves_within
from fairlead_api.series.reading import Subject
from fairlead_api.series.store.series import known_instance, pools_of
from fairlead_client.resources.figures import FiguresByInstance, InstanceFigures, RangeFigures

FLEET_PERCENTILE = 95.0
_WITHIN = "pool_id = ANY(:pools) AND {at} >= :start AND {at} < :end"
_COUNTS = {
    "slo_rollups": {
        "judged": "judged",
        "in_time": "within_slo",
        "ttft_in_time": "ttft_within_slo",
        "tpot_judged": "tpot_total",
        "tpot_in_time": "tpot_within_slo",
        "refused": "refused",
        "failed": "failed",
    },
    "pool_rollups": {
        "sent": "requests_total",
        "failed_sends": "failed_total",
        "completed_sends": "completed",
        "cancelled_sends": "cancelled",
        "prompt_tokens": "prompt_tokens",
        "hit_tokens": "hit_tokens",
    },
}
"""The column that contains each figure, by table of rollups."""
_LOST = f"SELECT pool_id, CAST(sum(moves) AS bigint) AS lost_moves FROM lost_moves WHERE {_WITHIN.format(at='minute')} GROUP BY pool_id"
_LATENCIES = f"""
SELECT r.pool_id, c.cell / {WIDTH} AS ttft, c.cell % {WIDTH} AS tpot, CAST(sum(c.requests) AS bigint) AS requests
FROM {{table}} r, unnest(r.cells, r.counts) AS c(cell, requests) WHERE {_WITHIN.format(at="bucket")}
GROUP BY GROUPING SETS ((r.pool_id, c.cell / {WIDTH}), (r.pool_id, c.cell % {WIDTH}))
"""
_INSTANCE_COUNTS = """
  coalesce(sum(requests_total), 0) AS sent, coalesce(sum(failed_total), 0) AS failed_sends, coalesce(sum(judged_by_slo), 0) AS judged,
  coalesce(sum(within_slo), 0) AS in_time, coalesce(sum(ttft_total), 0) AS first_tokens, coalesce(sum(ttft_within_slo), 0) AS ttft_in_time,
  coalesce(sum(prompt_tokens), 0) AS prompt_tokens, coalesce(sum(hit_tokens), 0) AS hit_tokens,
  coalesce(sum(output_tokens), 0) AS output_tokens, max(ttft_p95_max) AS ttft_p95_seconds, max(tpot_p95_max) AS tpot_p95_seconds
"""
_OF_INSTANCE = f"""
SELECT {_INSTANCE_COUNTS}
FROM generate_series(CAST(:start AS timestamptz), CAST(:last AS timestamptz), interval '1 minute') AS b(at)
JOIN LATERAL (SELECT * FROM load_rollups_1m r WHERE r.pool_id = :pool AND r.bucket = b.at AND r.instance = :instance) r ON true
"""
"""SQL for one instance's figures. It looks up each minute by primary key, because a scan of the range would read all
instances.
"""
_BY_INSTANCE = f"""
SELECT instance, {_INSTANCE_COUNTS} FROM load_rollups_1m WHERE pool_id = :pool AND bucket >= :start AND bucket < :end GROUP BY instance
"""


@dataclass(slots=True)
class _Sums:
    """Figures of requests, added up over rows: `counts` by name of the figure, and numbers of requests by step of TTFT
    and by step of TPOT.
    """

    counts: dict[str, float] = field(default_factory=dict)
    ttft: dict[int, int] = field(default_factory=dict)
    tpot: dict[int, int] = field(default_factory=dict)


class PostgresFigures:
    """Reads the figures of a range of time from the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def figures(self, subject: Subject, where: Covered, now: datetime) -> RangeFigures:
        """Return the figures over the range `where`. Raises NotFound for a pool that does not exist."""
        async with self._database.reading() as connection:
            pools = list(await pools_of(connection, subject))
            percentile = FLEET_PERCENTILE if subject.pool is None else slo_of(await pool_row(connection, subject.pool)).percentile
            return (await read_figures(connection, pools, {}, where, now, percentile))[None]

    async def instance_figures(self, subject: Subject, where: Covered, now: datetime) -> InstanceFigures:
        """Return the figures of an instance over the range `where`. Raises NotFound for a pool that does not exist, and
        for an instance that the pool never had.
        """
        async with self._database.reading() as connection:
            (pool,) = await pools_of(connection, subject)
            await known_instance(connection, pool, subject)
            values = {"pool": pool, "instance": subject.instance, "start": where.start, "last": where.end - timedelta(minutes=1)}
            row = (await connection.execute(text(_OF_INSTANCE), values)).one()
            return InstanceFigures(**await _bounds(connection, pool, where, now), **_instance_counts(dict(row._mapping)))

    async def by_instance(self, subject: Subject, where: Covered, now: datetime) -> FiguresByInstance:
        """Return the figures of every instance that existed during the range `where`. Raises NotFound for a pool that
        no longer exists.
        """
        async with self._database.reading() as connection:
            (pool,) = await pools_of(connection, subject)
            found = await connection.execute(text(_BY_INSTANCE), {"pool": pool, "start": where.start, "end": where.end})
            rows = {row.instance: {name: value for name, value in row._mapping.items() if name != "instance"} for row in found}
            bounds = await _bounds(connection, pool, where, now)
            instances = {name: InstanceFigures(**bounds, **_instance_counts(row)) for name, row in rows.items()}
            return FiguresByInstance(pool=str(subject.pool), instances=instances, **bounds)


def _instance_counts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if name.endswith("_seconds") else int(value) for name, value in row.items()}


async def _bounds(connection: AsyncConnection, pool: int, where: Covered, now: datetime) -> dict[str, Any]:
    """Return the statement's parameters for the range, and the time up to which its rollups are complete (None = the
    whole range).
    """
    behind, end = (await complete_until(connection, [pool], now)).get(pool), min(where.end, now)
    return {"start": where.start, "end": end, "complete_until": behind if behind and behind < end else None}


async def read_figures(
    connection: AsyncConnection,
    pools: Iterable[int],
    percentiles: Mapping[int, float],
    where: Covered,
    now: datetime,
    of_all: float = FLEET_PERCENTILE,
) -> dict[int | None, RangeFigures]:
    """Return the figures of each pool, by pool id, and under the key None the figures of all `pools` together.
    `percentiles` has the pools to list, each with the percentile of TTFT to compute.
    """
    ids = sorted({*pools, *percentiles})
    values = {"pools": ids, "start": where.start, "end": where.end}
    base, sums = rollup_of(where.seconds), defaultdict[int, _Sums](_Sums)
    for name, columns in _COUNTS.items():
        for row in await connection.execute(text(_counted(f"{name}_{base}", columns)), values):
            sums[row.pool_id].counts |= {one: row._mapping[one] for one in columns}
    for statement in (_moved(base), _LOST):
        for row in await connection.execute(text(statement), values):
            sums[row.pool_id].counts |= {one: count for one, count in row._mapping.items() if one != "pool_id"}
    for row in await connection.execute(text(_LATENCIES.format(table=f"slo_rollups_{base}")), values):
        of_pool = sums[row.pool_id]
        (of_pool.tpot if row.ttft is None else of_pool.ttft)[row.tpot if row.ttft is None else row.ttft] = row.requests
    behind = {pool: at for pool, at in (await complete_until(connection, ids, now)).items() if at < min(where.end, now)}
    empty = RangeFigures(start=where.start, end=min(where.end, now))
    found: dict[int | None, RangeFigures] = {
        pool: _figures(empty, [sums[pool]] if pool in sums else [], percentile, behind.get(pool))
        for pool, percentile in percentiles.items()
    }
    found[None] = _figures(empty, list(sums.values()), of_all, min(behind.values(), default=None))
    return found


def _counted(table: str, columns: Mapping[str, str]) -> str:
    named = ", ".join(f"CAST(coalesce(sum({column}), 0) AS bigint) AS {name}" for name, column in columns.items())
    return f"SELECT pool_id, {named} FROM {table} WHERE {_WITHIN.format(at='bucket')} GROUP BY pool_id"


def _moved(base: str) -> str:
    counts = ", ".join(f"CAST(sum({name}) AS {'float8' if name == 'seconds_won' else 'bigint'}) AS {name}" for name in MOVE_COUNTS)
    return f"SELECT pool_id, {counts} FROM ({moves_within(base)}) moved GROUP BY pool_id"


def _figures(empty: RangeFigures, sums: list[_Sums], percentile: float, complete: datetime | None) -> RangeFigures:
    counts: dict[str, Any] = defaultdict(int)
    for one in sums:
        for name, count in one.counts.items():
            counts[name] += count
    ttft, tpot = added(one.ttft for one in sums), added(one.tpot for one in sums)
    return replace(
        empty,
        **counts,
        percentile=percentile,
        ttft_seconds=quantile(ttft, percentile / 100),
        ttft_p50_seconds=quantile(ttft, 0.5),
        ttft_p95_seconds=quantile(ttft, 0.95),
        tpot_p95_seconds=quantile(tpot, 0.95),
        complete_until=complete,
    )
