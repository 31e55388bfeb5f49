"""Reads the data of series: loads, latencies, refusals and moves by step of time, and the values in force."""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.latency_cells import NO_TPOT, WIDTH
from fairlead.range_steps import rollup_of
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.pool_rows import goals_of, pool_row
from fairlead_api.moves.store import within as moves_within
from fairlead_api.series.grids import Steps
from fairlead_api.series.reading import LOADS, OF_INSTANCES, Changes, Subject
from fairlead_api.series.store.pool_changes import read_annotations, read_decisions, read_goals, read_models, read_serving, read_wanted
from fairlead_api.slo.budgets import Counts, Kept
from fairlead_api.trees.budgets import Rolled
from fairlead_api.trees.store.task_rollups import rolled, task_goals
from fairlead_client.resources.series import Annotations

_STEP = "CAST(floor(extract(epoch FROM {at} - :start) / :step) AS int) AS step"
_SUMMED = ("requests_total", "failed_total", "output_tokens", "hit_tokens", "prompt_tokens")
_OF_POOLS = (
    f"WITH each AS (SELECT pool_id, {_STEP.format(at='bucket')}, CAST(sum(seconds) AS float8) AS lasted, "
    + ", ".join(f"CAST(sum({name}) AS float8) AS {name}" for name in (*_SUMMED, *tables.POOL_GAUGES, "kv_usage_sum", "kv_usage_n"))
    + " FROM {table} WHERE pool_id = ANY(:pools) AND bucket >= :start AND bucket < :end GROUP BY 1, 2) "
    "SELECT step, sum(requests_total / lasted) AS requests, sum(failed_total / lasted) AS failed, "
    "sum(output_tokens / lasted) AS output_tokens, sum(hit_tokens) / nullif(sum(prompt_tokens), 0) AS hit_rate, "
    + ", ".join(f"sum({gauge} / lasted) AS {gauge}" for gauge in tables.POOL_GAUGES)
    + ", sum(kv_usage_sum) / nullif(sum(kv_usage_n), 0) AS kv_usage FROM each GROUP BY 1"
)
_LASTED = "sum(least(:base, greatest(1, extract(epoch FROM CAST(:now AS timestamptz) - bucket))))"
_OF_INSTANCE = (
    f"SELECT {_STEP.format(at='bucket')}, "
    + ", ".join(
        f"CAST(sum({total}) / {_LASTED} AS float8) AS {name}"
        for name, total in (("requests", "requests_total"), ("failed", "failed_total"), ("output_tokens", "output_tokens"))
    )
    + ", CAST(sum(hit_tokens) AS float8) / nullif(sum(prompt_tokens), 0) AS hit_rate, "
    "CAST(sum(ttft_within_slo) AS float8) / nullif(sum(ttft_total), 0) AS ttft_attainment, "
    + ", ".join(f"sum({gauge}_sum) / nullif(sum({gauge}_n), 0) AS {gauge}" for gauge in (*tables.POOL_GAUGES, "kv_usage"))
    + ", max(ttft_p95_max) AS ttft_p95, max(tpot_p95_max) AS tpot_p95 "
    "FROM generate_series(CAST(:start AS timestamptz), CAST(:last AS timestamptz), make_interval(secs => :base)) AS b(at) "
    "JOIN LATERAL (SELECT * FROM {table} r WHERE r.pool_id = :pool AND r.bucket = b.at AND r.instance = :instance) r ON true GROUP BY 1"
)
"""SQL for one instance's series. It looks up each bucket by primary key, because a scan of the range would read all
instances.
"""

_WITHIN = "pool_id = ANY(:pools) AND {at} >= :start AND {at} < :end"
_KEPT_SUMS = ", ".join(f"CAST(sum({name}) AS bigint) AS {name}" for name in tables.SLO_SUMS)
_PARTS = {"ttft": f"c.cell / {WIDTH}", "tpot": f"c.cell % {WIDTH}"}


class PostgresSeries:
    """Implements `series.reading.SeriesStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def loads(self, subject: Subject, where: Steps, now: datetime) -> Mapping[int, Mapping[str, float | None]]:
        async with self._database.reading() as connection:
            values = await _where(connection, subject, where)
            if subject.instance is None:
                rows = await connection.execute(text(_OF_POOLS.format(table=f"pool_rollups_{rollup_of(where.seconds)}")), values)
                return {row.step: {name: row._mapping[name] for name in LOADS} for row in rows}
            (pool,) = values["pools"]
            await known_instance(connection, pool, subject)
            base = 10 if where.seconds < 60 else 60  # there are no hours of single instances
            table = f"load_rollups_{rollup_of(base)}"
            values |= {"pool": pool, "instance": subject.instance, "base": base, "now": now}
            values["last"] = where.end - timedelta(seconds=base)
            rows = await connection.execute(text(_OF_INSTANCE.format(table=table)), values)
            return {row.step: {name: row._mapping[name] for name in (*LOADS, *OF_INSTANCES)} for row in rows}

    async def kept(self, subject: Subject, where: Steps) -> Sequence[Kept]:
        parts = "0 AS slo_version, '' AS priority_class" if subject.pool is None else "slo_version, priority_class"
        rows = await self._rows(
            subject,
            where,
            f"SELECT {_STEP.format(at='bucket')}, {parts}, {_KEPT_SUMS} FROM slo_rollups_{rollup_of(max(60, where.seconds))} "
            f"WHERE {_WITHIN.format(at='bucket')} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        )
        return [
            Kept(
                version=row.slo_version,
                priority_class=row.priority_class,
                counts=Counts(**{name: row._mapping[name] for name in tables.SLO_SUMS}),
                at=where.start + row.step * where.length,
            )
            for row in rows
        ]

    async def latencies(self, subject: Subject, where: Steps, kind: str) -> Mapping[int, Mapping[int, int]]:
        rows = await self._rows(
            subject,
            where,
            f"SELECT {_STEP.format(at='bucket')}, {_PARTS[kind]} AS latency, CAST(sum(c.requests) AS bigint) AS requests "
            f"FROM slo_rollups_{rollup_of(max(60, where.seconds))} r, unnest(r.cells, r.counts) AS c(cell, requests) "
            f"WHERE {_WITHIN.format(at='bucket')} GROUP BY 1, 2",
        )
        found: dict[int, dict[int, int]] = defaultdict(dict)
        for row in rows:
            if kind == "ttft" or row.latency != NO_TPOT:
                found[row.step][row.latency] = row.requests
        return found

    async def refusals(self, subject: Subject, where: Steps) -> Sequence[tuple[int, str, int]]:
        rows = await self._rows(
            subject,
            where,
            f"SELECT {_STEP.format(at='second')}, reason, CAST(sum(count) AS bigint) AS refused FROM rejections "
            f"WHERE {_WITHIN.format(at='second')} GROUP BY 1, 2",
        )
        return [(row.step, row.reason, row.refused) for row in rows]

    async def moves(self, subject: Subject, where: Steps, table: str) -> Sequence[tuple[int, int, float | None]]:
        rows = await self._rows(
            subject,
            where,
            f"SELECT {_STEP.format(at='at')}, CAST(sum({table}) AS bigint) AS moves, CAST(sum(compared) AS bigint) AS compared, "
            f"sum(seconds_won) AS won FROM ({moves_within(rollup_of(max(60, where.seconds)))}) moved GROUP BY 1",
        )
        return [(row.step, row.moves, row.won if row.compared else None) for row in rows if row.moves]

    async def serving(self, pool: PoolKey, since: datetime) -> Mapping[str, Changes]:
        async with self._database.reading() as connection:
            return await read_serving(connection, await pool_row(connection, pool), since)

    async def wanted(self, pool: PoolKey, since: datetime) -> Mapping[str, Changes]:
        async with self._database.reading() as connection:
            return await read_wanted(connection, (await pool_row(connection, pool)).id, since)

    async def goals(self, pool: PoolKey, kind: str, since: datetime) -> Changes:
        async with self._database.reading() as connection:
            return await read_goals(connection, (await pool_row(connection, pool)).id, kind, since)

    async def percentiles(self, pool: PoolKey) -> Mapping[int, float]:
        async with self._database.reading() as connection:
            return await goals_of(connection, pool)

    async def tasks(self, pool: PoolKey, where: Steps) -> Sequence[Rolled]:
        async with self._database.reading() as connection:
            return await rolled(connection, (await pool_row(connection, pool)).id, where.start, where.end, where.length)

    async def task_goals(self, pool: PoolKey) -> Mapping[tuple[int, str], float]:
        async with self._database.reading() as connection:
            return await task_goals(connection, (await pool_row(connection, pool)).id)

    async def decisions(self, pool: PoolKey, where: Steps) -> Mapping[tuple[str, str], Mapping[int, float]]:
        async with self._database.reading() as connection:
            return await read_decisions(connection, (await pool_row(connection, pool)).id, where)

    async def models(self, pool: PoolKey, where: Steps, kind: str) -> Mapping[str, Mapping[int, float]]:
        async with self._database.reading() as connection:
            return await read_models(connection, (await pool_row(connection, pool)).id, where, kind)

    async def annotations(self, subject: Subject, start: datetime, end: datetime) -> Annotations:
        async with self._database.reading() as connection:
            return await read_annotations(connection, await pools_of(connection, subject), subject.instance, start, end)

    async def _rows(self, subject: Subject, where: Steps, statement: str) -> Sequence[Row[Any]]:
        async with self._database.reading() as connection:
            return (await connection.execute(text(statement), await _where(connection, subject, where))).all()


async def _where(connection: AsyncConnection, subject: Subject, where: Steps) -> dict[str, Any]:
    pools = list(await pools_of(connection, subject))
    return {"pools": pools, "start": where.start, "end": where.end, "step": where.seconds}


async def known_instance(connection: AsyncConnection, pool: int, subject: Subject) -> None:
    """Raises NotFound for an instance that the pool never had."""
    known = select(tables.instances.c.id).where(tables.instances.c.pool_id == pool, tables.instances.c.id == subject.instance)
    if (await connection.execute(known)).scalar_one_or_none() is None:
        raise NotFound("instance", f"{subject.pool}/{subject.instance}")


async def pools_of(connection: AsyncConnection, subject: Subject) -> dict[int, str]:
    """Return the names of pools by id: the subject's own pool, or all visible pools if the subject names none. All
    visible pools include deleted pools, because their past is part of the total. Raises NotFound if the subject's own
    pool does not exist.
    """
    if subject.pool is not None:
        return {int((await pool_row(connection, subject.pool)).id): str(subject.pool)}
    pools = tables.pools.c
    query = select(pools.id, pools.namespace, pools.name)
    if subject.sight is not None:
        query = query.where(pools.namespace.in_(sorted(subject.sight)))
    return {row.id: f"{row.namespace}/{row.name}" for row in await connection.execute(query)}
