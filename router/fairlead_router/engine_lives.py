"""Judges by what engines show of their steps whether they make progress (`routing.knowledge.progress`), and lets the
router act on it: a stalled engine gets nothing that another can take, what waits for it goes elsewhere, and the control
API hears of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from fairlead.instances import Role
from fairlead.reports.engines import EngineTrouble
from fairlead.routing.knowledge.progress import EngineProgress, Life
from fairlead.tables import InstanceEntry
from fairlead_router.engine_pages import METRIC_NAMES, EnginePage
from fairlead_router.pool import Pool
from fairlead_router.silences import Silences, Stall

logger = logging.getLogger(__name__)

EventsHeard = Callable[[str, str], int]
"""How many KV events of this pool and instance were heard."""


class EngineLives:
    """The progress of every engine, kept by the pool and instance, in the `engines` of its pool."""

    def __init__(self, silences: Silences, events_heard: EventsHeard, now: Callable[[], float]) -> None:
        self._silences = silences
        self._events_heard = events_heard
        self._now = now
        self._addresses: dict[tuple[str, str], str] = {}
        self._at: dict[str, list[EngineProgress]] = {}
        """By address."""
        self._events: dict[tuple[str, str], int] = {}

    def keep(self, present: Collection[tuple[Pool, InstanceEntry]]) -> None:
        """Forget all engines but these, and what is known of one whose place another has taken."""
        addresses = {(str(pool.key), entry.id): entry.address for pool, entry in present}
        if addresses == self._addresses:
            return
        self._at = {}
        for pool, entry in present:
            key = (str(pool.key), entry.id)
            if self._addresses.get(key) != entry.address:
                self._events.pop(key, None)
                pool.engines.lives.pop(entry.id, None)
            self._at.setdefault(entry.address, []).append(self._progress(pool, entry.id))
        self._addresses = addresses
        self._events = {key: count for key, count in self._events.items() if key in addresses}

    def moved(self, addresses: Collection[str]) -> None:
        """Tokens of answers came from these."""
        now = self._silences.awake()
        for address in addresses:
            for progress in self._at.get(address, ()):
                progress.moved(now)

    def saw(self, pool: Pool, entry: InstanceEntry, page: EnginePage) -> None:
        """Its metrics say this now."""
        progress, awake = self._progress(pool, entry.id), self._silences.awake()
        key = (str(pool.key), entry.id)
        heard = self._events_heard(*key)
        if heard != self._events.get(key):
            self._events[key] = heard
            progress.moved(awake)
        before = progress.life
        given = replace(pool.scheduler.take_given(entry.id), others=pool.direct[entry.id])
        progress.saw(page.movement, given, awake)
        if progress.life is not before and Life.STALLED in (progress.life, before):
            self._tell(pool, entry, progress)
        self._act(pool, entry, progress)

    def _progress(self, pool: Pool, instance: str) -> EngineProgress:
        found = pool.engines.lives.get(instance)
        if found is None:
            names = METRIC_NAMES[pool.engine_of(instance).type]
            found = pool.engines.lives[instance] = EngineProgress(names.least_seconds)
        return found

    def _tell(self, pool: Pool, entry: InstanceEntry, progress: EngineProgress) -> None:
        extra = {"pool": str(pool.key), "instance": entry.id, "address": entry.address}
        if progress.life is Life.STALLED:
            pool.counters.engine_stalls += 1
            logger.warning("engine stalled", extra={**extra, "still_seconds": round(progress.still_seconds, 1)})
        else:
            logger.warning("engine makes progress again", extra=extra)

    def _act(self, pool: Pool, entry: InstanceEntry, progress: EngineProgress) -> None:
        shut = progress.life is Life.STALLED and not progress.on_trial
        now = self._now()
        pool.scheduler.instance_stalled(entry.id, now, stalled=shut)
        pool.engines.found(entry.id, EngineTrouble.ENGINE_SLOW, _words(progress) if progress.life is Life.SLOW else None)
        stalled = progress.life is Life.STALLED
        pool.engines.found(entry.id, EngineTrouble.ENGINE_STALLED, _words(progress) if stalled else None)
        if shut:
            self._silences.stalls[entry.address] = Stall(_words(progress), _avoidable(pool, entry, now))
        else:
            self._silences.stalls.pop(entry.address, None)


def _words(progress: EngineProgress) -> str:
    """What is the same each time while the state lasts: it is a condition's message."""
    share = "half of the" if progress.life is Life.SLOW else "longer than the"
    return f"it has requests and its engine moved nothing for {share} time that its steps allow, though its HTTP server answers"


def _avoidable(pool: Pool, entry: InstanceEntry, now: float) -> bool:
    """Whether another instance can take what waits for this one."""
    shut = pool.scheduler.broken(now)
    others = [one for one in pool.table.instances if one.accepting and one.id != entry.id and one.id not in shut]
    return any(one.role is entry.role or (entry.role is Role.PREFILL and one.role is Role.DECODE) for one in others)
