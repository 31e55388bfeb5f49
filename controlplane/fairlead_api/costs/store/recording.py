"""Records the data that costs are computed from, inside the transactions that store reports."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Table, func, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import InstanceState
from fairlead.pool_states import InstanceReport
from fairlead.pools import PoolSpec
from fairlead.reports.usage import PoolUsage
from fairlead.tables import PoolKey
from fairlead_api.costs.tables import USED, instance_lives, instance_prices, session_usage_hours, usage_hours
from fairlead_api.infra.database import moment
from fairlead_api.infra.records import bound, recordset

HOUR_SECONDS = 3600


async def note_lives(connection: AsyncConnection, pool_id: int, reports: Sequence[InstanceReport], now: datetime) -> None:
    """Record lives of instances. A *life* is the time in which a pod was an instance of one role.

    Begins lives for new pods, and ends the lives of pods that are no longer reported. For a pod with a new role, it
    ends one life and begins another. A life begins when its pod was created, and its length is never negative, even if
    clocks differ.
    """
    lives = instance_lives
    open_ = await connection.execute(select(lives).where(lives.c.pool_id == pool_id, lives.c.ended_at.is_(None)))
    alive = {row.pod: row for row in open_}
    reported = {report.pod_uid or report.id: report for report in reports if report.state is not InstanceState.GONE}
    over = [pod for pod, row in alive.items() if pod not in reported or reported[pod].role.value != row.role]
    if over:
        ended = func.greatest(lives.c.began_at, now)
        which = (lives.c.pool_id == pool_id) & lives.c.pod.in_(over) & lives.c.ended_at.is_(None)
        await connection.execute(update(lives).where(which).values(ended_at=ended))
    new = [pod for pod in reported if pod not in alive or pod in over]
    if new:
        await _begin(connection, pool_id, {pod: reported[pod] for pod in new}, now)


async def _begin(connection: AsyncConnection, pool_id: int, reports: Mapping[str, InstanceReport], now: datetime) -> None:
    """Begin lives of instances. If the pod had an earlier life, the new life begins where the earlier one ended."""
    lives = instance_lives
    former = select(lives.c.pod, func.max(lives.c.ended_at)).where(lives.c.pool_id == pool_id, lives.c.pod.in_(list(reports)))
    ends: dict[str, datetime | None] = {row.pod: row[1] for row in await connection.execute(former.group_by(lives.c.pod))}
    rows = [
        {
            "pool_id": pool_id,
            "pod": pod,
            "began_at": ends.get(pod) or min(moment(report.created_at), now),
            "instance": report.id,
            "role": report.role.value,
        }
        for pod, report in sorted(reports.items())
    ]
    row = upsert(lives)
    again = row.on_conflict_do_update(index_elements=["pool_id", "pod", "began_at"], set_={"ended_at": None, "role": row.excluded.role})
    await connection.execute(again, rows)


async def note_prices(connection: AsyncConnection, pool_id: int, spec: PoolSpec, now: datetime) -> None:
    """Store the prices that a new revision of the spec changed. A price applies from `now` on. If a stored price of the
    role begins after `now`, because a clock was set back, the new price replaces it.
    """
    prices = instance_prices
    stored = await connection.execute(select(prices).where(prices.c.pool_id == pool_id).order_by(prices.c.since))
    known = {row.role: row for row in stored}  # the newest of each role
    wanted = {role.name.value: spec.price_of(role) for role in spec.roles}
    for role in sorted({*known, *wanted}):
        micros, currency = wanted.get(role) or (None, "")
        before = known.get(role)
        if (micros, currency) == (None, "") and before is None:
            continue
        if before is None or (before.micros_per_hour, before.currency) != (micros, currency):
            since = now if before is None else max(now, before.since)
            values = {"micros_per_hour": micros, "currency": currency}
            row = upsert(prices).values(pool_id=pool_id, role=role, since=since, **values)
            await connection.execute(row.on_conflict_do_update(index_elements=["pool_id", "role", "since"], set_=values))


def _adding(table: Table) -> Any:
    """Return a statement that adds the values of new rows to the values of the stored rows with the same key."""
    keys = [column.name for column in table.primary_key]
    sent = recordset([*(table.c[name] for name in keys), *(table.c[name] for name in USED)])
    given = select(*(sent.c[name] for name in keys), *(func.sum(sent.c[name]) for name in USED))
    ordered = given.group_by(*(sent.c[name] for name in keys)).order_by(*(sent.c[name] for name in keys))
    row = upsert(table).from_select([*keys, *USED], ordered)
    return row.on_conflict_do_update(index_elements=keys, set_={name: table.c[name] + row.excluded[name] for name in USED})


_ADD = tuple((table, _adding(table)) for table in (usage_hours, session_usage_hours))


async def save_usage(connection: AsyncConnection, rows: Sequence[PoolUsage], ids: Mapping[PoolKey, int]) -> None:
    """Add the requests' usage to the stored usage. The caller must pass each report only once. Rows of unknown pools
    are skipped.
    """
    sent = [
        {
            "pool_id": ids[row.pool],
            "bucket": moment(row.minute - row.minute % HOUR_SECONDS),
            "key_id": row.key,
            "priority_class": row.priority_class,
            "session": row.session,
            **{name: getattr(row, name) for name in USED},
        }
        for row in rows
        if row.pool in ids
    ]
    if sent:
        for table, statement in _ADD:
            names = {column.name for column in table.columns}
            await connection.execute(statement, bound([{name: one[name] for name in one if name in names} for one in sent]))


_WORK = text("""
INSERT INTO work_hours (pool_id, bucket, role, busy_milliseconds, prefilling_milliseconds)
SELECT r.pool_id, :start, i.role, sum(r.busy_seconds) * 1000, CAST(sum(r.prefilling_seconds) * 1000 AS bigint)
FROM load_rollups_1m r JOIN instances i ON i.pool_id = r.pool_id AND i.id = r.instance
WHERE r.pool_id = :pool AND r.bucket >= :start AND r.bucket < :end GROUP BY r.pool_id, i.role
ON CONFLICT (pool_id, bucket, role) DO UPDATE
SET busy_milliseconds = excluded.busy_milliseconds, prefilling_milliseconds = excluded.prefilling_milliseconds
""")


async def roll_up_work(connection: AsyncConnection, buckets: Sequence[tuple[int, datetime]]) -> None:
    """Recompute the busy time of the hours that contain `buckets`, from rollups by minute. Each bucket is a pool's id
    and a time.
    """
    for pool, hour in sorted({(pool, at.replace(minute=0, second=0, microsecond=0)) for pool, at in buckets}):
        await connection.execute(_WORK, {"pool": pool, "start": hour, "end": hour + timedelta(hours=1)})
