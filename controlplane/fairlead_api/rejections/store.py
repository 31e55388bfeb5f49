"""Reads refused requests by cause for the public API, each cause with its remedy."""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    DateTime,
    Integer,
    Select,
    Table,
    Text,
    any_,
    cast,
    column,
    func,
    select,
    true,
    values,
)

from fairlead.advice.remedy_words import beyond_remedies, beyond_words, is_beyond, rest_words
from fairlead.reports.rejections import FOR_DECODE, FOR_PREFILL, RejectionReason
from fairlead.scaling.remedies import Simulated
from fairlead_api.infra.database import Database
from fairlead_api.infra.paging import BUCKETS, RowsWithin
from fairlead_api.infra.spans import Sight
from fairlead_api.loads.heatmaps import Kept
from fairlead_api.simulations.store.sizings import newest_found
from fairlead_api.tables import load_samples, pool_rollups_1m, pool_rollups_10s, pools, rejections
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport, RejectionSample


def advice(reason: str, found: Simulated | None = None) -> str:
    """Return the remedy for refusals with this reason, in one to three sentences. For an unknown reason, the sentences
    say where to look. If the reason is a lack of instances, the result of the pool's latest simulations (`found`) is
    added.
    """
    try:
        usual = RejectionReason(reason).facts.suggestion
    except ValueError:
        return "Look at the routers' logs for this cause."
    if found is None or reason not in FOR_PREFILL | FOR_DECODE:
        return usual
    if reason in FOR_DECODE or not is_beyond(found):
        return f"{usual} By now {rest_words(found)}."
    beyond = beyond_words(found.reach, found.ttft_seconds)
    return f"{beyond}; {beyond_remedies(found)}. For the other requests: {rest_words(found)}."


SAMPLES = 5
"""Maximum number of refused requests that are shown per cause as samples; the newest requests are shown."""

FINE = timedelta(hours=2)
"""Maximum range of time for which served requests are counted by seconds; for longer ranges, they are counted by whole
minutes.
"""
STEP = timedelta(seconds=10)
UNROLLED = timedelta(seconds=30)
"""Length of the newest part of a range that may not be rolled up yet, and is therefore counted from samples."""

_REASONS = frozenset(RejectionReason)
"""Known reasons for refusals. A row with an unknown reason, stored by a newer version that was rolled back, is left
out.
"""

Cause = tuple[int, str, int, str]
"""The pool's id, the reason, the status and the priority class of a refusal."""

_pool_name = pools.c.namespace + "/" + pools.c.name
_cause = (rejections.c.pool_id, rejections.c.reason, rejections.c.status, rejections.c.priority_class)


class PostgresRejections:
    """Reads refused requests by cause from the database."""

    def __init__(self, database: Database, kept: Kept, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._kept = kept
        self._clock = clock

    async def rejections(
        self, pool: str | None, start: datetime, end: datetime, priority_class: str | None = None, *, sight: Sight = None
    ) -> RejectionReport:
        width = max((end - start).total_seconds() / BUCKETS, 1.0)
        bucket = func.least(func.floor(func.date_part("epoch", rejections.c.second - start) / width), BUCKETS - 1)
        second = rejections.c.second
        figures = (func.sum(rejections.c.count).label("amount"), func.min(second).label("first_at"), func.max(second).label("last_at"))
        async with self._database.reading() as connection:
            names = {row.id: row.name for row in await connection.execute(_pools(pool, sight))}
            within = [_of(rejections, names), second >= start, second < end]
            if priority_class is not None:
                within.append(rejections.c.priority_class == priority_class)
            by_bucket = select(*_cause, bucket.label("bucket"), *figures).where(*within).group_by(*_cause, bucket)
            groups: dict[Cause, list[Any]] = {}
            for row in await connection.execute(by_bucket):
                if row.reason in _REASONS:
                    groups.setdefault(_cause_of(row), []).append(row)
            samples: dict[Cause, list[RejectionSample]] = {}
            for row in await connection.execute(_newest(groups)) if groups else ():
                samples.setdefault(_cause_of(row), []).append(_sample(row))
            simulated = await newest_found(connection, {key[0] for key in groups}, self._clock())
            served = 0
            finest = self._kept.finest(start, self._clock())
            for part in _served(names, start, end, finest):
                served += (await connection.execute(part)).scalar_one()
        total = int(sum(row.amount for rows in groups.values() for row in rows))
        items = [_group(names[key[0]], key, rows, total, samples.get(key, []), simulated.get(key[0])) for key, rows in groups.items()]
        return RejectionReport(
            groups=sorted(items, key=lambda group: (-group.count, group.pool, group.reason, group.priority_class)),
            total=total,
            served=int(served),
        )


def _newest(groups: Mapping[Cause, list[Any]]) -> "Select[Any]":
    """Return a query for the newest refused requests of each cause. Each search goes backwards from the last request of
    the cause, because a cause may have few rows among millions.
    """
    time = DateTime(timezone=True)
    sought = values(
        column("pool_id", BigInteger),
        column("reason", Text),
        column("status", Integer),
        column("priority_class", Text),
        column("first_at", time),
        column("last_at", time),
        name="sought",
    ).data([(*key, min(row.first_at for row in rows), max(row.last_at for row in rows)) for key, rows in groups.items()])
    second = rejections.c.second
    same = (one == sought.c[one.name] for one in _cause)
    rows = select(rejections).where(*same, second >= sought.c.first_at, second <= sought.c.last_at)
    found = RowsWithin(rows.order_by(second.desc()).limit(SAMPLES), lateral=True)
    return found.select(beside=sought.join(found.source, true())).order_by(found.c.second.desc())


def _cause_of(row: Any) -> Cause:
    return row.pool_id, row.reason, row.status, row.priority_class


def _served(of: Collection[int], start: datetime, end: datetime, finest: int) -> Iterator["Select[Any]"]:
    """Yield queries that count completed requests of these pools, each for a part of [start, end). The caller must add
    up their results.

    The queries read pool rollups as far as these exist, and otherwise seconds. Whole minutes are read if the range is
    longer than FINE, or if `finest`, the length in seconds of the shortest records that remain, is above 1.
    """

    def completed(loads: Table, at: "ColumnElement[Any]", first: datetime, last: datetime) -> "Select[Any]":
        return select(func.coalesce(func.sum(loads.c.completed), 0)).where(_of(loads, of), at >= first, at < last)

    if end - start > FINE or finest > 1:
        yield completed(pool_rollups_1m, pool_rollups_1m.c.bucket, start.replace(second=0, microsecond=0), end)
        return
    begun = _whole(start) + (STEP if _whole(start) < start else timedelta(0))
    rolled = max(begun, _whole(end - UNROLLED))
    if rolled > begun:
        yield completed(pool_rollups_10s, pool_rollups_10s.c.bucket, begun, rolled)
    for first, last in ((start, min(begun, end)), (rolled, end)):
        if first < last:
            yield completed(load_samples, load_samples.c.second, first, last)


def _whole(at: datetime) -> datetime:
    """Return a time rounded down to a whole step of length STEP."""
    return at.replace(microsecond=0) - timedelta(seconds=at.second % STEP.seconds)


def _pools(name: str | None, sight: Sight) -> "Select[Any]":
    """Return a query for the ids and names of pools: of the pool with this name, or, if the name is None, of all
    visible pools. Deleted pools are included.
    """
    wanted = select(pools.c.id, _pool_name.label("name"))
    wanted = wanted if name is None else wanted.where(_pool_name == name)
    return wanted if sight is None else wanted.where(pools.c.namespace.in_(sorted(sight)))


def _of(rows: Table, numbers: Collection[int]) -> "ColumnElement[bool]":
    return rows.c.pool_id == any_(cast(sorted(numbers), ARRAY(Integer)))


def _sample(row: Any) -> RejectionSample:
    return RejectionSample(
        at=row.second,
        request=row.sample_request,
        prompt_tokens=row.sample_prompt_tokens,
        retry_after_seconds=row.retry_after_seconds,
        predicted_ttft_seconds=row.predicted_ttft_seconds,
    )


def _group(pool: str, key: Cause, rows: list[Any], total: int, samples: list[RejectionSample], found: Simulated | None) -> RejectionGroup:
    _, reason, status, priority_class = key
    sparkline = [0] * BUCKETS
    for row in rows:
        sparkline[int(row.bucket)] += int(row.amount)
    count = sum(sparkline)
    return RejectionGroup(
        pool=pool,
        reason=RejectionReason(reason),
        status=status,
        priority_class=priority_class,
        count=count,
        share=count / total if total else 0.0,
        first_at=min(row.first_at for row in rows),
        last_at=max(row.last_at for row in rows),
        sparkline=sparkline,
        samples=samples,
        suggestion=advice(reason, found),
    )
