"""Judges whether engines make progress, by their metrics, their KV events and the tokens of their responses
(`routing.knowledge.progress`).

A stalled engine gets no request that another engine can take, and the requests that wait for it go to other engines.
The stall is reported to the control API. Each data-parallel rank of an engine is judged separately.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from fairlead.instances import Role
from fairlead.reports.engines import EngineTrouble
from fairlead.routing.contracts.loads import GivenWork
from fairlead.routing.knowledge.progress import EngineProgress, Life
from fairlead.tables import InstanceEntry
from fairlead.targets import rank_of
from fairlead_router.engines.engine_pages import METRIC_NAMES, EngineFigures, EnginePage
from fairlead_router.engines.silences import Silences, Stall
from fairlead_router.pools.pool import Pool

logger = logging.getLogger(__name__)

ASLEEP = "its engine sleeps, according to its metrics: it would accept requests but compute none; wake it up with POST /wake_up, or delete its pod"

EventsHeard = Callable[[str, str], Mapping[int, int]]
"""A function that returns, for a pool and an instance, the number of received KV events by rank index."""


class EngineLives:
    """Judges the progress of every target. The progress itself is stored in the `engines` of the target's pool."""

    def __init__(self, silences: Silences, events_heard: EventsHeard, now: Callable[[], float]) -> None:
        self._silences = silences
        self._events_heard = events_heard
        self._now = now
        self._addresses: dict[tuple[str, str], str] = {}
        """By pool and target: the address of the target's engine."""
        self._at: dict[str, list[EngineProgress]] = {}
        """By address: the progress of the engines there. Engines with several ranks are left out, because the router
        does not know which rank generated a token.
        """
        self._events: dict[tuple[str, str], int] = {}

    def keep(self, present: Collection[tuple[Pool, InstanceEntry]]) -> None:
        """Keep these engines and forget all others. If a target has a new engine, at another address, forget its old
        engine too.
        """
        addresses = {(str(pool.key), target): entry.address for pool, entry in present for target in pool.targets(entry.id)}
        if addresses == self._addresses:
            return
        for pool in {id(pool): pool for pool, _ in present}.values():
            for target in tuple(pool.engines.lives):
                key = (str(pool.key), target)
                if key not in addresses or self._addresses.get(key, addresses[key]) != addresses[key]:
                    self._events.pop(key, None)
                    pool.engines.forget_life(target)
        self._at = {}
        for pool, entry in present:
            if not pool.ranks(entry.id):
                self._at.setdefault(entry.address, []).append(self._progress(pool, entry.id))
        self._addresses = addresses
        self._events = {key: count for key, count in self._events.items() if key in addresses}

    def moved(self, addresses: Collection[str]) -> None:
        """Record that tokens of responses have arrived from these addresses."""
        now = self._silences.awake()
        for address in addresses:
            for progress in self._at.get(address, ()):
                progress.moved(now)

    def saw(self, pool: Pool, entry: InstanceEntry, page: EnginePage) -> None:
        """Judge the progress of the instance's engine by its current metrics page, and report a stall or its end."""
        awake, targets = self._silences.awake(), pool.targets(entry.id)
        self._hear(pool, entry, targets, awake)
        figures = pool.engines.figures(entry.id, entry.address, page)
        given = _given(pool, entry, targets, figures)
        for target in targets:
            progress, told = self._progress(pool, target), figures.get(target)
            before = progress.life
            progress.saw(None if told is None else told.movement, given[target], awake)
            if progress.life is not before and Life.STALLED in (progress.life, before):
                self._tell(pool, entry, target, progress)
        self._act(pool, entry, {target: self._progress(pool, target) for target in targets}, asleep=page.asleep)

    def _hear(self, pool: Pool, entry: InstanceEntry, targets: Sequence[str], awake: float) -> None:
        """Count new KV events of these targets as progress."""
        heard = self._events_heard(str(pool.key), entry.id)
        for target in targets:
            is_whole = rank_of(target) is None
            count = sum(n for name, n in heard.items() if is_whole or pool.engines.target(entry.id, entry.address, name) == target)
            key = (str(pool.key), target)
            if count != self._events.get(key):
                self._events[key] = count
                self._progress(pool, target).moved(awake)

    def _progress(self, pool: Pool, target: str) -> EngineProgress:
        return pool.engines.lives.get(target) or pool.engines.life(target, METRIC_NAMES[pool.engine_of(target).type].least_seconds)

    def _tell(self, pool: Pool, entry: InstanceEntry, target: str, progress: EngineProgress) -> None:
        extra: dict[str, object] = {"pool": str(pool.key), "instance": entry.id, "address": entry.address}
        rank = rank_of(target)
        if rank is not None:
            extra["rank"] = rank
        if progress.life is Life.STALLED:
            pool.counters.engine_stalls += 1
            logger.warning("engine stalled", extra={**extra, "still_seconds": round(progress.still_seconds, 1)})
        else:
            logger.warning("engine makes progress again", extra=extra)

    def _act(self, pool: Pool, entry: InstanceEntry, lives: Mapping[str, EngineProgress], *, asleep: bool) -> None:
        now = self._now()
        shut = (
            list(lives)
            if asleep
            else [target for target, progress in lives.items() if progress.life is Life.STALLED and not progress.on_trial]
        )
        for target in lives:
            pool.scheduler.instance_stalled(target, now, stalled=target in shut)
        for life, trouble in ((Life.SLOW, EngineTrouble.ENGINE_SLOW), (Life.STALLED, EngineTrouble.ENGINE_STALLED)):
            found = [target for target, progress in lives.items() if progress.life is life]
            pool.engines.found(entry.id, trouble, _words(life, found) if found else None)
        pool.engines.found(entry.id, EngineTrouble.ENGINE_ASLEEP, ASLEEP if asleep and entry.accepting else None)
        if not shut:
            self._silences.stalls.pop(entry.address, None)
            return
        others_live = len(shut) < len(lives)
        avoidable = (others_live and entry.accepting) or _avoidable(pool, entry, now)
        ranks = frozenset(rank for target in shut if (rank := rank_of(target)) is not None) if others_live else None
        self._silences.stalls[entry.address] = Stall(ASLEEP if asleep else _words(Life.STALLED, shut), avoidable, ranks)


def _given(pool: Pool, entry: InstanceEntry, targets: Sequence[str], figures: Mapping[str, EngineFigures]) -> Mapping[str, GivenWork]:
    """Return the number of requests that this router has given to each target, for comparison with the target's own
    report.

    On some paths a server may choose another rank than the request names. So a request may be at another rank than the
    router assumes. If other ranks run more requests than the router gave them, a rank without running requests may have
    none. A rank with running requests may have requests that were given to another rank.
    """
    given = {target: replace(pool.scheduler.take_given(target), others=pool.account.direct.get(entry.id, 0)) for target in targets}
    if len(targets) == 1:
        return given
    runs = {target: (figures[target].running or 0) if target in figures else 0 for target in targets}
    unseen = sum(given[target].requests for target in targets if not runs[target])
    more = sum(max(0, runs[target] - given[target].requests) for target in targets)
    for target, work in given.items():
        if runs[target]:
            given[target] = replace(work, others=work.others + unseen)
        else:
            given[target] = replace(work, requests=max(0, work.requests - more))
    return given


def _words(life: Life, targets: Sequence[str]) -> str:
    """Return a message about these targets of an instance, which are slow or stalled. It stays the same while the state
    lasts.
    """
    share = "half of" if life is Life.SLOW else "longer than"
    ranks = [str(rank) for target in targets if (rank := rank_of(target)) is not None]
    who = "it has requests and its engine"
    if ranks:
        named = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {', '.join(ranks[:-1])} and {ranks[-1]} have"
        who = f"its data-parallel {named} requests and"
    return f"{who} made no progress for {share} the time that its steps allow, although its HTTP server responds"


def _avoidable(pool: Pool, entry: InstanceEntry, now: float) -> bool:
    """Return whether another instance could take the requests that wait for the instance `entry`."""
    shut = pool.scheduler.broken(now)
    others = [one for one in pool.table.instances if one.accepting and one.id != entry.id and one.id not in shut]
    return any(one.role is entry.role or (entry.role is Role.PREFILL and one.role is Role.DECODE) for one in others)
