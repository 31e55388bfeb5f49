"""Placing: the policy chooses an instance for a request, admission may refuse the request, and otherwise the request
joins the queue of that instance.

A decision changes accounting, queues and bindings in one step. So in a burst of requests, each decision takes the
requests before it into account.
"""

from dataclasses import replace
from math import inf
from typing import Final

from fairlead.instances import Role
from fairlead.reports.decisions import ShadowChoice, Weighing
from fairlead.reports.moves import MoveCause
from fairlead.routing.admission.gates import no_room_to_decode
from fairlead.routing.admission.refusals import none_within, queue_full
from fairlead.routing.choosing.candidates import score
from fairlead.routing.choosing.decoding import select_decoding
from fairlead.routing.choosing.move_causes import listed
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Refusal
from fairlead.routing.contracts.weighing import QUEUE_FULL, QUEUE_LIMIT
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.scheduling.fetching import can_fetch
from fairlead.routing.scheduling.leaving import Leaving
from fairlead.routing.scheduling.moving import Moving
from fairlead.routing.scheduling.prefill_decode import computing_all, decode_only
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.routing.scheduling.subsets import choose_within

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_DECODE_ONLY: Final = DecisionReason.DECODE_ONLY


class Placing:
    """Places held requests in the queues of instances. The caller ends requests that are refused."""

    def __init__(self, state: SchedulerState, moving: Moving) -> None:
        self._state = state
        self._moving = moving
        self._leaving = Leaving(state)

    def place(self, tracked: TrackedRequest, now: float, *, admitted: bool = False) -> Refusal | None:
        """Choose an instance for a held request and queue the request there. Return a refusal if the request is
        refused, else None. If no instance accepts requests, the request stays held.

        If the request is not yet `admitted` and a client waits for it, it may be refused by the pool's gate. Any
        request may be refused because of full queues.
        """
        state = self._state
        if tracked.request.warms and self._has_home(tracked.request, now):
            tracked.request = replace(tracked.request, within=None)
        request, by_policy = tracked.request, False
        candidates = state.view.candidates()
        whole: list[InstanceLoad] = []
        if request.within is not None or not (candidates and request.divisible):
            whole = computing_all(request, state.view if request.within is None else state.view.within(request.within))
        if whole:
            decision = decode_only(request, whole, state.view)
        elif request.within is not None:
            found = choose_within(request, request.within, state.policy, state.view, now)
            if found is None:
                return none_within(request, state.table.pool)
            decision = found
        elif candidates:
            left = state.staying and self._among_staying(request, now)
            if state.canary is not None:
                left = left or state.canary.choose(request, self._home(request), state.policy, state.view, now)
            by_policy = not left
            decision = left or state.policy.choose(request, state.view, now)
        else:
            state.hold(tracked, now)
            return None
        if decision.session is not None or request.session is not None:
            decision = self._leaving.held_back(request, decision)
        if not admitted and state.table.early_rejection.mode != "Disabled" and not request.warms:
            refusal = self._admission_refusal(tracked, decision, now)
            if refusal is not None:
                self._note_refused(tracked, decision, now)
                return refusal
        instance = self._with_room(request, decision)
        if instance is None:
            self._note_refused(tracked, decision, now)
            limit, seconds = self._queue_limit(request), state.drain_seconds(decision.instance)
            return queue_full(request, state.table.pool, limit, seconds, in_turn=state.tenants is not None)
        state.held.remove(tracked, now)
        self._carry_out(tracked, decision, instance, now, by_policy=by_policy)
        if decision.overloaded:
            self._moving.rebalance(decision.overloaded, now)
        return None

    def _among_staying(self, request: RoutingRequest, now: float) -> Decision | None:
        """Return the policy's choice among the instances that will not be drained soon, if the session must leave its
        instance. It must if the instance left the pool or no longer accepts requests. On an instance that is drained
        soon, the session would have to move a second time.

        None for all other requests, if no such instance accepts requests, or if the policy's ring names an instance
        that will be drained.
        """
        state = self._state
        home = None if request.session is None else state.bindings.get(request.session)
        if home is None or home.instance is None or self._has_home(request, now):
            return None
        load = state.loads.get(home.instance)
        if load is not None and load.entry.accepting:
            return None  # it failed, and may be back
        found = choose_within(request, state.staying, state.policy, state.view, now)
        return found if found is not None and found.instance in state.staying else None

    def _has_home(self, request: RoutingRequest, now: float) -> bool:
        """Return whether the request's session is bound to an instance that takes requests. A request that only warms a
        cache must not move such a session.
        """
        load = self._home(request)
        return load is not None and load.is_candidate(now)

    def _home(self, request: RoutingRequest) -> InstanceLoad | None:
        home = None if request.session is None else self._state.bindings.get(request.session)
        return None if home is None or home.instance is None else self._state.loads.get(home.instance)

    def place_again(self, tracked: TrackedRequest, now: float) -> Refusal | None:
        """Choose an instance again for a queued request whose instance may no longer take it. The request moves if
        another instance is chosen, and is held if no instance accepts requests. Return a refusal if the request is
        refused, else None.
        """
        tracked.left = tracked.instance
        self._state.leave_queue(tracked)
        waiting_since = tracked.waiting_since
        refusal = self.place(tracked, now, admitted=True)
        if refusal is None and tracked.stage is Stage.QUEUED:
            tracked.waiting_since = waiting_since
        return refusal

    def place_at(self, tracked: TrackedRequest, decision: Decision, now: float) -> None:
        """Queue a held or queued request at the instance of this decision, without calling the policy."""
        waiting_since = tracked.waiting_since if tracked.stage is Stage.QUEUED else now
        if tracked.stage is Stage.QUEUED:
            tracked.left = tracked.instance
            self._state.leave_queue(tracked)
        self._state.held.remove(tracked, now)
        self._carry_out(tracked, decision, decision.instance, now)
        tracked.waiting_since = waiting_since

    def _carry_out(self, tracked: TrackedRequest, decision: Decision, instance: str, now: float, *, by_policy: bool = False) -> None:
        """Queue the request at `instance`: the policy's choice, or another instance if the policy's choice had no room.
        Bind the session, record a move, and record the decision. If the policy chose among all instances (`by_policy`),
        the policies that only advise are called too.
        """
        state, recorder = self._state, self._state.recorder
        chosen = instance == decision.instance
        self._decided(tracked, now)
        session = None if decision.reason is _DECODE_ONLY else decision.session or tracked.request.session
        recorder.decisions.reserve(tracked, session, now)
        moves = session is not None and self._moving.leaves_home(session, instance)
        noted = recorder.decisions.notes(tracked, now, moves=moves, at_risk=self._is_at_risk(decision, instance))
        scored = tracked.request.scored
        weighing = self._weighing(tracked.request, decision, instance) if noted or moves or scored else None
        if scored and weighing is not None:
            tracked.compared = weighing.candidates
        shadows: tuple[ShadowChoice, ...] = ()
        if state.shadows is not None and noted and by_policy and recorder.decisions.is_sampled(tracked.decision_id):
            shadows = state.shadows.ask(tracked.request, instance, state.view, now)
        tracked.reason = decision.reason if chosen else DecisionReason.FALLBACK
        tracked.fallbacks = decision.fallbacks
        tracked.alternate = decision.alternate if instance != decision.alternate else decision.instance
        source = decision.transfer_from if chosen else None
        tracked.transfer_from = source if source is not None and can_fetch(state, tracked, source, instance, now) else None
        tracked.learn = decision.learn if chosen else None
        tracked.waiting_since = now
        tracked.move = None
        moved = False
        if moves and weighing is not None and session is not None:
            departure = self._leaving.departure(tracked.request, decision, weighing, session, instance, now)
            if decision.room_tokens is not None:
                self._moving.bind_when_sent(tracked, session, decision.room_tokens, departure, now)
            else:
                moved = self._moving.bind(tracked, session, instance, lambda _: departure, now)
        elif session is not None:
            self._moving.settle(tracked, session, instance, now)
        if tracked.left:
            if not moved and tracked.left != instance:
                cause = MoveCause(trigger=state.reason_to_leave(tracked.left))
                self._moving.record_reroute(tracked, tracked.left, instance, cause, now)
            tracked.left = ""
        state.enqueue(tracked, instance, now, decision.decode)
        if state.view.kept is not None and session is not None:
            tracked.kept_as = session
            state.view.kept.placed(session, tracked.request.id, instance, tracked.request.prompt_tokens, now)
        if not (tracked.is_offered or tracked.request.warms):
            tracked.is_offered = True
            load = state.loads[instance]
            pace = load.prefill_pace if state.view.routers == 1 else load.lasting_pace  # the other holds others' prefills too
            alone = state.prefill_times.speeds.alone_share
            state.view.offered.add(tracked.prefill_microseconds / 1e6 * alone * pace, now)
        if noted and weighing is not None:
            recorder.decisions.note(tracked, decision, weighing, state.table, now, shadows)

    def _decided(self, tracked: TrackedRequest, now: float) -> None:
        """Start the record of a new decision about the request. It replaces the earlier decision, if there was one."""
        recorder = self._state.recorder
        if tracked.decision_id:
            recorder.decisions.forget(tracked.request.id)
        tracked.decision_id, tracked.decided_at, tracked.is_elsewhere = recorder.new_id(), now, False

    def _is_at_risk(self, decision: Decision, instance: str) -> bool:
        """Return whether the request may be late. The test is cheap: other requests wait for the instance, or the TTFT
        predicted by the policy exceeds half of the target.
        """
        return self._state.loads[instance].waiting > 0 or (decision.ttft_seconds or 0.0) > self._state.table.slo.ttft_seconds / 2

    def _note_refused(self, tracked: TrackedRequest, decision: Decision, now: float) -> None:
        """Record the decision about a request that is refused: the values that the policy compared, the instance that
        would have got the request, and the reason.
        """
        decisions, table = self._state.recorder.decisions, self._state.table
        self._decided(tracked, now)
        decisions.reserve(tracked, decision.session or tracked.request.session, now)
        tracked.reason = decision.reason
        if decisions.notes(tracked, now, moves=False, at_risk=True):
            decisions.note(tracked, decision, decision.weigh(), table, now)

    def _admission_refusal(self, tracked: TrackedRequest, decision: Decision, now: float) -> Refusal | None:
        state, pool, request = self._state, self._state.view, tracked.request
        view = pool if request.within is None else pool.within(request.within)
        ttft = view.predicted_ttft_seconds(request, decision.instance) if decision.ttft_seconds is None else decision.ttft_seconds
        refusal = None if tracked.continues else state.gate.at_arrival(request, ttft, view, now, state.share(request), pool=pool)
        if refusal is None and state.loads[decision.instance].entry.role is Role.PREFILL:
            choice = select_decoding(request, view, state.loads[decision.instance].entry)
            if choice is None or (choice.tpot_seconds == inf and not state.loads[choice.instance].is_idle):
                return no_room_to_decode(request, view)
        return refusal

    def _queue_limit(self, request: RoutingRequest) -> int:
        """Return the maximum number of requests that may be ahead of this request in its queue: the share of its
        priority class in the pool's limit.
        """
        return max(1, int(self._state.share(request) * self._state.parameters.queue_limit))

    def _with_room(self, request: RoutingRequest, decision: Decision) -> str | None:
        """Return the first of these instances whose queue has room: the policy's choice, the session's home, and the
        alternate of the decision (without an alternate, its fallbacks). None if no queue has room.
        """
        state = self._state
        if not state.loads[decision.instance].waiting:  # no limit is below one
            return decision.instance
        limit = self._queue_limit(request)
        if self._has_room(request, decision.instance, limit):
            return decision.instance
        home = self._leaving.home_of(request, decision)
        others = decision.fallbacks if decision.alternate is None else (decision.alternate,)
        if home is not None and home.instance is not None and request.may_go_to(home.instance):
            others = (home.instance, *others)
        for instance in others:
            load = state.loads.get(instance)
            if load is not None and load.is_candidate(state.view.now) and self._has_room(request, instance, limit):
                return instance
        return None

    def _has_room(self, request: RoutingRequest, instance: str, limit: int) -> bool:
        """Return whether fewer than `limit` of the requests waiting for the instance would be sent before this
        request.
        """
        waiting = self._state.loads[instance].waiting
        if waiting < limit:
            return True
        overtaking = self._state.overtaking(request)
        return overtaking is not None and waiting - overtaking.at(instance).requests < limit

    def _weighing(self, request: RoutingRequest, decision: Decision, instance: str) -> Weighing:
        """Return the values that the policy compared. If the policy's choice had no room, `instance` becomes the first
        candidate, and the policy's choice is recorded as passed over.
        """
        weighed = decision.weigh()
        if instance == decision.instance:
            return weighed
        first = listed(weighed, instance)
        if first is None:
            view = self._state.view
            hit = view.hit_tokens(request, instance)
            first = score(request, self._state.loads[instance], hit, view.prefill_speed)
        return replace(
            weighed,
            rule=QUEUE_FULL,
            candidates=(first, *(one for one in weighed.candidates if one.instance != instance)),
            passed_over=decision.instance,
            limits={**weighed.limits, QUEUE_LIMIT.name: self._queue_limit(request)},
        )
