"""Leaving: decides whether a session leaves its home, by the cause and the predicted gain.

A home that cannot take the request is always left. A home that could take the request is left only under three
conditions: the policy chose the other instance, the policy states a cause, and the gain is at least the policy's least
gain. A session that moves must compute its cached tokens again, and ties would move it back and forth.
"""

from dataclasses import replace

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.decisions import Weighing
from fairlead.reports.moves import MoveCause
from fairlead.reports.units import Unit
from fairlead.routing.choosing.move_causes import listed
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import GAIN_TOO_SMALL, IDLE_INSTANCE, MOVED_BY_PERSON, QUEUE_LIMIT, STAYS_PAUSED
from fairlead.routing.queues.pending_moves import Departure
from fairlead.routing.scheduling.fetching import lacks
from fairlead.routing.scheduling.holding_still import at_home
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.tables import MIGRATIONS_PAUSED


class Leaving:
    """Decides whether a session leaves its instance, and states the causes of moves. The session stays if the gain of
    the move would be below the policy's least gain.
    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def home_of(self, request: RoutingRequest, decision: Decision) -> Binding | None:
        """Return the binding of the decision's session; None if the policy does not bind sessions or this session is
        not bound.
        """
        state, session = self._state, decision.session or request.session
        if session is None or state.policy.keeps_homes is None or decision.reason is DecisionReason.DECODE_ONLY:
            return None
        home = state.bindings.get(session)
        return None if home is None or home.instance is None else home

    def held_back(self, request: RoutingRequest, decision: Decision) -> Decision:
        """Return the policy's decision, or a decision for the session's home that replaces it. It is replaced if the
        home takes requests and one of three conditions holds: a person has just moved the session to its home,
        migrations are paused, or the gain is too small.
        """
        state, home = self._state, self.home_of(request, decision)
        if home is None or home.instance is None or home.instance == decision.instance:
            return decision
        if not request.may_go_to(home.instance) or not self._serves(home.instance):
            return decision
        if state.bindings.is_asked(home.session):
            return at_home(request, decision, home.instance, state, MOVED_BY_PERSON)
        if state.table.routing.migrations == MIGRATIONS_PAUSED:
            return at_home(request, decision, home.instance, state, STAYS_PAUSED)
        weighed = decision.weigh()
        stay, go = self._ttfts(request, decision, weighed, home.instance, decision.instance)
        if decision.transfer_from == home.instance:
            go += lacks(state, request, home.instance, decision.instance, state.view.now)
        if stay - go >= state.parameters.least_gain:
            return decision
        return at_home(request, replace(decision, weigh=lambda: weighed), home.instance, state, GAIN_TOO_SMALL, (stay, go))

    def departure(
        self, request: RoutingRequest, decision: Decision, weighed: Weighing, session: str, instance: str, now: float
    ) -> Departure:
        """Return the reason why the request's session leaves its home for `instance`. `weighed` has the values that
        were compared for the decision.
        """
        state = self._state
        home = state.bindings.get(session)
        assert home is not None
        assert home.instance is not None
        left = home.instance
        cause = self._cause(request, decision, weighed, home, left, instance, now)
        if left not in state.loads or left in state.departed:
            return Departure(cause=cause, ttfts=None, hits=None)
        here, there = listed(weighed, left), listed(weighed, instance)
        hits = None if here is None or there is None else (here.hit_tokens, there.hit_tokens)
        return Departure(cause=cause, ttfts=self._ttfts(request, decision, weighed, left, instance), hits=hits)

    def _cause(
        self, request: RoutingRequest, decision: Decision, weighed: Weighing, home: Binding, left: str, instance: str, now: float
    ) -> MoveCause:
        state = self._state
        if not self._serves(left):
            reason = state.reason_to_leave(left)
            return MoveCause(trigger=BindingReason.INSTANCE_LOST if reason is BindingReason.RING_CHANGE else reason)
        if not request.may_go_to(left):
            return MoveCause(trigger=BindingReason.OUTSIDE_SUBSET)
        if weighed.rule == IDLE_INSTANCE:
            return MoveCause(trigger=BindingReason.IDLE_INSTANCE)
        if instance != decision.instance:
            limit = weighed.limits[QUEUE_LIMIT.name]
            return MoveCause(
                trigger=BindingReason.QUEUE_FULL, crossed=float(state.loads[left].waiting), threshold=limit, unit=Unit.REQUESTS
            )
        keeps = state.policy.keeps_homes
        assert keeps is not None
        return keeps.cause_to_leave(request, home, weighed, state.view, now)

    def _serves(self, home: str) -> bool:
        """Return whether the home is one of the candidates, so that the policy could have chosen it."""
        return any(load.entry.id == home for load in self._state.view.candidates())

    def _ttfts(self, request: RoutingRequest, decision: Decision, weighed: Weighing, left: str, instance: str) -> tuple[float, float]:
        """Return the TTFTs predicted for staying and for moving, in seconds. They come from the policy if it predicted
        both, else from the view.
        """
        here, there = listed(weighed, left), listed(weighed, instance)
        if here is not None and there is not None:
            return here.predicted_ttft_seconds, there.predicted_ttft_seconds
        view = self._state.view
        own = decision.ttft_seconds if instance == decision.instance else None
        go = view.predicted_ttft_seconds(request, instance) if own is None else own
        return view.predicted_ttft_seconds(request, left), go
