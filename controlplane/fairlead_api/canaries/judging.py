"""The background job that judges the canary steps in force. The job's progress is in memory only, so that a round need
not read all requests again. A new process reads a step's requests from the beginning and reaches the same judgement.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from fairlead.canaries.verdicts import CanaryRules, Judgement, StepVerdict
from fairlead.reports.canaries import CanarySample
from fairlead.tables import PoolKey

if TYPE_CHECKING:
    from fairlead.canaries.judging import Judge

LOOK_SECONDS = 5
SETTLED_SECONDS = 4.0
"""Seconds that the judge waits after a request's end, so that all routers have reported. A request that is reported
later, for example after an outage of the API, is counted but not judged, because the judge's test needs requests in
order of time.
"""
SPEAK_SECONDS = 60.0
"""Seconds between two stored judgements of a canary step. A changed verdict is stored at once."""
AT_ONCE = 4000
EARLIER = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A canary step in force, with the id of its pool."""

    pool_id: int
    pool: PoolKey
    step: str
    rules: CanaryRules
    began_at: datetime


class Store(Protocol):
    """The database operations of the judging job; see `PostgresCanaries`."""

    async def open_steps(self) -> list[OpenStep]: ...

    async def earlier_sessions(self, step: OpenStep, within: timedelta) -> frozenset[str]: ...

    async def samples(self, step: OpenStep, after: tuple[datetime, str], until: datetime, most: int) -> list[CanarySample]: ...

    async def count(self, step: OpenStep, until: tuple[datetime, str]) -> int: ...

    async def add(self, step: OpenStep, judgement: Judgement, at: datetime) -> None: ...

    async def newest(self, step: OpenStep) -> tuple[datetime, StepVerdict] | None: ...


@dataclass(slots=True)
class _Going:
    """The state of a canary step while it is being judged. `earlier` are the sessions from before the step, which the
    judge ignores. `last` is the position of the last request that was read, and `read` the number of requests read.
    `spoke` is the verdict that was stored last, with its time.
    """

    judge: Judge
    earlier: frozenset[str]
    last: tuple[datetime, str]
    spoke: tuple[datetime, StepVerdict] | None
    read: int = 0


class Judging:
    """Judges the canary steps in force."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._going: dict[tuple[int, str, datetime], _Going] = {}

    async def look(self, now: datetime) -> None:
        """Judge all canary steps in force once."""
        steps = {(one.pool_id, one.step, one.began_at): one for one in await self._store.open_steps()}
        self._going = {key: going for key, going in self._going.items() if key in steps}
        for key, step in steps.items():
            going = self._going.get(key) or await self._begin(step)
            self._going[key] = going
            await self._judge(step, going, now)

    async def _begin(self, step: OpenStep) -> _Going:
        from fairlead.canaries.judging import Judge

        earlier, spoke = await self._store.earlier_sessions(step, EARLIER), await self._store.newest(step)
        return _Going(judge=Judge(step.rules, step.began_at.timestamp()), earlier=earlier, last=(step.began_at, ""), spoke=spoke)

    async def _judge(self, step: OpenStep, going: _Going, now: datetime) -> None:
        until = now - timedelta(seconds=SETTLED_SECONDS)
        found = await self._store.samples(step, going.last, until, AT_ONCE)
        judgement = await asyncio.to_thread(_with, going, found, until if len(found) < AT_ONCE else None)
        if judgement is None:
            return  # more have ended already: a verdict waits for them
        spoke = going.spoke
        if spoke is None or judgement.verdict is not spoke[1] or (now - spoke[0]).total_seconds() >= SPEAK_SECONDS:
            late = await self._store.count(step, going.last) - going.read
            await self._store.add(step, replace(judgement, late_requests=max(0, late)), now)
            going.spoke = now, judgement.verdict


def _with(going: _Going, samples: list[CanarySample], until: datetime | None) -> Judgement | None:
    """Add the requests `samples` to the judge, and return its judgement. `until` is the time up to which all requests
    have been read; if it is None, some requests are still unread, and the result is None.
    """
    for one in samples:
        if one.session not in going.earlier:
            going.judge.add(one)
    going.read += len(samples)
    if samples:
        last = samples[-1]
        going.last = datetime.fromtimestamp(last.at, going.last[0].tzinfo), last.session
    if until is None:
        return None
    going.judge.elapse(until.timestamp())
    return going.judge.judgement()
