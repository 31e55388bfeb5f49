"""Stores pools' objectives: their versions, the attainment that routers reported, and rollups of it (minutes from
samples, hours from minutes). A rollup is recomputed whenever a report adds samples to it.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.paging import page
from fairlead_api.infra.pool_rows import goals_of, pool_row, share, slo_of
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Span
from fairlead_api.slo.budgets import Counts, Kept
from fairlead_api.slo.reading import Goal, Stretch
from fairlead_client.resources.pages import Page
from fairlead_client.resources.slo import SloVersion

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_COLUMNS = (*tables.SLO_SUMS, "cells", "counts")
_VERSION_THEN = "(SELECT max(v.version) FROM slo_configs v WHERE v.pool_id = s.pool_id AND v.active_from <= s.second)"


def _rolling(target: str, source: str, at: str, version: str) -> str:
    """Return SQL that computes one bucket of the table `target` from the rows of `source` between :start and :end."""
    sums = ", ".join(f"sum({name}) AS {name}" for name in tables.SLO_SUMS)
    replaced = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)
    return f"""
WITH found AS (
  SELECT s.priority_class, {version} AS version, {", ".join(f"s.{name}" for name in _COLUMNS)}
  FROM {source} s WHERE s.pool_id = :pool AND s.{at} >= :start AND s.{at} < :end
), sums AS (
  SELECT priority_class, version, {sums} FROM found GROUP BY priority_class, version
), each AS (
  SELECT priority_class, version, c.cell, CAST(sum(c.requests) AS bigint) AS requests
  FROM found, unnest(cells, counts) AS c(cell, requests) WHERE c.cell IS NOT NULL AND c.requests > 0 GROUP BY priority_class, version, c.cell
), grouped AS (
  SELECT priority_class, version, array_agg(cell ORDER BY cell) AS cells, array_agg(requests ORDER BY cell) AS counts
  FROM each GROUP BY priority_class, version
)
INSERT INTO {target} (pool_id, bucket, priority_class, slo_version, {", ".join(_COLUMNS)})
SELECT :pool, :start, priority_class, version, {", ".join(tables.SLO_SUMS)}, coalesce(cells, '{{}}'), coalesce(counts, '{{}}')
FROM sums LEFT JOIN grouped USING (priority_class, version)
ON CONFLICT (pool_id, bucket, priority_class, slo_version) DO UPDATE SET {replaced}
"""


_TO_1M = text(_rolling("slo_rollups_1m", "slo_samples", "second", f"coalesce(s.slo_version, {_VERSION_THEN}, 0)"))
_TO_1H = text(_rolling("slo_rollups_1h", "slo_rollups_1m", "bucket", "s.slo_version"))


async def roll_up_slo(connection: AsyncConnection, buckets: Iterable[tuple[int, datetime]]) -> None:
    """Recompute the rollups of the minutes and hours that contain these buckets. Each bucket is a pool's id
    and a time.
    """
    minutes = sorted({(pool, at.replace(second=0, microsecond=0)) for pool, at in buckets})
    for pool, minute in minutes:
        await connection.execute(_TO_1M, {"pool": pool, "start": minute, "end": minute + _MINUTE})
    for pool, hour in sorted({(pool, minute.replace(minute=0)) for pool, minute in minutes}):
        await connection.execute(_TO_1H, {"pool": pool, "start": hour, "end": hour + _HOUR})


_SUMS = ", ".join(f"CAST(sum({name}) AS bigint) AS {name}" for name in tables.SLO_SUMS)
_PARTS = (
    ("slo_rollups_1m", ":start", ":hours_from"),
    ("slo_rollups_1h", ":hours_from", ":hours_until"),
    ("slo_rollups_1m", ":hours_until", ":end"),
)
_KEPT_BY_VERSION = text(
    "SELECT slo_version, sum(within_slo) AS within, CAST(sum(judged) AS bigint) AS judged FROM slo_rollups_1h "
    "WHERE pool_id = :pool AND bucket >= :since AND slo_version = ANY(:versions) GROUP BY slo_version"
)
_CHANGED_BY = text("SELECT number, actor FROM pool_revisions WHERE pool_id = :pool AND number = ANY(:numbers)")


class PostgresSlo:
    """Implements `slo.reading.SloStore`, and lists versions of objectives."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def slo_versions(self, pool: PoolKey, span: Span) -> Page[SloVersion]:
        """Return versions of the pool's objectives, the newest first, each with the attainment since it came into
        force.
        """
        slo = tables.slo_configs
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(slo).where(slo.c.pool_id == row.id)
            found = await page(
                connection, query, (slo.c.version,), lambda item: item, cursor=span.cursor, limit=span.limit, reverse=span.reverse
            )
            items = await _versions(connection, row.id, pool, found.items)
        return Page(items=items, next_cursor=found.next_cursor, total=found.total)

    async def goal(self, pool: PoolKey) -> Goal:
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
        slo = slo_of(row)
        return Goal(version=int(row.slo_version), ttft_seconds=slo.ttft_seconds, tpot_seconds=slo.tpot_seconds, percentile=slo.percentile)

    async def percentiles(self, pool: PoolKey) -> Mapping[int, float]:
        async with self._database.reading() as connection:
            return await goals_of(connection, pool)

    async def kept(
        self,
        pool: PoolKey,
        stretch: Stretch,
        *,
        step_seconds: int | None = None,
        version: int | None = None,
        priority_class: str | None = None,
    ) -> Sequence[Kept]:
        at = "CAST(NULL AS timestamptz)" if step_seconds is None else "date_bin(:step, bucket, 'epoch')"
        values: dict[str, Any] = {} if step_seconds is None else {"step": timedelta(seconds=step_seconds)}
        rows = _rows(tables.SLO_SUMS, values, version, priority_class)
        statement = f"SELECT slo_version, priority_class, {at} AS at, {_SUMS} FROM ({rows}) r GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        async with self._database.reading() as connection:
            found = await connection.execute(text(statement), {**values, **(await _where(connection, pool, stretch))})
            return [
                Kept(
                    version=row.slo_version,
                    priority_class=row.priority_class,
                    counts=Counts(**{name: row._mapping[name] for name in tables.SLO_SUMS}),
                    at=row.at,
                )
                for row in found
            ]

    async def cells(self, pool: PoolKey, stretch: Stretch, priority_class: str | None = None) -> Mapping[str, Mapping[int, int]]:
        values: dict[str, Any] = {}
        rows = _rows(("cells", "counts"), values, None, priority_class)
        statement = (
            f"SELECT r.priority_class, c.cell, CAST(sum(c.requests) AS bigint) AS requests FROM ({rows}) r, "
            "unnest(r.cells, r.counts) AS c(cell, requests) GROUP BY 1, 2"
        )
        counts: dict[str, dict[int, int]] = defaultdict(dict)
        async with self._database.reading() as connection:
            for row in await connection.execute(text(statement), {**values, **(await _where(connection, pool, stretch))}):
                counts[row.priority_class][row.cell] = row.requests
        return counts


def _rows(columns: Sequence[str], values: dict[str, Any], version: int | None, priority_class: str | None) -> str:
    """Return SQL for the counts in a range: from the table by hour for whole hours, and from the table by minute for
    the other minutes.
    """
    filters = ""
    for name, value in (("slo_version", version), ("priority_class", priority_class)):
        if value is not None:
            filters += f" AND {name} = :{name}"
            values[name] = value
    names = ", ".join(("bucket", "priority_class", "slo_version", *columns))
    return " UNION ALL ".join(
        f"SELECT {names} FROM {table} WHERE pool_id = :pool AND bucket >= {start} AND bucket < {end}{filters}"
        for table, start, end in _PARTS
    )


async def _where(connection: AsyncConnection, pool: PoolKey, stretch: Stretch) -> dict[str, Any]:
    row = await pool_row(connection, pool)
    return {
        "pool": row.id,
        "start": stretch.start,
        "end": stretch.end,
        "hours_from": stretch.hours_from,
        "hours_until": stretch.hours_until,
    }


async def _versions(connection: AsyncConnection, pool_id: int, pool: PoolKey, rows: Sequence[Any]) -> list[SloVersion]:
    if not rows:
        return []
    begun: datetime = min(row.active_from for row in rows).replace(minute=0, second=0, microsecond=0)
    asked = {"pool": pool_id, "since": begun, "versions": [row.version for row in rows]}
    kept = {row.slo_version: row for row in await connection.execute(_KEPT_BY_VERSION, asked)}
    numbers = sorted({row.revision for row in rows if row.revision is not None})
    made = {row.number: row.actor for row in await connection.execute(_CHANGED_BY, {"pool": pool_id, "numbers": numbers})}
    return [
        read(
            SloVersion,
            row,
            pool=str(pool),
            attainment=share(kept[row.version].within, kept[row.version].judged) if row.version in kept else None,
            requests=int(kept[row.version].judged) if row.version in kept else 0,
            changed_by=made.get(row.revision),
        )
        for row in rows
    ]
