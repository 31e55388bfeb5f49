"""Reads the situations of pools: the facts of all pools, the signals of pools that miss their objectives, and the
active alerts on error budgets. Also reads trends of visible pools over a range: requests in time, refused and failed
requests, and instance hours.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.advice.situations import PoolSituation, SeenBurn, SeenInstance, SeenMinutes, SeenSilentRouter
from fairlead.instances import InstanceState, Role
from fairlead.latency_cells import latency_within
from fairlead.range_steps import Covered, rollup_of
from fairlead.reports.engines import EngineTrouble
from fairlead.scaling.remedies import measured_reach
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.advice.asking import Situations, loads
from fairlead_api.advice.store import statements
from fairlead_api.advice.store.rows import Traffic, declared, mirrored, situation, traffic_of
from fairlead_api.advice.store.statements import HOURS, MINUTES, PERCENTILES
from fairlead_api.infra.database import Database
from fairlead_api.infra.pool_rows import pool_row, slo_of
from fairlead_api.infra.spans import Sight
from fairlead_api.loads.store.rollups import complete_until
from fairlead_api.pools.store.observations import live_routers
from fairlead_api.scaling.signals import PresentInstance, pool_signals
from fairlead_api.scaling.store import Measuring
from fairlead_api.series.reading import Subject
from fairlead_api.series.store.figures import FLEET_PERCENTILE, read_figures
from fairlead_api.series.store.series import pools_of
from fairlead_api.simulations.store.sizings import sizings
from fairlead_api.slo.budgets import ALERTS, WINDOWS, Counts, Kept, alerts, burn_window, by_version
from fairlead_api.slo.reading import stretch_of
from fairlead_client.resources.advice import PoolTrend, Trends
from fairlead_client.resources.figures import RangeFigures

_BY_MINUTES = tuple(sorted({name for alert in ALERTS for name in (alert.long, alert.short)} - {"3d"}, key=WINDOWS.__getitem__))


async def burns_of(
    connection: AsyncConnection, pools: Sequence[int], percentiles_now: Mapping[int, float], now: datetime
) -> dict[int, tuple[SeenBurn, ...]]:
    """Return burn rates by pool. Their windows begin at the same times as the windows of the pool's SLO page."""
    starts = {name: _start(name, now) for name in _BY_MINUTES}
    values = {"pools": pools, "names": list(starts), "starts": list(starts.values()), "earliest": min(starts.values())}
    kept: dict[tuple[int, str], list[Kept]] = defaultdict(list)
    for row in await connection.execute(MINUTES, values):
        kept[row.pool_id, row.window].append(_kept(row.slo_version, row.judged, row.within_slo))
    for row in await connection.execute(HOURS, {"pools": pools, "start": _start("3d", now)}):
        kept[row.pool_id, "3d"].append(_kept(row.slo_version, row.judged, row.within_slo))
    of_versions: dict[int, dict[int, float]] = defaultdict(dict)
    for row in await connection.execute(PERCENTILES, {"pools": pools}):
        of_versions[row.pool_id][row.version] = row.percentile
    found = {}
    for pool in pools:
        windows = {name: burn_window(name, None, kept[pool, name], by_version(of_versions[pool])) for name in (*_BY_MINUTES, "3d")}
        found[pool] = tuple(
            SeenBurn(
                name=alert.name,
                seconds=float(windows[alert.long].seconds),
                burn=windows[alert.long].burn or 0.0,
                threshold=alert.threshold,
                excess_per_second=max(0.0, windows[alert.long].late - windows[alert.long].allowed) / windows[alert.long].seconds,
            )
            for alert in alerts(windows.values(), percentiles_now[pool])
            if alert.burning
        )
    return found


def _start(window: str, now: datetime) -> datetime:
    return stretch_of(now - timedelta(seconds=WINDOWS[window]), now, now).start


def _kept(version: int, judged: int, within: int) -> Kept:
    return Kept(version=version, priority_class="", counts=Counts(judged=judged, within_slo=within))


MOST_POOLS = 500
MOST_MEASURED = 8
"""Maximum number of pools whose signals are measured for one response: the pools with the most missed objectives. Each
pool needs an SQL statement.
"""


class PostgresSituations:
    """Implements `advice.asking.SituationReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._measuring = Measuring()

    async def situations(self, pool: PoolKey | None, now: datetime) -> Situations:
        async with self._database.reading() as connection:
            rows = [await pool_row(connection, pool)] if pool is not None else await _all(connection)
            seen, rows = rows[MOST_POOLS:] == [], rows[:MOST_POOLS]
            found = await _read(connection, rows, now) if rows else {}
            worst = sorted((row for row in rows if found[row.id].missed), key=lambda row: -found[row.id].per_second(found[row.id].missed))
            for row in worst[:MOST_MEASURED]:
                found[row.id] = await self._measured(connection, row, found[row.id], now)
        return Situations(window_seconds=float(statements.WINDOW_SECONDS), pools=[found[row.id] for row in rows], complete=seen)

    async def _measured(self, connection: AsyncConnection, row: Any, seen: PoolSituation, now: datetime) -> PoolSituation:
        """Return the situation, completed with the pool's signals, the load of each instance, and the number of
        sessions on each instance.
        """
        facts = mirrored(row)
        if facts is None or not seen.live_routers:
            return seen
        alone = (await connection.execute(statements.ALONE, {"pool": row.id, "now": now})).all()
        ttft, goal = seen.slo.ttft_seconds, seen.slo.percentile / 100
        seen = replace(seen, measured=measured_reach([one.alone for one in alone], [float(one.weight) for one in alone], ttft, goal))
        measured = await self._measuring.read(connection, row.id, now)
        routers = await live_routers(connection, row.id)
        present = [
            PresentInstance(
                id=one.id,
                role=one.role,
                state=one.state,
                in_flight=sum(router.in_flight.get(one.id, 0) for router in routers),
                waiting=sum(router.waiting.get(one.id, 0) for router in routers),
            )
            for one in seen.instances
        ]
        signals = pool_signals(measured, present, facts.table, now.timestamp())
        if signals is None:
            return seen
        of_instances = loads(measured, {one.id: one.role for one in seen.instances}, signals, facts.table)
        counted = await connection.execute(statements.SESSIONS, {"pool": row.id, "names": [one.id for one in seen.instances]})
        bound = {one.instance: int(one.bound) for one in counted}
        return replace(
            seen,
            signals=signals,
            instances=tuple(replace(one, load=of_instances.get(one.id), sessions=bound.get(one.id, 0)) for one in seen.instances),
        )


async def _all(connection: AsyncConnection) -> list[Any]:
    pools = tables.pools
    query = select(pools).where(pools.c.deleted_at.is_(None)).order_by(pools.c.namespace, pools.c.name)
    return list(await connection.execute(query.limit(MOST_POOLS + 1)))


async def _read(connection: AsyncConnection, rows: Sequence[Any], now: datetime) -> dict[int, PoolSituation]:
    ids = [row.id for row in rows]
    lately: dict[str, Any] = {"pools": ids, "now": now}
    routed: dict[str, Any] = {"keys": [str(one) for one in ids]}
    complete = await complete_until(connection, ids, now)
    judged: dict[str, Any] = {**lately, "pools": [one for one in ids if one not in complete]}
    allowed = {row.id: 1 - slo_of(row).percentile / 100 for row in rows}
    traffic: dict[int, Traffic] = defaultdict(dict)
    minutes: dict[tuple[int, str], SeenMinutes] = {}
    for row in await connection.execute(statements.TRAFFIC, {**judged, "allowed": [allowed[one] + 1e-9 for one in judged["pools"]]}):
        traffic[row.pool_id][row.instance] = traffic_of(row)
        minutes[row.pool_id, row.instance] = SeenMinutes(had=row.minutes, late=row.late_minutes, failing=row.failing_minutes)
    refused: dict[int, dict[str, int]] = defaultdict(dict)
    for row in await connection.execute(statements.REFUSED, judged):
        refused[row.pool_id][row.reason] = row.refused
    losses: dict[int, dict[str, int]] = defaultdict(dict)
    for row in await connection.execute(statements.LOSSES, lately):
        losses[row.pool_id][row.instance] = row.losses
    troubles: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    stalled_ranks: dict[tuple[str, str], tuple[int, ...]] = {}
    for row in await connection.execute(statements.TROUBLED, routed):
        troubles[row.pool, row.instance][row.trouble] = row.seconds
        if row.trouble == EngineTrouble.ENGINE_STALLED and all(row.ranks):  # no router finds all of the engine stalled
            stalled_ranks[row.pool, row.instance] = tuple(sorted({rank for ranks in row.ranks for rank in ranks}))
    instances: dict[int, list[SeenInstance]] = defaultdict(list)
    for row in await connection.execute(statements.INSTANCES, {"pools": ids}):
        one = SeenInstance(
            id=row.id,
            role=Role(row.role),
            state=InstanceState(row.state),
            reason=row.reason,
            weight=row.weight,
            losses=losses[row.pool_id].get(row.id, 0),
            troubles=troubles.get((str(row.pool_id), row.id), {}),
            stalled_ranks=stalled_ranks.get((str(row.pool_id), row.id), ()),
            minutes=minutes.get((row.pool_id, row.id), SeenMinutes()),
        )
        seen = traffic[row.pool_id].pop(row.id, None)
        instances[row.pool_id].append(one if seen is None else replace(one, served=seen))
    advised: dict[int, list[Any]] = defaultdict(list)
    for row in await connection.execute(statements.ADVISED, lately):
        advised[row.pool_id].append(row)
    failed = {row.pool_id: row.failed for row in await connection.execute(statements.FAILED, judged)}
    moves = {row.pool_id: row for row in await connection.execute(statements.MOVES, lately)}
    routers = {row.pool: row for row in await connection.execute(statements.ROUTERS, routed)}
    silent: dict[str, list[SeenSilentRouter]] = defaultdict(list)
    for row in await connection.execute(statements.SILENT_ROUTERS, routed):
        requests, joined = int(row.requests), int(row.joined_since)
        silent[row.pool].append(SeenSilentRouter(name=row.name, seconds=float(row.seconds), requests=requests, joined_since=joined))
    apart: dict[str, dict[str, int]] = defaultdict(dict)
    for row in await connection.execute(statements.APART, routed):
        apart[row.pool][row.why] = row.routers
    learnt = {row.pool: row for row in await connection.execute(statements.LEARNT, routed)}
    figures: dict[str, list[Any]] = defaultdict(list)
    for row in await connection.execute(statements.FIGURES, routed):
        figures[row.pool].append(row)
    models = {row.pool_id: row.figures for row in await connection.execute(statements.MODELS, lately)}
    sized = await sizings(connection, {row.id: slo_of(row) for row in rows}, now)
    burns = await burns_of(connection, ids, {row.id: slo_of(row).percentile for row in rows}, now)
    return {
        row.id: situation(
            row,
            declared(row),
            now,
            instances=tuple(instances[row.id]),
            gone=traffic[row.id],
            refused=refused[row.id],
            failed=failed.get(row.id, 0),
            moves=moves.get(row.id),
            advised=advised[row.id],
            routers=routers.get(str(row.id)),
            silent_routers=tuple(silent[str(row.id)]),
            apart=apart[str(row.id)],
            learnt=learnt.get(str(row.id)),
            figures=figures[str(row.id)],
            model=models.get(row.id),
            burns=burns[row.id],
            behind=(now - complete[row.id]).total_seconds() if row.id in complete else 0.0,
            sizing=sized.get(row.id),
        )
        for row in rows
    }


_COUNTS = ("judged", "in_time", "refused", "failed")
_SEEN = """
SELECT pool_id, CAST(floor(extract(epoch FROM bucket - :start) / :step) AS integer) AS step, {columns}
FROM {table} WHERE pool_id = ANY(:pools) AND bucket >= :start AND bucket < :end
"""
_COUNTED = """
SELECT pool_id, step, CAST(sum(judged) AS bigint) AS judged, CAST(sum(within_slo) AS bigint) AS in_time,
  CAST(sum(refused) AS bigint) AS refused, CAST(sum(failed) AS bigint) AS failed FROM ({seen}) s GROUP BY pool_id, step
"""
_LATENCIES = """
WITH seen AS ({seen}), each AS (
  SELECT s.pool_id, s.step, c.cell / 256 AS ttft, sum(c.requests) AS requests
  FROM seen s, unnest(s.cells, s.counts) AS c (cell, requests)
  GROUP BY GROUPING SETS ((s.pool_id, s.step, c.cell / 256), (s.step, c.cell / 256))
), added AS (
  SELECT *, sum(requests) OVER (PARTITION BY pool_id, step ORDER BY ttft) AS until, sum(requests) OVER (PARTITION BY pool_id, step) AS whole
  FROM each
)
SELECT DISTINCT ON (a.pool_id, a.step) a.pool_id, a.step, a.ttft,
  CAST((coalesce(wanted.share, :fleet) * a.whole - (a.until - a.requests)) / a.requests AS float8) AS part FROM added a
LEFT JOIN unnest(CAST(:pools AS integer[]), CAST(:shares AS float8[])) AS wanted (id, share) ON wanted.id = a.pool_id
WHERE a.until >= coalesce(wanted.share, :fleet) * a.whole ORDER BY a.pool_id, a.step, a.ttft
"""
_HOURS = text("""
SELECT pool_id, sum(greatest(0, extract(epoch FROM least(coalesce(gone_at, :end), :end) - greatest(created_at, :start)))) / 3600 AS hours
FROM instances WHERE pool_id = ANY(:pools) AND created_at < :end AND (gone_at IS NULL OR gone_at > :start) GROUP BY pool_id
""")


class PostgresTrends:
    """Reads trends from the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def trends(self, where: Covered, step_seconds: int, now: datetime, sight: Sight = None) -> Trends:
        """Return trends of all visible pools, in whole steps that cover the range `where`."""
        pools, start, end = tables.pools, where.start, min(where.end, now)
        steps = max(1, math.ceil((where.end - start).total_seconds() / step_seconds))
        counts: dict[int, list[list[int]]] = defaultdict(lambda: [[0] * steps for _ in _COUNTS])
        ttfts: dict[int | None, list[float | None]] = defaultdict(lambda: [None] * steps)
        async with self._database.reading() as connection:
            query = select(pools).where(pools.c.deleted_at.is_(None)).order_by(pools.c.namespace, pools.c.name).limit(MOST_POOLS)
            if sight is not None:
                query = query.where(pools.c.namespace.in_(sorted(sight)))
            rows = (await connection.execute(query)).all()
            values: dict[str, Any] = {"pools": [row.id for row in rows], "start": start, "end": end}
            table = f"slo_rollups_{rollup_of(where.seconds)}"
            counted = _COUNTED.format(seen=_SEEN.format(table=table, columns="judged, within_slo, refused, failed"))
            for row in await connection.execute(text(counted), {**values, "step": step_seconds}):
                for place, name in enumerate(_COUNTS):
                    counts[row.pool_id][place][row.step] = getattr(row, name)
            shares = [slo_of(row).percentile / 100 for row in rows]
            latencies = _LATENCIES.format(seen=_SEEN.format(table=table, columns="cells, counts"))
            more = {"step": step_seconds, "shares": shares, "fleet": FLEET_PERCENTILE / 100}
            for row in await connection.execute(text(latencies), {**values, **more}):
                ttfts[row.pool_id][row.step] = latency_within(row.ttft, row.part)
            hours = {row.pool_id: float(row.hours) for row in await connection.execute(_HOURS, values)}
            ever = await pools_of(connection, Subject(sight=sight))
            percentiles = {row.id: slo_of(row).percentile for row in rows}
            figures = await read_figures(connection, ever, percentiles, where, now)
        found = [
            _trend(f"{row.namespace}/{row.name}", counts[row.id], ttfts[row.id], hours.get(row.id, 0.0), figures[row.id]) for row in rows
        ]
        sums = [_added((counts[row.id][place] for row in rows), steps) for place in range(len(_COUNTS))]
        fleet = _trend("", sums, ttfts[None], sum(hours.values()), figures[None])
        return Trends(start=start, end=end, step_seconds=step_seconds, fleet=fleet, pools=found)


def _added(series: Iterable[list[int]], steps: int) -> list[int]:
    total = [0] * steps
    for one in series:
        total = [before + value for before, value in zip(total, one, strict=True)]
    return total


def _trend(pool: str, counts: list[list[int]], ttfts: list[float | None], hours: float, figures: RangeFigures) -> PoolTrend:
    judged, in_time, refused, failed = counts
    return PoolTrend(
        pool=pool,
        judged=judged,
        in_time=in_time,
        refused=refused,
        failed=failed,
        ttft_seconds=ttfts,
        instance_hours=hours,
        figures=figures,
    )
