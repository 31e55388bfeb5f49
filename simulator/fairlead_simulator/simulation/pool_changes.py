"""From events on the timeline to new routing tables, as the control API and the operator would make them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import InstanceEntry, RoutingTable
from fairlead_simulator.simulation.pools import SimulatedPool, next_table, with_state
from fairlead_simulator.simulation.timeline import Fail, Override, ScaleTo, TimelineEvent


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


PlannedChange = ScaleTo | Fail | Override | _Started | _Detected | _Departed


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChange:
    """What an event means now: engines that come up (empty) or die, changes that follow later, and the next table if it
    differs."""

    table: RoutingTable | None = None
    started: tuple[str, ...] = ()
    died: tuple[str, ...] = ()
    later: tuple[PlannedChange, ...] = ()


class PoolChanges:
    """Applies a timeline. `draining` are the instances that leave when their last request has."""

    def __init__(self, spec: SimulatedPool, timeline: Sequence[TimelineEvent]) -> None:
        self._spec = spec
        self._timeline = tuple(sorted(timeline, key=lambda event: event.at))
        self._created = spec.instances + spec.prefill_instances + spec.decode_instances
        self._restarts: dict[str, int] = {}
        self._dead: set[str] = set()
        """Failed and not recovered; the table shows them as accepting until that is detected."""
        self.draining: set[str] = set()

    def planned(self) -> tuple[PlannedChange, ...]:
        """The timeline in order of time."""
        return self._timeline

    def apply(self, event: PlannedChange, table: RoutingTable, now: float) -> PoolChange:
        """What `event` changes, given the table in force.

        Raises InvalidInput when the event names what is not there.
        """
        if isinstance(event, ScaleTo):
            return self._scale(event, table)
        if isinstance(event, Fail):
            return self._fail(event, table)
        if isinstance(event, Override):
            return PoolChange(table=self._override(event, table))
        if isinstance(event, _Started):
            self._dead.difference_update(event.names)
            entries = tuple(self._serving(entry) if entry.id in event.names else entry for entry in table.instances)
            return PoolChange(table=next_table(table, entries), started=event.names)
        if isinstance(event, _Detected):
            entries = tuple(with_state(entry, InstanceState.LOST) if entry.id == event.name else entry for entry in table.instances)
            return PoolChange(table=next_table(table, entries))
        self.draining.difference_update(event.names)
        return PoolChange(
            table=next_table(table, (entry for entry in table.instances if entry.id not in event.names)) if event.names else None
        )

    def departures(self, scheduler: PoolScheduler, now: float) -> PlannedChange:
        """The draining instances that have nothing left to do."""
        busy = {one.instance for one in scheduler.in_flight() if one.in_flight}
        return _Departed(at=now, names=tuple(sorted(self.draining - busy)))

    def _scale(self, event: ScaleTo, table: RoutingTable) -> PoolChange:
        alive = [entry for entry in table.instances if entry.role is event.role and entry.state is not InstanceState.LOST]
        staying = [entry for entry in alive if entry.id not in self.draining]
        missing = event.instances - len(staying)
        if missing == 0:
            return PoolChange()
        if missing < 0:
            leaving = {entry.id for entry in staying[missing:]}
            self.draining |= leaving
            entries = tuple(with_state(entry, InstanceState.DRAINING) if entry.id in leaving else entry for entry in table.instances)
            return PoolChange(table=next_table(table, entries))
        fresh = tuple(self._spec.entry(self._created + number, event.role) for number in range(missing))
        self._created += missing
        names = tuple(entry.id for entry in fresh)
        if event.startup_seconds <= 0:
            return PoolChange(table=next_table(table, (*table.instances, *fresh)), started=names)
        starting = tuple(with_state(entry, InstanceState.STARTING) for entry in fresh)
        later = _Started(at=event.at + event.startup_seconds, names=names)
        return PoolChange(table=next_table(table, (*table.instances, *starting)), later=(later,))

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
        if event.policy is not None or event.parameters:
            policy = event.policy or routing.policy
            routing = replace(routing, policy=policy, parameters=dict(event.parameters))
        return next_table(table, slo=slo, early_rejection=rejection, routing=routing)
