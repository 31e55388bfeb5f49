"""Use case: simulates pools that miss their objectives, so that advice gives simulated numbers of instances instead of
guesses.

A job checks all pools periodically. The result of a simulation stays valid for some minutes, so that all readers of all
pages see the same number. Then the pool is simulated again. The number in the advice stays as it is if the new
simulation finds a range that contains it.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from fairlead.advice.situations import PoolSituation
from fairlead.capabilities import Figure, Source, best
from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.reports.rejections import FOR_DECODE, FOR_PREFILL
from fairlead.scaling.remedies import enough_instances
from fairlead.scaling.signals import RoleSignals
from fairlead.scaling.sizing import need, whole_instances
from fairlead.tables import PoolKey
from fairlead_api.advice.asking import SituationReader
from fairlead_api.infra.errors import NotFound
from fairlead_api.simulations.asking import PoolAtPresent, target_of
from fairlead_api.simulations.expectations import LEAST, LEAST_SECONDS, MOST, WINDOW, startup_of
from fairlead_api.simulations.sizing import MOST_SIZED, Asked, SizingTrial, first_runs
from fairlead_client.resources.simulations import SimulationRequest
from fairlead_client.simulation_jobs import SimulatedTarget

AGAIN_SECONDS = 300.0
"""Pause between two simulations of a pool."""
LOOK_SECONDS = 15


class SizingStore(Protocol):
    """The store of simulations for advice."""

    async def present(self, pool: PoolKey, now: datetime) -> PoolAtPresent: ...

    async def recorded(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> int: ...

    async def recorded_seconds(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> float: ...

    async def add_sizing(self, trial: SizingTrial, now: datetime) -> None:
        """Queue the simulation `trial`, unless another simulation of the pool is in progress. Delete simulations that
        are no longer useful.
        """


class Sizing:
    """Queues simulations of pools that miss their objectives. `enabled` is True if some process runs simulations."""

    def __init__(self, reader: SituationReader, store: SizingStore, new_id: Callable[[], str], *, enabled: bool) -> None:
        self._reader = reader
        self._store = store
        self._new_id = new_id
        self._enabled = enabled

    async def look(self, now: datetime) -> None:
        """Queues a simulation of each pool that misses its objectives and was not simulated recently."""
        for pool in (await self._reader.situations(None, now)).pools:
            if is_due(pool):
                await self._queue(pool, now)

    async def _queue(self, pool: PoolSituation, now: datetime) -> None:
        key = PoolKey.parse(pool.pool)
        try:
            present = await self._store.present(key, now)
        except NotFound:
            return  # deleted meanwhile
        role = busiest(pool, present)
        if role is None:
            return
        window = recorded_as_it_is(present, now)
        present = _as_measured(present, pool, role)
        asked = asked_of(pool, present, role, startup_of(present))
        asked = replace(asked, requests=await self._most(key, window))
        requests = await self._store.recorded(key, *window, asked.requests)
        refusal = await self._refusal(key, requests, window, asked.requests)
        target: SimulatedTarget | None = None
        if refusal is None:
            try:
                target = target_of(SimulationRequest(policies=[]), present, now)
            except InvalidInput as error:
                refusal = str(error)
        runs = first_runs(asked, None if target is None or present.simulated is not None else target.kv_cache_tokens)
        trial = SizingTrial(
            id=self._new_id(),
            pool=key,
            asked=asked,
            runs=runs,
            target=target,
            window=window,
            total=requests * len(runs),
            refusal=refusal,
        )
        await self._store.add_sizing(trial, now)

    async def _most(self, pool: PoolKey, window: tuple[datetime, datetime]) -> int:
        """Return the maximum number of recorded requests to simulate: MOST_SIZED if that many requests cover enough
        time, otherwise MOST.
        """
        seconds = await self._store.recorded_seconds(pool, *window, MOST_SIZED)
        return MOST_SIZED if seconds >= LEAST_SECONDS else MOST

    async def _refusal(self, pool: PoolKey, requests: int, window: tuple[datetime, datetime], most: int) -> str | None:
        if not self._enabled:
            return "this control API simulates nothing: FAIRLEAD_SIMULATION_PROCESSES is 0"
        if requests < LEAST:
            return f"{requests} requests were recorded {_when(window)}, and {LEAST} are needed"
        seconds = await self._store.recorded_seconds(pool, *window, most)
        if seconds >= LEAST_SECONDS:
            return None
        newest = f"the newest {most} requests came within" if requests == most else f"requests {_when(window)} were recorded for"
        return f"{newest} {seconds:.0f} s, and {LEAST_SECONDS:.0f} s are needed"


def recorded_as_it_is(present: PoolAtPresent, now: datetime) -> tuple[datetime, datetime]:
    """Return the range of time whose recorded requests are simulated. It is the last hour, but begins no earlier than
    the last change of the pool's spec, because earlier requests were served under another spec.
    """
    start = now - WINDOW
    return (start if present.changed_at is None else min(now, max(start, present.changed_at))), now


def _when(window: tuple[datetime, datetime]) -> str:
    start, end = window
    if end - start < WINDOW:
        return f"since {start:%H:%M} UTC, when the pool got its present spec"
    return f"in the hour until {end:%H:%M} UTC"


def is_due(pool: PoolSituation) -> bool:
    """Return whether to simulate the pool now. The pool must have a live router, and it must miss its objectives or
    refuse requests because instances lack capacity. In addition, the last simulation must be at least AGAIN_SECONDS
    old, or must have used other objectives than the pool has now.
    """
    turned_away = sum(pool.refused.get(reason, 0) for reason in FOR_PREFILL | FOR_DECODE)
    if not (pool.out_of_slo or turned_away) or not pool.live_routers:
        return False
    sizing = pool.sizing
    if sizing is None or sizing.age_seconds >= AGAIN_SECONDS:
        return True
    return not sizing.is_underway and sizing.reason is None and sizing.found is None  # of other targets


def busiest(pool: PoolSituation, present: PoolAtPresent) -> Role | None:
    """Return the role that needs the most instances relative to the number that it has. If no needs were measured,
    return the first role. None if the pool has no instances.
    """
    roles = [one.role for one in pool.roles if present.instances.get(one.role)]
    return max(roles, key=lambda role: (_needed(pool, role) or 0.0) / present.instances[role], default=None)


def asked_of(pool: PoolSituation, present: PoolAtPresent, role: Role, startup_seconds: float) -> Asked:
    """Return the request for a simulation that finds how many instances the role needs."""
    needed, routing = _needed(pool, role), present.facts.routing
    seen, found = pool.role(role), pool.simulated
    held = None if found is None or found.role is not role else enough_instances(found)
    return Asked(
        role=role,
        present=present.instances[role],
        most=max(present.instances[role], seen.most if seen and pool.can_scale else present.instances[role]),
        goal=pool.slo.percentile / 100,
        slo_ttft_seconds=pool.slo.ttft_seconds,
        slo_tpot_seconds=pool.slo.tpot_seconds,
        policy=routing.policy,
        parameters=dict(routing.parameters),
        startup_seconds=startup_seconds,
        estimate=None if needed is None else whole_instances(needed),
        held=None if held is None else math.ceil(held.value),
        prefill_tokens_per_second=_speed(present),
    )


def _speed(present: PoolAtPresent) -> float | None:
    """Return the prefill speed of an instance in tokens per second: the declared speed of simulated instances, the
    observed speed of all others. None if the speed is unknown.
    """
    if present.simulated is not None:
        return present.facts.engine.declared.prefill_tokens_per_second.value
    return present.capability.prefill_tokens_per_second.observed


def _as_measured(present: PoolAtPresent, pool: PoolSituation, role: Role) -> PoolAtPresent:
    """Return the pool's facts with the prefill speed that was measured for the role. The prefill speed stays unchanged
    if the pool already has a figure from a better source, or if nothing was measured.
    """
    signals = _signals(pool, role)
    if signals is None or not signals.prefill_tokens_per_second:
        return present
    of_late = Figure(value=signals.prefill_tokens_per_second, source=Source.MEASURED)
    known = best(present.capability.prefill_tokens_per_second, of_late)
    return replace(present, capability=replace(present.capability, prefill_tokens_per_second=known))


def _signals(pool: PoolSituation, role: Role) -> RoleSignals | None:
    return None if pool.signals is None else pool.signals.of(role)


def _needed(pool: PoolSituation, role: Role) -> float | None:
    signals = _signals(pool, role)
    if signals is None or not signals.knows_work:
        return None
    return need(signals, pool.slo, pool.capacity, pool.scaling, refuses_late=pool.early_rejection.mode != "Disabled").instances
