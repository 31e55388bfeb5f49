"""Turns events of the timeline into new routing tables, as the control API and the operator do in a real pool."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import InstanceEntry, RoutingTable
from fairlead_simulator.simulation.pools import SimulatedPool, next_table, with_state
from fairlead_simulator.simulation.routers import RouterChange
from fairlead_simulator.simulation.timeline import Drain, Fail, Flip, Override, PartRouters, RestartRouters, ScaleTo, TimelineEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    at: float
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Detected:
    at: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Departed:
    at: float
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Routers:
    at: float
    change: RouterChange


PlannedChange = TimelineEvent | _Started | _Detected | _Departed | _Routers


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChange:
    """The effects of an event: engines that start with an empty cache, engines that die, changes that follow later, and
    the next routing table (None = the table does not change).
    """

    table: RoutingTable | None = None
    started: tuple[str, ...] = ()
    died: tuple[str, ...] = ()
    later: tuple[PlannedChange, ...] = ()
    routers: RouterChange = "none"


CheapestFirst = Callable[[Sequence[str]], Sequence[str]]


class PoolChanges:
    """Applies the events of a timeline to the pool.

    `draining` are the draining instances. A draining instance is removed, or begins to serve in its new role, as soon
    as it has no requests and is not among `held`. `cheapest_first` sorts instances by the cost of removing them.
    """

    def __init__(
        self,
        spec: SimulatedPool,
        timeline: Sequence[TimelineEvent],
        cheapest_first: CheapestFirst = sorted,
        held: Container[str] = frozenset(),
    ) -> None:
        self._spec = spec
        self._cheapest_first = cheapest_first
        self._held = held
        self._timeline = tuple(sorted(timeline, key=lambda event: event.at))
        self._created = spec.instances + spec.prefill_instances + spec.decode_instances
        self._restarts: dict[str, int] = {}
        self._dead: set[str] = set()
        """Instances that have failed and not recovered. Until the failure is detected, the routing table still lists
        them as accepting requests.
        """
        self.draining: set[str] = set()
        self._keeps: dict[Role, int] = {}
        """Role → maximum number of sleeping instances of this role, from the last `ScaleTo` event."""
        self._asleep: Counter[Role] = Counter()
        """Role → number of its sleeping instances. They are counted without their names, because a sleeping instance
        has lost its cache and is in no routing table.
        """
        self._flipping: dict[str, Role] = {}
        """Draining instance → the role in which it will serve afterwards."""

    def planned(self) -> tuple[PlannedChange, ...]:
        """Return the events of the timeline in order of time."""
        return self._timeline

    def apply(self, event: PlannedChange, table: RoutingTable, now: float) -> PoolChange:
        """Return the effects of `event` on the pool with this routing table. Raises InvalidInput if the event names an
        instance that does not exist.
        """
        if isinstance(event, ScaleTo):
            return self._scale(event, table)
        if isinstance(event, Drain):
            return self._drain_one(event, table)
        if isinstance(event, Fail):
            return self._fail(event, table)
        if isinstance(event, Flip):
            return self._flip(event, table)
        if isinstance(event, RestartRouters):
            return PoolChange(routers="restart" if event.remember else "replace")
        if isinstance(event, PartRouters):
            noticed_at = event.at + min(event.noticed_after_seconds, event.for_seconds)
            later = (_Routers(at=noticed_at, change="notice"), _Routers(at=event.at + event.for_seconds, change="connect"))
            return PoolChange(routers="break", later=later)
        if isinstance(event, _Routers):
            return PoolChange(routers=event.change)
        if isinstance(event, Override):
            return PoolChange(table=self._override(event, table))
        if isinstance(event, _Started):
            names = tuple(name for name in event.names if name not in self.draining)
            self._dead.difference_update(names)
            entries = tuple(self._serving(entry) if entry.id in names else entry for entry in table.instances)
            return PoolChange(table=next_table(table, entries), started=names)
        if isinstance(event, _Detected):
            entries = tuple(with_state(entry, InstanceState.LOST) if entry.id == event.name else entry for entry in table.instances)
            return PoolChange(table=next_table(table, entries))
        self.draining.difference_update(event.names)
        if not event.names:
            return PoolChange()
        for entry in table.instances:
            if entry.id in event.names and entry.id not in self._flipping:
                self._asleep[entry.role] = min(self._keeps.get(entry.role, 0), self._asleep[entry.role] + 1)
        entries = tuple(
            self._in_role(entry, self._flipping.pop(entry.id)) if entry.id in event.names else entry
            for entry in table.instances
            if entry.id not in event.names or entry.id in self._flipping
        )
        return PoolChange(table=next_table(table, entries))

    def departures(self, routers: Iterable[PoolScheduler], now: float) -> PlannedChange:
        """Return an event that removes the draining instances that have no request in any router and are not held."""
        busy = {one.instance for scheduler in routers for one in scheduler.in_flight() if one.in_flight}
        return _Departed(at=now, names=tuple(sorted(name for name in self.draining - busy if name not in self._held)))

    def _staying(self, role: Role, table: RoutingTable) -> list[InstanceEntry]:
        """Return the instances that have the role now or after draining. Lost instances and instances that leave the
        role are not included.
        """
        return [
            entry
            for entry in table.instances
            if entry.state is not InstanceState.LOST
            and (self._flipping.get(entry.id) is role if entry.id in self.draining else entry.role is role)
        ]

    def drain(self, names: Sequence[str], table: RoutingTable) -> PoolChange:
        """Let these instances of the routing table drain, and return the effects."""
        self.draining.update(names)
        entries = (with_state(entry, InstanceState.DRAINING) if entry.id in names else entry for entry in table.instances)
        return PoolChange(table=next_table(table, entries))

    def _flip(self, event: Flip, table: RoutingTable) -> PoolChange:
        serving = [entry.id for entry in self._staying(event.source, table) if entry.id not in self.draining and entry.accepting]
        if not serving:
            return PoolChange()
        victim = self._cheapest_first(serving)[0]
        self._flipping[victim] = event.target
        return self.drain([victim], table)

    def _in_role(self, entry: InstanceEntry, role: Role) -> InstanceEntry:
        return replace(entry, role=role, state=InstanceState.SERVING, anchors=0 if role is Role.DECODE else self._spec.anchors)

    def _scale(self, event: ScaleTo, table: RoutingTable) -> PoolChange:
        self._keeps[event.role] = event.asleep
        staying = self._staying(event.role, table)
        missing = event.instances - len(staying)
        if missing == 0:
            return PoolChange()
        if missing < 0:
            there = [entry.id for entry in staying if entry.id not in self.draining]
            leaving = there[missing:] if event.victims == "newest" else self._cheapest_first(there)[:-missing]
            return self.drain(leaving, table)
        return self._start(missing, event, table)

    def _start(self, number: int, event: ScaleTo | Drain, table: RoutingTable) -> PoolChange:
        # A new one has no weight of its own in a cluster either, whatever those that began have by then.
        fresh = tuple(replace(self._spec.entry(self._created + place, event.role), weight=1.0) for place in range(number))
        self._created += number
        names = tuple(entry.id for entry in fresh)
        if event.startup_seconds <= 0:
            return PoolChange(table=next_table(table, (*table.instances, *fresh)), started=names)
        starting = tuple(with_state(entry, InstanceState.STARTING) for entry in fresh)
        return PoolChange(table=next_table(table, (*table.instances, *starting)), later=self._woken_and_made(names, event))

    def _woken_and_made(self, names: tuple[str, ...], event: ScaleTo | Drain) -> tuple[_Started, ...]:
        """Return the later events at which these instances begin to serve. The first instances are sleeping instances
        that wake, as many as there are. The others are new instances that start.
        """
        woken = min(len(names), self._asleep[event.role]) if isinstance(event, ScaleTo) else 0
        self._asleep[event.role] -= woken
        wake_seconds = event.wake_seconds if isinstance(event, ScaleTo) else 0.0
        parts = ((names[:woken], wake_seconds), (names[woken:], event.startup_seconds))
        return tuple(_Started(at=event.at + seconds, names=part) for part, seconds in parts if part)

    def _drain_one(self, event: Drain, table: RoutingTable) -> PoolChange:
        serving = [entry.id for entry in self._staying(event.role, table) if entry.id not in self.draining and entry.accepting]
        if not serving:
            return PoolChange()
        victim = self._cheapest_first(serving)[min(event.place, len(serving) - 1)]
        drained = self.drain([victim], table)
        if not event.is_replaced or drained.table is None:
            return drained
        return self._start(1, event, drained.table)

    def _fail(self, event: Fail, table: RoutingTable) -> PoolChange:
        alive = [entry for entry in table.instances if entry.accepting and entry.id not in self._dead]
        if not 0 <= event.instance < len(alive):
            remedy = f"write a number from 0 to {len(alive) - 1}" if alive else "no instance accepts requests by then"
            raise InvalidInput(f"--timeline: fail at {event.at:g} s: instance", event.instance, remedy)
        name = alive[event.instance].id
        self._dead.add(name)
        later: list[PlannedChange] = [_Detected(at=event.at + event.detected_after_seconds, name=name)]
        if event.recovered_after_seconds is not None:
            later.append(_Started(at=event.at + max(event.recovered_after_seconds, event.detected_after_seconds), names=(name,)))
        return PoolChange(died=(name,), later=tuple(later))

    def _serving(self, entry: InstanceEntry) -> InstanceEntry:
        restarts = self._restarts[entry.id] = self._restarts.get(entry.id, 0) + 1
        name = entry.id
        anchors = 0 if entry.role is Role.DECODE else self._spec.anchors
        return replace(entry, state=InstanceState.SERVING, anchors=anchors, address=f"{name}.{restarts}:8000")

    def _override(self, event: Override, table: RoutingTable) -> RoutingTable:
        slo, rejection, routing = table.slo, table.early_rejection, table.routing
        if event.slo_ttft_seconds is not None:
            slo = replace(slo, ttft_seconds=event.slo_ttft_seconds)
        if event.early_rejection is not None:
            rejection = replace(rejection, mode=event.early_rejection)
        if event.headroom is not None:
            rejection = replace(rejection, headroom=event.headroom)
        if event.prefills_in_flight is not None:
            routing = replace(routing, prefills_in_flight=event.prefills_in_flight)
        if event.policy is not None or event.parameters:
            policy = event.policy or routing.policy
            routing = replace(routing, policy=policy, parameters=dict(event.parameters))
        return next_table(table, slo=slo, early_rejection=rejection, routing=routing)
