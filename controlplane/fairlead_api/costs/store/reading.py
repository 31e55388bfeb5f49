"""Reads the data for costs and computes the costs. A month of 200 keys has a hundred thousand rows; turning them into a
report would block the event loop, so a thread does it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Table, func, literal, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.costs.allocation import Allocation, Life, Use, Work, allocate, unused
from fairlead.costs.money import HOUR_MICROSECONDS
from fairlead.costs.prices import Price, in_force
from fairlead.instances import Role
from fairlead_api import tables
from fairlead_api.costs.reporting import OTHERS, Sums, report
from fairlead_api.costs.tables import USED
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.spans import Sight
from fairlead_client.resources.costs import CostGroup, CostReport

MOST_SESSIONS = 100
"""Maximum number of sessions with a separate line in a report: the sessions with the most tokens."""

Uses = dict[int, dict[int, list[Use]]]
"""The usage by requests: for each pool's id, and for each hour, the usage of every group of the report."""

_pools = tables.pools
_pool_name = _pools.c.namespace + "/" + _pools.c.name
_GROUPS = {CostGroup.KEY: tables.usage_hours.c.key_id, CostGroup.CLASS: tables.usage_hours.c.priority_class}

_OPEN = text("""
SELECT r.pool_id, r.opened_at AS began, coalesce(r.closed_at, r.closes) AS ended FROM schedule_runs r
WHERE r.pool_id = ANY(:pools) AND r.opened_at < :end AND r.start < :end AND r.start > CAST(:start AS timestamptz) - interval '32 days'
AND coalesce(r.closed_at, r.closes, :end) > :start ORDER BY r.opened_at
""")
"""SQL for the schedule windows that were open in a range. No window is open for more than a month."""

_WANTED = text("""
SELECT w.pool_id, w.role, w.at, w.replicas FROM wanted_replicas w
WHERE w.pool_id = ANY(:pools) AND w.at < :end AND w.at >= coalesce(
  (SELECT max(b.at) FROM wanted_replicas b WHERE b.pool_id = w.pool_id AND b.role = w.role AND b.at <= :start), '-infinity')
ORDER BY w.at
""")
_DECLARED = text("""
SELECT r.pool_id, max(r.at) OVER (PARTITION BY r.pool_id ORDER BY r.number) AS at, r.spec FROM unnest(CAST(:pools AS integer[])) AS p (id), LATERAL (
  SELECT * FROM pool_revisions r WHERE r.pool_id = p.id AND r.at < :end AND r.number >= coalesce(
    (SELECT b.number FROM pool_revisions b WHERE b.pool_id = p.id AND b.at <= :start ORDER BY b.number DESC LIMIT 1), 0)
) r ORDER BY r.pool_id, r.number
""")
"""SQL for the wanted and declared numbers of instances in a range: the last numbers before the range, and every change
within it.
"""

_RATES = text("""
SELECT p.namespace || '/' || p.name AS name, price.currency, sum(price.micros_per_hour) AS micros
FROM instance_lives l JOIN pools p ON p.id = l.pool_id, LATERAL (
  SELECT * FROM (
    (SELECT 1 AS kind, i.micros_per_hour, i.currency FROM instance_prices i WHERE i.pool_id = l.pool_id AND i.role = l.role
     ORDER BY i.since DESC LIMIT 1)
    UNION ALL
    (SELECT 2, m.micros_per_hour, m.currency FROM measured_prices m WHERE m.pool_id = l.pool_id AND m.role = l.role
     AND m.bucket > CAST(:now AS timestamptz) - interval '2 hours'
     ORDER BY m.bucket > CAST(:now AS timestamptz) - interval '20 minutes', m.bucket DESC LIMIT 1)
  ) AS known WHERE known.micros_per_hour IS NOT NULL ORDER BY known.kind LIMIT 1
) price WHERE l.ended_at IS NULL GROUP BY 1, 2
""")
"""SQL for the present cost per hour by pool and currency, at declared prices or at recently measured prices. The price
of an hour that began less than 20 minutes ago may be based on a few seconds, so the price of the hour before takes
precedence.
"""


class PostgresCosts:
    """Reads the data of cost reports from the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(self, by: CostGroup, pool: str | None, start: datetime, end: datetime, *, sight: Sight = None) -> CostReport:
        """Return the cost report of a range of whole hours, of one pool or of all visible pools. Raises NotFound for an
        unknown pool.
        """
        async with self._database.reading() as connection:
            names = {row.id: row.name for row in await connection.execute(_named(pool, sight))}
            if pool is not None and not names:
                raise NotFound("pool", pool)
            uses = await _uses(connection, by, names, start, end)
            lives, prices = await _lives(connection, names, start, end), await _prices(connection, names, start, end)
            work = await _work(connection, names, start, end)

            def allocations() -> Iterator[Allocation]:
                for number in names:
                    used = uses.get(number, {})
                    yield allocate(lives[number], prices[number], work[number], used, microseconds(start), microseconds(end))

            sums = await asyncio.to_thread(_summed, by, allocations())
            for currency, units in await _scheduled(connection, names, start, end):
                sums.scheduled[currency] += units
            labels = await _key_names(connection, sums) if by is CostGroup.KEY else {}
        return await asyncio.to_thread(report, sums, by, start, end, labels)

    async def rates(self, now: datetime) -> dict[tuple[str, str], int]:
        """Return the cost per hour of the instances that exist now, at present prices, in micro-units, by pool and
        currency.
        """
        async with self._database.reading() as connection:
            return {(row.name, row.currency): int(row.micros) for row in await connection.execute(_RATES, {"now": now})}


def _summed(by: CostGroup, allocations: Iterable[Allocation]) -> Sums:
    sums = Sums()
    for one in allocations:
        (sums.add_roles if by is CostGroup.ROLE else sums.add)(one)
    return sums


def microseconds(at: datetime) -> int:
    """Return a time in microseconds since 1970, exactly."""
    return (at - _EPOCH) // timedelta(microseconds=1)


_HOUR = timedelta(hours=1)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _hour(at: datetime) -> int:
    return microseconds(at) // HOUR_MICROSECONDS


def _named(pool: str | None, sight: Sight) -> Any:
    wanted = select(_pools.c.id, _pool_name.label("name"))
    wanted = wanted if pool is None else wanted.where(_pool_name == pool)
    return wanted if sight is None else wanted.where(_pools.c.namespace.in_(sorted(sight)))


async def _lives(connection: AsyncConnection, pools: Iterable[int], start: datetime, end: datetime) -> Mapping[int, list[Life]]:
    lives = tables.instance_lives
    within = lives.c.pool_id.in_(list(pools)), lives.c.began_at < end, lives.c.ended_at.is_(None) | (lives.c.ended_at > start)
    return await asyncio.to_thread(_lives_of, await connection.execute(select(lives).where(*within)))


def _lives_of(rows: Iterable[Any]) -> Mapping[int, list[Life]]:
    found: dict[int, list[Life]] = defaultdict(list)
    for row in rows:
        ended = None if row.ended_at is None else microseconds(row.ended_at)
        found[row.pool_id].append(Life(pod=row.pod, role=Role(row.role), began=microseconds(row.began_at), ended=ended))
    return found


async def _prices(connection: AsyncConnection, pools: Iterable[int], start: datetime, end: datetime) -> Mapping[int, list[Price]]:
    prices, measured = tables.instance_prices, tables.measured_prices
    declared = await connection.execute(select(prices).where(prices.c.pool_id.in_(list(pools)), prices.c.since < end))
    seen = await connection.execute(select(measured).where(*_within(measured, pools, start - _HOUR, end)))
    of_specs = _prices_of((row, row.since, False) for row in declared)
    of_tools = _prices_of((row, row.bucket, True) for row in seen)
    found: dict[int, list[Price]] = defaultdict(list)
    found.update({pool: in_force(of_specs[pool], of_tools[pool]) for pool in {*of_specs, *of_tools}})
    return found


def _prices_of(rows: Iterable[tuple[Any, datetime, bool]]) -> Mapping[int, list[Price]]:
    found: dict[int, list[Price]] = defaultdict(list)
    for row, since, measured in rows:
        amount = {"micros_per_hour": row.micros_per_hour, "currency": row.currency, "measured": measured}
        found[row.pool_id].append(Price(role=Role(row.role), since=microseconds(since), **amount))
    return found


async def _work(
    connection: AsyncConnection, pools: Iterable[int], start: datetime, end: datetime
) -> Mapping[int, Mapping[tuple[Role, int], Work]]:
    work = tables.work_hours
    return await asyncio.to_thread(_work_of, await connection.execute(select(work).where(*_within(work, pools, start, end))))


def _work_of(rows: Iterable[Any]) -> Mapping[int, Mapping[tuple[Role, int], Work]]:
    found: dict[int, dict[tuple[Role, int], Work]] = defaultdict(dict)
    for row in rows:
        busy, prefilling = row.busy_milliseconds * 1000, row.prefilling_milliseconds * 1000
        found[row.pool_id][Role(row.role), _hour(row.bucket)] = Work(busy=busy, prefilling=prefilling)
    return found


def _within(table: Table, pools: Iterable[int], start: datetime, end: datetime) -> tuple["ColumnElement[bool]", ...]:
    return table.c.pool_id.in_(list(pools)), table.c.bucket >= start, table.c.bucket < end


async def _uses(connection: AsyncConnection, by: CostGroup, names: Mapping[int, str], start: datetime, end: datetime) -> Uses:
    """Return the usage of pools, divided by the groups of the report. If the report is not divided among requests, a
    pool's usage is one group.
    """
    if by is CostGroup.SESSION:
        return await _of_sessions(connection, names, start, end)
    usage = tables.usage_hours
    group: Any = _GROUPS.get(by, literal(""))
    query = select(usage.c.pool_id, usage.c.bucket, group.label("group"), *_sums(usage)).where(*_within(usage, names, start, end))
    rows = await connection.execute(query.group_by(usage.c.pool_id, usage.c.bucket, group))
    return await asyncio.to_thread(_grouped, rows, lambda row: names[row.pool_id] if by is CostGroup.POOL else row.group)


async def _of_sessions(connection: AsyncConnection, names: Mapping[int, str], start: datetime, end: datetime) -> Uses:
    """Return the usage of the sessions with the most tokens, each as one group, and of all other sessions together."""
    usage = tables.session_usage_hours
    within = _within(usage, names, start, end)
    tokens = func.sum(usage.c.prefill_tokens + usage.c.output_tokens)
    most = select(usage.c.pool_id, usage.c.session).where(*within, usage.c.session != "").group_by(usage.c.pool_id, usage.c.session)
    chosen = most.order_by(tokens.desc(), usage.c.pool_id, usage.c.session).limit(MOST_SESSIONS).subquery()
    beside = usage.outerjoin(chosen, (chosen.c.pool_id == usage.c.pool_id) & (chosen.c.session == usage.c.session))
    own = chosen.c.session.is_not(None).label("own")
    query = select(usage.c.pool_id, usage.c.bucket, chosen.c.session.label("group"), own, *_sums(usage)).select_from(beside).where(*within)
    rows = await connection.execute(query.group_by(usage.c.pool_id, usage.c.bucket, chosen.c.session, own))
    return await asyncio.to_thread(_grouped, rows, lambda row: f"{names[row.pool_id]}/{row.group}" if row.own else OTHERS)


def _sums(usage: Table) -> list[Any]:
    return [func.sum(usage.c[name]).label(name) for name in USED]


def _grouped(rows: Iterable[Any], name: Callable[[Any], str]) -> Uses:
    found: Uses = defaultdict(lambda: defaultdict(list))
    for row in rows:
        use = Use(group=name(row), **{one: int(getattr(row, one)) for one in USED})
        found[row.pool_id][_hour(row.bucket)].append(use)
    for hours in found.values():
        for of_hour in hours.values():
            of_hour.sort(key=lambda one: one.group)
    return found


async def _scheduled(connection: AsyncConnection, names: Mapping[int, str], start: datetime, end: datetime) -> Sequence[tuple[str, int]]:
    """Return the savings by schedules in a range, in currency units, by currency. While a window of a schedule was
    open, the pool wanted fewer instances than declared; the price of each instance fewer was saved.
    """
    windows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in await connection.execute(_OPEN, {"pools": list(names), "start": start, "end": end}):
        windows[row.pool_id].append((microseconds(row.began), microseconds(row.ended or end)))
    if not windows:
        return ()
    changes: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for row in await connection.execute(_WANTED, {"pools": list(windows), "start": start, "end": end}):
        changes[row.pool_id, row.role].append((microseconds(row.at), row.replicas))
    declared: dict[int, list[tuple[int, Mapping[str, Any]]]] = defaultdict(list)
    for row in await connection.execute(_DECLARED, {"pools": list(windows), "start": start, "end": end}):
        declared[row.pool_id].append((microseconds(row.at), row.spec))
    prices = await _prices(connection, windows, start, end)
    return await asyncio.to_thread(_unused, windows, changes, declared, prices, microseconds(start), microseconds(end))


def _unused(
    windows: Mapping[int, list[tuple[int, int]]],
    changes: Mapping[tuple[int, str], list[tuple[int, int]]],
    declared: Mapping[int, list[tuple[int, Mapping[str, Any]]]],
    prices: Mapping[int, list[Price]],
    start: int,
    end: int,
) -> list[tuple[str, int]]:
    return [
        saved
        for (pool, role), numbers in changes.items()
        for saved in unused(
            windows[pool],
            numbers,
            [(at, _declared(spec, role)) for at, spec in declared[pool]],
            [one for one in prices[pool] if one.role == role],
            start,
            end,
        )
    ]


def _declared(spec: Mapping[str, Any], role: str) -> int:
    """Return the number of a role's instances that a stored spec declares."""
    if role == Role.BOTH:
        return int(spec.get("replicas", 1))
    found = next((one for one in spec.get("roles") or () if isinstance(one, Mapping) and one.get("name") == role), {})
    return int(found.get("replicas") or max(1, found.get("minReplicas") or 0))


async def _key_names(connection: AsyncConnection, sums: Sums) -> dict[str, str]:
    keys = tables.gateway_keys
    wanted = {name for _, name in sums.lines if name}
    rows = await connection.execute(select(keys.c.id, keys.c.name).where(keys.c.id.in_(sorted(wanted))))
    return {row.id: row.name for row in rows}
