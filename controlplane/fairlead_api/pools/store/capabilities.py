"""Reads the capability (speeds and sizes) of pools' engines from the database."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection
from xxhash import xxh3_128_hexdigest

from fairlead.capabilities import NOTHING_KNOWN, EngineCapability, Figure, Source, Spread
from fairlead.reports.engines import EngineMemory
from fairlead.table_content import MirroredFacts
from fairlead.tables import EngineFigures, RoutingTable
from fairlead_api import tables
from fairlead_api.pools.capabilities import (
    Remembered,
    capability_of,
    known_line,
    line_of,
    measured,
    memory_of,
    observed_of,
    remembering,
    still_known,
)
from fairlead_api.pools.store.live_routers import IS_LIVE
from fairlead_client.resources.engine_fits import EngineFit
from fairlead_client.resources.instances import LearntOfEngines

_STARTS = text("""
WITH newest AS (SELECT id, created_at FROM instances WHERE pool_id = :pool ORDER BY created_at DESC LIMIT 50),
seen AS (
  SELECT extract(epoch FROM min(t.at) FILTER (WHERE t.after IN ('Warming', 'Serving')) - n.created_at) AS seconds,
    min(t.at) FILTER (WHERE t.after IN ('Warming', 'Serving')) AS at, bool_or(t.before IS NULL AND t.after IN ('Pending', 'Starting')) AS whole
  FROM newest n CROSS JOIN LATERAL (
    SELECT before, after, at FROM instance_transitions
    WHERE pool_id = :pool AND instance = n.id AND at >= n.created_at ORDER BY at LIMIT 10
  ) AS t GROUP BY n.id, n.created_at
)
SELECT percentile_cont(ARRAY[0.1, 0.5, 0.9]) WITHIN GROUP (ORDER BY seconds) AS spread, count(*) AS starts,
  extract(epoch FROM CAST(:now AS timestamptz) - max(at)) AS age
FROM (SELECT * FROM seen WHERE whole AND at IS NOT NULL ORDER BY at DESC LIMIT 20) AS last
""")
"""SQL for the times from creation to first service. It examines the fifty newest instances, and uses the twenty newest
of them whose start was observed. Ten transitions of an instance are enough, because a start takes fewer.
"""


async def read_capability(connection: AsyncConnection, row: Any, now: datetime) -> EngineCapability:
    """Return the capability of a pool's engines; `row` is the pool's row of the table pools."""
    known = measured(await learnt_figures(connection, row.id, None))
    found = capability_of(known, _remembered(row), engine_kind(row.spec), await stored_fit(connection, row.id), engine_of(row), now)
    return replace(found, start_seconds=await start_figure(connection, row.id, now))


def engine_of(row: Any) -> EngineFigures:
    """Return the engine figures that the spec in a row of the table pools declares; default values before any valid
    spec was seen.
    """
    return EngineFigures() if row.facts is None else msgspec.convert(row.facts, MirroredFacts).table.engine


def remembered_capability(row: Any, now: datetime) -> EngineCapability:
    """Return the stored measurements that still apply to the pool's present engines; `row` is the pool's row of the
    table pools.
    """
    return still_known(_remembered(row), engine_kind(row.spec), now.timestamp())


async def engine_memory(connection: AsyncConnection, row: Any, table: RoutingTable, now: datetime) -> EngineMemory | None:
    """Return the measured or fitted engine figures with which a router may start; None if there are none. `row` is the
    pool's row of the table pools.
    """
    told, before, kind = await learnt_figures(connection, row.id, None), _remembered(row), engine_kind(row.spec)
    fit, at = await stored_fit(connection, row.id), now.timestamp()
    found = observed_of(measured(told), before, kind, fit, now)
    by_fit = fit if found.decode_step_seconds.source is Source.FITTED else None
    return None if found == NOTHING_KNOWN else memory_of(found, table, at, known_line(line_of(told, at), before, kind, by_fit, at))


async def measured_to_remember(connection: AsyncConnection, row: Any, spec: Mapping[str, Any], now: datetime) -> dict[str, Any] | None:
    """Return the new value of the column `measured`, which includes the present measurements of live routers; None if
    nothing was ever measured.
    """
    told, at = await learnt_figures(connection, row.id, None), now.timestamp()
    found = remembering(measured(told), _remembered(row), engine_kind(spec), at, line_of(told, at))
    return None if found is None else msgspec.to_builtins(found)


async def learnt_figures(connection: AsyncConnection, pool_id: int, instance: str | None) -> list[LearntOfEngines]:
    """Return the measurements of each live router, ordered by quantity and router name: the measurements on `instance`,
    or, if `instance` is None, the measurements over all instances.
    """
    routers = tables.routers
    learnt = routers.c.learnt_figures[str(pool_id)][instance or ""]
    rows = await connection.execute(select(routers.c.id, learnt).where(IS_LIVE, learnt.is_not(None)))
    found = [LearntOfEngines(router=router, **fields) for router, figures in rows for fields in figures]
    return sorted(found, key=lambda one: (one.quantity, one.router))


async def stored_fit(connection: AsyncConnection, pool_id: int) -> EngineFit | None:
    """Return the fitted engine model that simulations of the pool use; None if there is none."""
    found = (await connection.execute(select(tables.engine_fits.c.fit).where(tables.engine_fits.c.pool_id == pool_id))).scalar_one_or_none()
    return None if found is None else msgspec.convert(found, EngineFit)


async def start_figure(connection: AsyncConnection, pool_id: int, now: datetime) -> Figure:
    """Return the seconds from the creation of an instance until it serves; unknown before any start was observed."""
    found = (await connection.execute(_STARTS, {"pool": pool_id, "now": now})).one()
    if not found.starts:
        return Figure()
    p10, p50, p90 = (max(0.0, float(one)) for one in found.spread)
    spread = Spread(p10=p10, p50=p50, p90=p90)
    return Figure(value=p50, source=Source.MEASURED, spread=spread, samples=int(found.starts), age_seconds=max(0.0, float(found.age)))


def engine_kind(spec: Mapping[str, Any] | None) -> str:
    """Return a text that is equal for specs whose instances run the same engine. Measurements apply only to the engine
    on which they were made.
    """
    spec = spec or {}
    roles = spec.get("roles")
    templates = [one.get("template") for one in roles if isinstance(one, dict)] if isinstance(roles, list) else []
    return xxh3_128_hexdigest(msgspec.json.encode([spec.get("model"), spec.get("engine"), templates], order="sorted"))


def _remembered(row: Any) -> Remembered | None:
    return None if row.measured is None else msgspec.convert(row.measured, Remembered)
