"""Retrying: a request whose instance failed before the first byte of the response is sent to another instance, at once
and without queueing. A request whose response has begun is also sent to another instance, if its client can get the
rest of the answer from there.

If the decode instance failed, the prompt is computed again on the prefill instance, which has it cached. The KV blocks
of the first attempt cannot be used: the failed instance may have fetched them, and the prefill instance then frees
them, so that a second fetch would read arbitrary memory.
"""

from collections.abc import Collection
from dataclasses import replace

from fairlead.instances import Role
from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import HANDED_OVER, UNREACHED, Continuation
from fairlead.reports.moves import MoveCause
from fairlead.routing.admission.refusals import upstream_failed
from fairlead.routing.choosing.candidates import least_pending
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.knowledge.views import LiveView
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.queues.pending_moves import Departure
from fairlead.routing.scheduling.dispatching import Dispatching
from fairlead.routing.scheduling.moving import Moving
from fairlead.routing.scheduling.outcomes import Outcome, Outcomes
from fairlead.routing.scheduling.prefill_decode import computing_all
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.targets import instance_of, rank_of


class Retrying:
    """Finds another instance for a request: the next fallback or, without one, the least loaded candidate that was not
    tried yet.
    """

    def __init__(self, state: SchedulerState, moving: Moving, dispatching: Dispatching, outcomes: Outcomes) -> None:
        self._state = state
        self._moving = moving
        self._dispatching = dispatching
        self._outcomes = outcomes

    def retry(
        self,
        request_id: str,
        now: float,
        failed_instance: str,
        *,
        reached: bool,
        to: str | None = None,
        decode: str | None = None,
        by_proxy: bool = False,
    ) -> Outcome:
        """See `Scheduler.retry`. With `to`, another router or a proxy has already chosen the instance `to`, and
        `decode` as the instance that decodes. With `by_proxy`, a proxy made the choice some time ago.
        """
        state = self._state
        tracked = state.requests.get(request_id)
        if tracked is None or tracked.stage in (Stage.HELD, Stage.QUEUED) or tracked.first_token_at is not None:
            unknown = RoutingRequest(id=request_id, arrived_at=now, prompt_tokens=0, blocks=(), first_bytes_hash=0)
            return upstream_failed(unknown, state.table.pool, ())
        state.view.now = now
        self._outcomes.end_probe(tracked, now)
        if not reached:
            _passed_over(tracked, failed_instance)
        decode_failed = failed_instance == tracked.decode
        failed = state.loads.get(tracked.decodes_on if decode_failed else tracked.instance)
        stays = tracked.instance if decode_failed and tracked.instance in state.loads else None
        source = tracked.instance
        if by_proxy and decode is None and tracked.decode is not None and source in state.loads:
            decode, to = to, source  # a proxy sends to decode instances only, and names the same prefill instance to each
        state.accounting.unplace(tracked)
        state.expecting.taken_back(tracked)
        if failed is not None and not tracked.request.warms:
            state.recorder.loads.failed(failed, now)
        target = self._target(tracked, failed_instance, stays) if to is None else to
        if target is None:
            alike = self._is_hopeless(tracked, failed_instance)
            serve_others = alike and tracked.fails_everywhere
            refusal = upstream_failed(tracked.request, state.table.pool, tracked.tried, alike=alike, serve_others=serve_others)
            return self._outcomes.end_refused(tracked, refusal, now)
        tracked.transfer_from, tracked.by_proxy = None, by_proxy
        self._bind(tracked, failed_instance, source, target, now)
        state.count_in(tracked, target, now, decode, excluded=self._all_of(failed_instance, *tracked.unreachable))
        return self._dispatching.dispatch(tracked, now)

    def _bind(self, tracked: TrackedRequest, left: str, source: str, target: str, now: float) -> None:
        """Bind the request's session to `target`, to which the request is now sent, if the session was bound to
        `source`.
        """
        state = self._state
        reason = state.reason_to_leave(left)
        if reason is BindingReason.RING_CHANGE:
            reason = BindingReason.INSTANCE_LOST
        cause = MoveCause(trigger=reason)
        whole = state.loads[target].entry.role is Role.DECODE
        tracked.reason = DecisionReason.DECODE_ONLY if whole else DecisionReason.FALLBACK
        moved = self._moving.bind(tracked, None if whole else tracked.session, target, lambda _: Departure(cause=cause), now)
        if not moved and target != source and not state.is_front:
            self._moving.record_reroute(tracked, source, target, cause, now)

    def carry_on(
        self,
        request_id: str,
        now: float,
        left: str,
        *,
        carried_tokens: int,
        why: str,
        unlike: str | None = None,
        to: str | None = None,
        decode: str | None = None,
    ) -> Dispatch | None:
        """See `Scheduler.carry_on`. With `to`, the caller has already chosen the instance `to`, and `decode` as the
        instance that decodes.
        """
        state = self._state
        tracked = state.requests.get(request_id)
        if tracked is None or tracked.stage not in (Stage.PREFILLING, Stage.DECODING):
            return None
        state.view.now = now
        if tracked.resuming_since is None:
            tracked.tried, tracked.unreachable = (left,), ()  # what failed before the answer began may serve its rest
        elif why in UNREACHED:
            _passed_over(tracked, left)
        target = self._rest_target(tracked, left) if to is None else to
        if target is None:
            return None
        source = tracked.decodes_on
        self._outcomes.end_probe(tracked, now)
        if why != HANDED_OVER and not tracked.request.warms and (failed := state.loads.get(source)) is not None:
            state.recorder.loads.failed(failed, now)
        state.accounting.unplace(tracked)
        state.expecting.taken_back(tracked)
        tracked.carried_tokens, tracked.resuming_since = carried_tokens, now if tracked.resuming_since is None else tracked.resuming_since
        tracked.decode_began = tracked.answer_began = tracked.transfer_from = None
        tracked.by_proxy = False
        self._bind(tracked, left, source, target, now)
        state.count_in(tracked, target, now, decode, excluded=self._all_of(left, *tracked.tried, *tracked.unreachable))
        dispatch = self._dispatching.dispatch(tracked, now)
        found = Continuation(
            source=instance_of(source),
            source_rank=rank_of(source),
            target=instance_of(tracked.decodes_on),
            target_rank=rank_of(tracked.decodes_on),
            why=why,
            unlike=unlike,
            after_seconds=max(0.0, now - tracked.request.arrived_at),
            carried_tokens=carried_tokens,
            computed_tokens=tracked.miss_tokens,
        )
        tracked.continuations = (*tracked.continuations, found)
        return dispatch

    def can_carry_on(self, request_id: str, now: float, left: str) -> bool:
        """See `Scheduler.can_carry_on`."""
        tracked = self._state.requests.get(request_id)
        if tracked is None or tracked.stage not in (Stage.PREFILLING, Stage.DECODING):
            return False
        self._state.view.now = now
        if tracked.resuming_since is None:
            tracked = replace(tracked, tried=(left,), unreachable=())
        target = self._rest_target(tracked, left)
        return target is not None and target not in self._state.suspected

    def _rest_target(self, tracked: TrackedRequest, left: str) -> str | None:
        stays = tracked.instance if left == tracked.decode and tracked.instance in self._state.loads else None
        return self._target(tracked, left, stays)

    def second_opinion(
        self,
        request_id: str,
        now: float,
        instance: str,
        *,
        reached: bool = True,
        beyond: Collection[str] = (),
        to: str | None = None,
        decode: str | None = None,
    ) -> Dispatch | None:
        """See `Scheduler.second_opinion`. With `to`, another router has chosen the instance `to`, and `decode` as the
        instance that decodes. The session stays bound to its home, because an instance that refuses one request may
        still hold the prefix of the session's other requests.
        """
        state = self._state
        tracked = state.requests.get(request_id)
        if tracked is None or tracked.stage in (Stage.HELD, Stage.QUEUED) or tracked.first_token_at is not None:
            return None
        if to is None and tracked.is_at_fault:
            return None
        state.view.now = now
        if beyond and tracked.request.within is not None:
            tracked.request = replace(tracked.request, within=tuple(dict.fromkeys((*tracked.request.within, *beyond))))
        decode_refused = instance == tracked.decode
        stays = tracked.instance if decode_refused and tracked.instance in state.loads else None
        target = self._target(tracked, instance, stays) if to is None else to
        if target is None or (decode_refused and to is None and not self._decodes_elsewhere(instance)):
            return None
        if not reached:
            _passed_over(tracked, instance)
        self._outcomes.end_probe(tracked, now)
        state.accounting.unplace(tracked)
        state.expecting.taken_back(tracked)
        whole = state.loads[target].entry.role is Role.DECODE
        tracked.reason = DecisionReason.DECODE_ONLY if whole else DecisionReason.FALLBACK
        tracked.transfer_from = None
        state.count_in(tracked, target, now, decode, excluded=self._all_of(instance, *tracked.unreachable))
        return self._dispatching.dispatch(tracked, now)

    def _decodes_elsewhere(self, instance: str) -> bool:
        return any(instance_of(load.entry.id) != instance_of(instance) for load in self._state.view.decode_candidates())

    def _all_of(self, *instances: str) -> tuple[str, ...]:
        """Return these targets and all other ranks of their instances. If a target is a rank that hangs, its other
        ranks are not included, because they still work.
        """
        return tuple(target for instance in instances for target in self._with_ranks(instance))

    def _with_ranks(self, target: str) -> tuple[str, ...]:
        load = self._state.loads.get(target)
        return (target,) if load is not None and load.is_stalled else self._state.targets_of(target)

    def _target(self, tracked: TrackedRequest, failed_instance: str, stays: str | None) -> str | None:
        """Return the next target to try; None if there is none. If only the decode instance failed, `stays` is the
        instance that computed the prompt, and is the result if it still takes requests.
        """
        state, view = self._state, self._state.view
        part = view if tracked.request.within is None else view.within(tracked.request.within)
        candidates = [load for load in view.candidates() if tracked.request.may_go_to(load.entry.id)]
        if self._is_hopeless(tracked, failed_instance) or self._tries(tracked, candidates) >= state.settings.attempts:
            return None
        if stays is not None and state.loads[stays].is_candidate(view.now):
            return stays
        excluded = self._all_of(*tracked.tried, *tracked.unreachable, failed_instance)
        for instance in sorted(tracked.fallbacks, key=state.suspected.__contains__):
            load = state.loads.get(instance)
            if load is not None and instance not in excluded and load.is_candidate(view.now):
                return instance  # decisions for a subset have no others
        if not tracked.request.divisible:
            candidates = computing_all(tracked.request, part) or candidates
        found = least_pending(candidates, (*excluded, *state.suspected), 1) or least_pending(candidates, excluded, 1)
        if not found:
            found = least_pending(_decoding(part), excluded, 1)
        return next(iter(found), None)

    def _is_hopeless(self, tracked: TrackedRequest, failed_instance: str) -> bool:
        """Return whether the request is expected to fail on every instance. False if it failed in the same way on
        prefill instances, because a decode instance that computes all of it may still serve it.
        """
        load = self._state.loads.get(failed_instance)
        return tracked.is_hopeless and (load is None or load.entry.role is not Role.PREFILL)

    def _tries(self, tracked: TrackedRequest, candidates: list[InstanceLoad]) -> int:
        """Return the number of the request's attempts. Attempts on instances that could not be reached are left out.
        But while every candidate's circuit is open, they are included, because otherwise a request would try all lost
        instances.
        """
        everywhere = bool(candidates) and all(load.is_spared for load in candidates)
        return len(tracked.tried) - (0 if everywhere else len(tracked.unreachable))


def _decoding(view: LiveView) -> list[InstanceLoad]:
    """Return the candidates with the role decode. They may compute a whole request if no other prefill instance can
    take it.
    """
    return [load for load in view.decode_candidates() if load.entry.role is Role.DECODE]


def _passed_over(tracked: TrackedRequest, instance: str) -> None:
    """Record for the request that this instance could not be reached; several ranks of an instance count once."""
    if instance_of(instance) not in map(instance_of, tracked.unreachable):
        tracked.unreachable = (*tracked.unreachable, instance)
