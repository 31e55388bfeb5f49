"""Rollups of SLO samples: minutes from samples, hours from minutes, each computed again whenever a report brought some.

A row is of one priority class and one version of the SLO: the version that the router judged by, or, of a router that
does not tell, the one in force then.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api import tables

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_COLUMNS = (*tables.SLO_SUMS, "cells", "counts")
_VERSION_THEN = "(SELECT max(v.version) FROM slo_configs v WHERE v.pool_id = s.pool_id AND v.active_from <= s.second)"


def _rolling(target: str, source: str, at: str, version: str) -> str:
    """A bucket of `target` from the rows of `source` between :start and :end."""
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
    """Computes the minutes and hours of these times again, by pool."""
    minutes = sorted({(pool, at.replace(second=0, microsecond=0)) for pool, at in buckets})
    for pool, minute in minutes:
        await connection.execute(_TO_1M, {"pool": pool, "start": minute, "end": minute + _MINUTE})
    for pool, hour in sorted({(pool, minute.replace(minute=0)) for pool, minute in minutes}):
        await connection.execute(_TO_1H, {"pool": pool, "start": hour, "end": hour + _HOUR})
