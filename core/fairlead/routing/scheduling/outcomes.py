"""Outcomes: all dispatches and refusals leave the scheduler through this module, and all requests end in it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.moves import MoveOutcome
from fairlead.routing.admission.refusals import nobody_serves, not_held, scaled_to_zero, too_late
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.scheduling.dispatching import Dispatching
from fairlead.routing.scheduling.kept_decisions import End
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.routing.scheduling.trying import Trying
from fairlead.tables import Outlook

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_SERVED: Final = RequestOutcome.SERVED

Outcome = Dispatch | Refusal
_UNTOLD = End()


class Outcomes:
    """The dispatches and refusals of a scheduler. Refusals are kept until the next call of `take`, because some
    refusals arise in calls that return no outcomes, for example when a circuit opens.
    """

    def __init__(self, state: SchedulerState, dispatching: Dispatching, trying: Trying) -> None:
        self._state = state
        self._dispatching = dispatching
        self._trying = trying
        self._refusals: list[Refusal] = []

    def take(self, instances: Iterable[str], now: float) -> tuple[Outcome, ...]:
        """Return the dispatches that are now possible from the queues of `instances` and of all instances with new
        requests, followed by all refusals that were not returned before.
        """
        state = self._state
        if not (state.queues or self._refusals or state.late.to_refuse):
            return ()
        outcomes: list[Outcome] = []
        if state.touched:
            self._send_touched(outcomes, now)
        for instance in instances:
            if instance in state.queues:
                outcomes += self._dispatching.dispatch_ready(instance, now)
        while state.touched or state.late.to_refuse:  # requests may have gone back to their homes, or on to an idle instance
            self._send_touched(outcomes, now)
            if state.late.to_refuse:
                tracked = state.late.to_refuse.pop()
                if tracked.late:
                    self.refuse(tracked, too_late(tracked.request, state.table, state.loads[tracked.instance], now), now)
        if self._refusals:
            outcomes += self._refusals
            self._refusals = []
        return tuple(outcomes) if not state.guests else tuple(self._own(outcomes, now))

    def _own(self, outcomes: Iterable[Outcome], now: float) -> Iterator[Outcome]:
        """Yield the outcomes of this router's own requests. Send the outcomes of each front's requests to the front."""
        guests = self._state.guests
        for outcome in outcomes:
            front = guests.get(outcome.request.id)
            if front is None:
                yield outcome
                continue
            if isinstance(outcome, Refusal):
                del guests[outcome.request.id]
            front.tell(outcome, now)

    def _send_touched(self, outcomes: list[Outcome], now: float) -> None:
        state = self._state
        while state.touched:
            touched = sorted(state.touched)
            state.touched.clear()
            for instance in touched:
                outcomes += self._dispatching.dispatch_ready(instance, now)

    def refuse(self, tracked: TrackedRequest, refusal: Refusal, now: float, *, anyway: bool = False) -> None:
        """End a request that will not be served; the next call of `take` returns the refusal. If the refusal is based
        on estimates and an idle instance can take the request, the request is not refused but queued at this instance.
        With `anyway`, the request is refused in any case, because its client no longer waits.
        """
        if not anyway and self._trying.takes(tracked, refusal, now):
            return
        self._refusals.append(self.end_refused(tracked, refusal, now))

    def end_refused(self, tracked: TrackedRequest, refusal: Refusal, now: float) -> Refusal:
        """End a request that will not be served, and return the refusal with the id of its decision. The caller must
        pass the refusal on, because `take` does not return it.
        """
        state = self._state
        if not tracked.request.warms:
            state.recorder.refused(refusal, now)
            state.recorder.slo.refused(refusal.request.priority_class, state.table, now)
        self.end(tracked, MoveOutcome.REFUSED, now, End(RequestOutcome.REFUSED, refusal.reason))
        return replace(refusal, decision_id=tracked.decision_id, kept=tracked.keeps is not None)

    def end(self, tracked: TrackedRequest, outcome: MoveOutcome, now: float, end: End) -> None:
        """Complete a request's records and forget the request. A request about which no decision was made gets a record
        too.
        """
        recorder = self._state.recorder
        if not tracked.decision_id and not tracked.is_elsewhere:
            tracked.decision_id, tracked.decided_at = recorder.new_id(), now
            recorder.decisions.reserve(tracked, tracked.request.session, now)
        if tracked.migrations or tracked.reroutes:
            recorder.settle_moves(tracked, outcome)
        self.let_go(tracked, now, end)

    def let_go(self, tracked: TrackedRequest, now: float, end: End = _UNTOLD) -> None:
        """Forget a request. If `end` is not given, another router records how the request and its moves ended."""
        state, request_id = self._state, tracked.request.id
        finished = end.outcome is _SERVED
        if state.circuits:
            self.end_probe(tracked, now)
        if tracked.kept_as is not None and state.view.kept is not None:
            state.view.kept.ended(tracked.kept_as, request_id, tracked.generated_tokens if finished else 0, now)
        state.recorder.decisions.end(tracked, end, state.table, now)
        if state.gate.forecast is not None:
            state.gate.forecast.end(request_id, now, finished=finished)
        if tracked.expected is not None:
            state.expecting.taken_back(tracked)
        state.end(tracked)

    def end_probe(self, tracked: TrackedRequest, now: float) -> None:
        """Allow another probe if the request was the probe of a half-open circuit."""
        circuit = self._state.circuit(tracked.instance) if self._state.circuits else None
        if circuit is not None:
            circuit.ended(tracked.request.id, now)
            self._state.sync_circuit(tracked.instance, circuit)

    def withdraw(self, request_id: str) -> None:
        """Drop the refusal of a request whose client disconnected, if the refusal was not returned yet."""
        self._refusals = [refusal for refusal in self._refusals if refusal.request.id != request_id]

    def nobody(self, request: RoutingRequest, waited_seconds: float, now: float) -> Refusal:
        """Return a refusal with the reason that no instance accepts requests."""
        return nobody_serves(request, self._state.table.pool, waited_seconds, self._seconds_to_instance(now))

    def unheld(self, request: RoutingRequest, now: float) -> Refusal | None:
        """Return a refusal for a request that arrives while no instance accepts requests. None if some instance accepts
        requests or the request may be held.
        """
        state = self._state
        if state.view.candidates() or state.view.decode_candidates():
            return None
        if state.table.outlook is Outlook.CLOSED:
            return scaled_to_zero(request, state.table, now)
        if state.held.has_room(request, state.table, state.classes):
            return None
        leaving = [] if state.tenants is None else state.held.giving_way(request, state.table, state.classes)
        for tracked in leaving:
            self.refuse(tracked, not_held(tracked.request, state.table, self._seconds_to_instance(now)), now)
        return None if leaving else not_held(request, state.table, self._seconds_to_instance(now))

    def _seconds_to_instance(self, now: float) -> float:
        """Return the seconds after which a client should retry while no instance accepts requests."""
        closing = [load.broken_until for load in self._state.loads.values() if load.entry.accepting and load.broken_until > now]
        return min(closing) - now if closing else self._state.settings.no_instances_ttl_seconds
