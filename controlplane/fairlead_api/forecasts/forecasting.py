"""Use cases: the forecast of a pool for people, the schedules proposed from the forecast, and the check whether demand
follows the forecast.

A forecast is made once for each local day and spec, and then kept. Its slow part is the replay of the last week, which
runs in the background. The first reader therefore gets the forecast at once, and the results of the replay later.
"""

import asyncio
import logging
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Protocol

from fairlead.forecasts.drafting import PREFIX, RoleLimits
from fairlead.forecasts.proposals import Forecasted, Proposed, Tried, departed, differs, is_stale, proposed, read_all, tried
from fairlead.forecasts.records import QUARTER, WEEK, DemandRecord, midnight
from fairlead.forecasts.watching import Departure
from fairlead.scaling.bounds import DeclaredRole, RoleBounds, bounds_in_force
from fairlead.scaling.specs import ScalingMode
from fairlead.schedules.in_force import in_force
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import changes_after
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import StoreUnavailable
from fairlead_client.resources.forecasts import ForecastQuarter, PoolForecast, RecordedQuarter, ScheduleTrial, TrialOf
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest, ScheduleAction
from fairlead_client.resources.plans import Proposal

_log = logging.getLogger(__name__)

MOST_KEPT = 64
RETRY = timedelta(minutes=10)
"""Time from the beginning of a replay that failed until the replay may be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPool:
    """A pool's demand record and the other facts for its forecast. `key` changes when the pool or its measurements
    change.
    """

    key: tuple[object, ...]
    pool: PoolKey
    record: DemandRecord
    facts: Forecasted
    start_is_measured: bool
    engines_file: str | None
    departed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedPool:
    """A pool whose forecast is in use: proposals are made from it, or schedules in force follow it."""

    id: int
    pool: PoolKey
    advises: bool
    follows: bool
    departed: str | None


class Records(Protocol):
    """The source of pools' demand records."""

    async def followed(self) -> Sequence[FollowedPool]: ...

    async def read(self, pool: PoolKey, now: datetime) -> ReadPool | None: ...

    async def note_departure(self, pool: FollowedPool, words: str | None, now: datetime) -> None: ...


@dataclass(slots=True)
class _Made:
    """A pool's forecast for a day, and its newest replay, which began at `began`."""

    found: Proposed | str
    trying: asyncio.Task[Tried] | None = None
    began: datetime | None = None
    tried: Tried | None = None

    def is_due(self, now: datetime) -> bool:
        """Return whether a replay should begin: no replay has begun yet, or the newest replay failed and began at least
        RETRY ago.
        """
        if self.trying is None or self.began is None:
            return True
        return self.trying.done() and self.tried is None and now - self.began >= RETRY


@dataclass(slots=True)
class Forecasting:
    """Makes forecasts of pools and keeps the newest forecasts."""

    records: Records
    _made: dict[Hashable, _Made] = field(default_factory=dict)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def forecast(self, pool: PoolKey, now: datetime) -> PoolForecast:
        """Return the forecast of a pool. Raises NotFound."""
        read = await self.records.read(pool, now)
        if read is None:
            return PoolForecast(pool=str(pool), mode="Disabled", time_zone="UTC", unknown="the pool has no usable spec")
        made = await self._of(read, now)
        if isinstance(made.found, Proposed):
            self._replay(read, made.found, made, now)
        return pool_forecast(read, made.found, made.tried, now)

    async def _of(self, read: ReadPool, now: datetime) -> _Made:
        key = (read.key, midnight(now, read.facts.forecast.time_zone))
        if key not in self._made:
            found = await asyncio.to_thread(proposed, read.record, read.facts, now)
            while len(self._made) >= MOST_KEPT:
                self._made.pop(next(iter(self._made)))
            self._made.setdefault(key, _Made(found))
        return self._made[key]

    def _replay(self, read: ReadPool, found: Proposed, made: _Made, now: datetime) -> asyncio.Task[Tried]:
        """Return the newest replay of the last week; starts one first if it is due."""
        if made.trying is None or made.is_due(now):
            made.trying, made.began = asyncio.create_task(self._try(read, found, made, now)), now
            made.trying.add_done_callback(partial(_log_failure, read.pool))
        return made.trying

    async def _try(self, read: ReadPool, found: Proposed, made: _Made, now: datetime) -> Tried:
        async with self._one_at_a_time:
            made.tried = await asyncio.to_thread(tried, read.record, read.facts, found.carried, now)
            return made.tried

    def owns(self, request: PlanRequest) -> bool:
        """Return whether a plan's request was made from a forecast."""
        return request.kind is PlanKind.SCHEDULE and (request.fields or {}).get("action") == ScheduleAction.REPLACE

    async def proposals(self, now: datetime) -> tuple[Sequence[tuple[str, Proposal]], Sequence[str]]:
        """Return the present proposals of schedules, each with its pool, and the names of the examined pools. A pool
        whose examination failed is not among the examined pools.
        """
        wanted: list[tuple[str, Proposal]] = []
        known: list[str] = []
        for one in await self.records.followed():
            with _apart(one.pool):
                read = await self.records.read(one.pool, now)
                proposal = None if read is None or not one.advises else await self._proposal(read, now)
                known.append(str(one.pool))
                wanted += [] if proposal is None else [(str(one.pool), proposal)]
        return wanted, known

    async def _proposal(self, read: ReadPool, now: datetime) -> Proposal | None:
        made = await self._of(read, now)
        if not isinstance(made.found, Proposed) or read.engines_file is not None:
            return None
        if made.tried is None:
            await self._replay(read, made.found, made, now)
        return None if made.tried is None else proposal_of(read.facts, made.found, made.tried, now)

    async def watch(self, now: datetime) -> None:
        """Record, for each pool that follows a forecast, whether demand has departed from the forecast."""
        for one in await self.records.followed():
            with _apart(one.pool):
                words = await self._departed(one, now) if one.follows else None
                if words != one.departed:
                    await self.records.note_departure(one, words, now)

    async def _departed(self, one: FollowedPool, now: datetime) -> str | None:
        read = await self.records.read(one.pool, now)
        left: Departure | None = None if read is None else await asyncio.to_thread(departed, read.record, read.facts, now)
        return None if left is None else left.words


@contextmanager
def _apart(pool: PoolKey) -> Iterator[None]:
    """Run the block, which concerns one pool, and log an error instead of raising it, so that other pools are not
    affected. Raises StoreUnavailable.
    """
    try:
        yield
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a pool's record makes fail
        _log.error("forecast failed", exc_info=error, extra={"pool": str(pool)})


def _log_failure(pool: PoolKey, replay: asyncio.Task[Tried]) -> None:
    error = None if replay.cancelled() else replay.exception()
    if error is not None:
        _log.error("replay of a forecast failed", exc_info=error, extra={"pool": str(pool)})


def proposal_of(facts: Forecasted, found: Proposed, result: Tried, now: datetime) -> Proposal | None:
    """Return the proposal to replace the pool's schedules by the schedules `found`. None if both are equal. Also None
    if the replacement would help too little, unless the pool has schedules from an earlier forecast that are out of
    date.
    """
    if not differs(found.schedules, facts.schedules):
        return None
    present = [one for one in facts.schedules if one.follows_forecast]
    dated = any(one.day >= now.date() and one.day < (now + WEEK).date() for one in facts.forecast.calendar)
    if result.is_worth_it or (present and (dated or is_stale(present, now))):
        return Proposal(because=because(result, len(found.schedules)), request=request_of(found))
    return None


def request_of(found: Proposed) -> PlanRequest:
    """Return the request for a plan that removes the pool's schedules that come from an earlier forecast, and adds the
    proposed schedules.
    """
    fields = {"name": PREFIX, "action": ScheduleAction.REPLACE.value, "schedules": list(found.schedules)}
    return PlanRequest(kind=PlanKind.SCHEDULE, fields=fields)


def because(result: Tried, schedules: int) -> str:
    """Return the reason for a proposal: a comparison of the last week with and without the proposed schedules."""
    now, then = result.present, result.proposed
    return (
        f"In the last week, {schedules} schedule{'s' if schedules != 1 else ''} from the forecast of the week before would have had "
        f"{_late(then.late, then.requests)} late requests instead of {_late(now.late, now.requests)}, with "
        f"{then.instance_hours:,.0f} instance hours instead of {now.instance_hours:,.0f}"
    )


def _late(late: float, requests: float) -> str:
    return f"{100 * late / requests:.2f} %" if requests else "no"


def pool_forecast(read: ReadPool, found: Proposed | str, result: Tried | None, now: datetime) -> PoolForecast:
    """Return the forecast as a resource."""
    facts = read.facts
    mode, zone = facts.forecast.mode.value, facts.forecast.time_zone.key
    if isinstance(found, str):
        return PoolForecast(pool=str(read.pool), mode=mode, time_zone=zone, unknown=found, departed=read.departed)
    possible = read.engines_file is None and differs(found.schedules, facts.schedules)
    return PoolForecast(
        pool=str(read.pool),
        mode=mode,
        time_zone=zone,
        start=found.week.requests.start,
        quarters=_quarters(found, facts),
        recorded=_recorded(read, found.week.requests.start),
        start_seconds=facts.lead.start_seconds,
        start_is_measured=read.start_is_measured,
        lead_seconds=facts.lead.seconds,
        schedules=[dict(one) for one in found.schedules],
        trials=[] if result is None else _trials(result),
        worth_it=None if result is None else result.is_worth_it,
        request=request_of(found) if possible else None,
        departed=read.departed,
    )


def _trials(result: Tried) -> list[ScheduleTrial]:
    outcomes = ((TrialOf.REACTIVE, result.reactive), (TrialOf.PRESENT, result.present), (TrialOf.PROPOSED, result.proposed))
    return [
        ScheduleTrial(schedules=of, instance_hours=round(one.instance_hours, 1), requests=round(one.requests), late=round(one.late))
        for of, one in outcomes
    ]


def _recorded(read: ReadPool, start: datetime) -> list[RecordedQuarter]:
    week = read.record.since(start - WEEK)
    return [
        RecordedQuarter(at=week.start + QUARTER * place, requests=None if value != value else round(float(value), 4))
        for place, value in enumerate(week.rates.requests)
    ]


def _quarters(found: Proposed, facts: Forecasted) -> list[ForecastQuarter]:
    band = found.week.requests
    present = _numbers(facts.schedules, facts, band.start, len(band.middle))
    then = _numbers((*facts.others, *read_all(found.schedules)), facts, band.start, len(band.middle))
    return [
        ForecastQuarter(
            at=band.start + QUARTER * place,
            requests=round(float(band.middle[place]), 4),
            low=round(float(band.low[place]), 4),
            high=round(float(band.high[place]), 4),
            present=present[place],
            proposed=then[place],
        )
        for place in range(len(band.middle))
    ]


def _numbers(schedules: Sequence[ScheduleSpec], facts: Forecasted, start: datetime, quarters: int) -> list[dict[str, int]]:
    """Return a number of instances by role for each of the `quarters` of an hour from `start`. In mode SLO, the number
    is the lower bound that the schedules set. In all other modes, it is the number of instances that would run.
    """
    end, changes = start + QUARTER * quarters, [start]
    for at in changes_after(schedules, start):
        if at >= end:
            break
        changes.append(at)
    found: list[dict[str, int]] = []
    for begins, ends in pairwise([*changes, end]):
        bounds = in_force(schedules, begins).bounds
        numbers = {one.role.value: _number(one, facts.scaling.mode, bounds) for one in facts.roles}
        found += [numbers] * (-(-(ends - start) // QUARTER) - len(found))
    return found[:quarters]


def _number(role: RoleLimits, mode: ScalingMode, windows: Sequence[RoleBounds]) -> int:
    declared = DeclaredRole(role=role.role, replicas=role.declared, min_replicas=role.least, max_replicas=role.most)
    bounds = bounds_in_force(declared, windows)
    return bounds.lower if mode is ScalingMode.SLO else bounds.clamp(role.declared)
