"""The states of running engines, computed from the file, their health checks, and the routers' reports.

Pure: one call computes one round. An engine has the same states as a pod, by the same rules
(`fairlead.reconciling.states`). Only its drain differs, because Fairlead cannot stop it: an engine drained on request
stays drained until a person ends the drain, and an engine removed from the file leaves the pool once it is empty.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairlead.draining import acknowledged, is_drained
from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceReport, PoolEvent, PoolObservations
from fairlead.reconciling.actions import DrainReason
from fairlead.reconciling.observed import DesiredPool, DesiredRole, ObservedInstance, PodHealth, Warming
from fairlead.reconciling.states import next_state
from fairlead.reconciling.warming import weights


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEngine:
    """An engine as specified by the file and by the marks of people. `drained` is the reason why the engine must be
    drained; None if it must serve.
    """

    name: str
    address: str
    weight: float = 1.0
    cordoned: bool = False
    drained: str | None = None
    role: Role = Role.BOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The result of an engine's last probe. `reason` is one word for the state, and `words` is a sentence about it.
    Both are empty if the engine is healthy.
    """

    ready: bool
    reason: str = ""
    words: str = ""


NO_ANSWER = "NoAnswer"
"""The reason if an engine accepts the connection of a probe but does not respond in time."""

UNASKED = Health(ready=False, reason="NotAskedYet")
"""The health of an engine before the result of its first probe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEngine:
    """An engine in the state that was last reported. Times are Unix seconds. `leaving`: the file no longer has it."""

    name: str
    uid: str
    address: str
    weight: float
    state: InstanceState
    reason: str
    state_since: float
    created_at: float
    draining_since: float | None = None
    leaving: bool = False
    role: Role = Role.BOTH

    def observed(self, health: Health, cordoned: bool = False) -> ObservedInstance:
        """Return the engine in the form that the operator's rules for pods use."""
        lost = PodHealth.PENDING if self.state is InstanceState.STARTING else PodHealth.UNREACHABLE
        return ObservedInstance(
            id=self.name,
            role=self.role,
            health=PodHealth.READY if health.ready else lost,
            state=self.state,
            state_since=self.state_since,
            spec_hash="",
            created_at=self.created_at,
            draining_since=self.draining_since,
            cordoned=cordoned,
            health_reason=health.reason,
        )

    def report(self, share: float) -> InstanceReport:
        """Return the report about the engine for the control API. `share` (0-1) is the part of the engine's weight that
        applies while the engine warms.
        """
        return InstanceReport(
            id=self.name,
            pod_uid=self.uid,
            address=self.address,
            role=self.role,
            state=self.state,
            reason=self.reason,
            weight=self.weight * share,
            created_at=self.created_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The engines after a round, and the events that happened in it."""

    engines: tuple[ServedEngine, ...]
    events: tuple[PoolEvent, ...]


def next_round(
    known: Sequence[ServedEngine],
    wanted: Sequence[WantedEngine],
    health: Mapping[str, Health],
    observations: PoolObservations | None,
    *,
    warming: Warming,
    drain_timeout_seconds: float,
    uids: Mapping[str, str],
    now: float,
) -> Round:
    """Advance all engines by one round. `uids`: the identity of the engine at each address."""
    events: list[PoolEvent] = []
    by_name = {engine.name: engine for engine in known}
    names = {one.name for one in wanted}
    health = spare_the_slow(known, names, health)
    after: list[ServedEngine] = []
    shares = warm_shares(known, warming, now)
    for one in wanted:
        before = by_name.get(one.name)
        if before is None or (before.address, before.role) != (one.address, one.role):
            events.append(_event(now, "EngineAdded", f"{one.name} at {one.address} was added", one.name))
            after.append(_fresh(one, uids[one.address], now))
            continue
        asked = replace(before, leaving=False, weight=one.weight)
        moved = _wanted_step(asked, one, now) or _step(asked, health.get(one.name, UNASKED), one, observations, shares, now)
        after.append(moved)
        events += _told(before, moved, health.get(one.name, UNASKED), now)
    for before in known:
        if before.name in names:
            continue
        left, why = _leave(before, health.get(before.name, UNASKED), observations, drain_timeout_seconds, now)
        if left is None:
            events.append(_event(now, "EngineRemoved", f"{before.name} {why}", before.name))
            continue
        if not before.leaving:
            events.append(_event(now, "EngineDraining", f"{before.name} was removed from the file and is being emptied", before.name))
        after.append(left)
    return Round(engines=tuple(after), events=tuple(events))


def spare_the_slow(known: Sequence[ServedEngine], wanted: Collection[str], health: Mapping[str, Health]) -> Mapping[str, Health]:
    """Return the healths to use in this round. If no engine of the file responds in time, slow engines that have served
    before count as healthy, because they may be busy with requests. Otherwise all requests would be refused.
    """
    if any(health.get(name, UNASKED).ready for name in wanted):
        return health
    slow = [engine.name for engine in known if engine.name in wanted and engine.state is not InstanceState.STARTING]
    return {**health, **{name: Health(ready=True) for name in slow if health.get(name, UNASKED).reason == NO_ANSWER}}


def warm_shares(engines: Iterable[ServedEngine], warming: Warming, now: float) -> Mapping[str, float]:
    """Return, for each engine that is still warming, the share (0-1) of its weight that it has now."""
    roles = tuple(
        DesiredRole(role=role, replicas=0, min_replicas=0, max_replicas=0, spec_hash="", drain_timeout_seconds=0.0, warming=warming)
        for role in Role
    )
    return weights(DesiredPool(roles=roles), [engine.observed(Health(ready=True)) for engine in engines], now)


def _fresh(one: WantedEngine, uid: str, now: float) -> ServedEngine:
    return ServedEngine(
        name=one.name,
        uid=uid,
        address=one.address,
        weight=one.weight,
        state=InstanceState.STARTING,
        reason=UNASKED.reason,
        state_since=now,
        created_at=now,
        role=one.role,
    )


def _wanted_step(engine: ServedEngine, one: WantedEngine, now: float) -> ServedEngine | None:
    """Return the engine after a person's request to drain it or to end its drain; None if there is no such request."""
    draining = engine.state is InstanceState.DRAINING
    if one.drained and engine.draining_since is None:
        marked = replace(engine, draining_since=now)
        reachable = engine.state in {InstanceState.WARMING, InstanceState.SERVING, InstanceState.CORDONED}
        return _moved(marked, InstanceState.DRAINING, one.drained, now) if reachable else marked
    if one.drained and draining and engine.reason != one.drained:
        return replace(engine, reason=one.drained)
    if not one.drained and engine.draining_since is not None:
        kept = replace(engine, draining_since=None)
        return _moved(kept, InstanceState.WARMING, "DrainTakenBack", now) if draining else kept
    return None


def _step(
    engine: ServedEngine,
    health: Health,
    one: WantedEngine,
    observations: PoolObservations | None,
    shares: Mapping[str, float],
    now: float,
) -> ServedEngine:
    if health is UNASKED:
        return engine  # after a restart: it is what it was until it has been asked
    if engine.state is InstanceState.STARTING and not health.ready:
        return replace(engine, reason=health.reason)
    state, reason = next_state(
        engine.observed(health, one.cordoned), in_every_table=acknowledged(observations, engine.name), warm=engine.name not in shares
    )
    if state is engine.state:
        lost = state is InstanceState.LOST and health.reason
        return replace(engine, reason=health.reason) if lost else engine
    return _moved(engine, state, one.drained or reason if state is InstanceState.DRAINING else reason, now)


def _leave(
    engine: ServedEngine, health: Health, observations: PoolObservations | None, timeout_seconds: float, now: float
) -> tuple[ServedEngine | None, str]:
    """Advance an engine that is no longer in the file by one round. Return the engine, or None once it has left the
    pool. The second result is a text about how it left, empty as long as it is in the pool.
    """
    if engine.state in {InstanceState.STARTING, InstanceState.LOST}:
        return None, "was removed from the file; it did not answer"
    if engine.state is InstanceState.DRAINING and not health.ready and health is not UNASKED:
        return None, "left the pool; it no longer answers"
    if engine.state is not InstanceState.DRAINING or engine.draining_since is None:
        return _moved(replace(engine, leaving=True, draining_since=now), InstanceState.DRAINING, "TakenOutOfFile", now), ""
    if is_drained(observations, engine.name):
        return None, "left the pool; it has no requests left"
    if now - engine.draining_since >= timeout_seconds:
        return None, f"left the pool with requests in flight, after the drain timeout of {timeout_seconds:g} s"
    return replace(engine, leaving=True, reason="TakenOutOfFile"), ""


def _moved(engine: ServedEngine, state: InstanceState, reason: str, now: float) -> ServedEngine:
    return replace(engine, state=state, reason=str(reason), state_since=now)


def _told(before: ServedEngine, after: ServedEngine, health: Health, now: float) -> list[PoolEvent]:
    """Return the events to report: an engine was lost, returned, was drained, or its drain was ended."""
    if before.state is after.state:
        return []
    name = after.name
    if after.state is InstanceState.LOST:
        return [_event(now, "EngineLost", f"{name} left the routing table: {health.words or after.reason}", name)]
    if before.state is InstanceState.LOST and after.state is InstanceState.WARMING:
        return [_event(now, "EngineBack", f"{name} answers again", name)]
    if after.state is InstanceState.DRAINING:
        why = "on a person's request" if after.reason == DrainReason.REQUESTED else "as set in the file"
        return [_event(now, "EngineDraining", f"{name} is emptied, {why}", name)]
    if before.state is InstanceState.DRAINING:
        return [_event(now, "DrainTakenBack", f"{name} takes requests again", name)]
    return []


def _event(now: float, reason: str, message: str, instance: str) -> PoolEvent:
    return PoolEvent(at=now, reason=reason, message=message, instance=instance)
