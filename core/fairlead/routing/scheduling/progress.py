"""Progress: the first tokens and the ends of dispatched requests, with their effects on estimators and records."""

from dataclasses import replace
from typing import Final

from fairlead.instances import REACHABLE
from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.moves import MoveOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.queues.accounting import DECODING, PREFILLING, TrackedRequest
from fairlead.routing.scheduling.circuits import Circuits
from fairlead.routing.scheduling.dispatching import Dispatching
from fairlead.routing.scheduling.kept_decisions import End
from fairlead.routing.scheduling.learning import learn_decode, learn_prefill, learn_under_way, learn_whole_answer, note_decode_begin
from fairlead.routing.scheduling.moving import Moving
from fairlead.routing.scheduling.outcomes import Outcome, Outcomes
from fairlead.routing.scheduling.state import SchedulerState

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_COMPLETED: Final = MoveOutcome.COMPLETED
_SERVED: Final = RequestOutcome.SERVED


class Progress:
    """Handles the first tokens and ends of requests. Each method returns the dispatches that become possible."""

    def __init__(self, state: SchedulerState, moving: Moving, dispatching: Dispatching, outcomes: Outcomes, circuits: Circuits) -> None:
        self._state = state
        self._moving = moving
        self._dispatching = dispatching
        self._outcomes = outcomes
        self._circuits = circuits

    def prefilled(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """Record that the prompt has been computed: its blocks are cached on the instance, and its tokens are no longer
        pending.
        """
        tracked = self._state.requests.get(request_id)
        if tracked is None or tracked.stage is not PREFILLING:
            return ()
        self._state.view.now = now
        instance = tracked.instance
        tracked.prefilled_at = now
        self._end_prefill(tracked, now)
        return self._outcomes.take((instance,), now)

    def first_token(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """Record the first token. It also ends the prefill, if the end of the prefill was not recorded before."""
        state = self._state
        tracked = state.requests.get(request_id)
        if tracked is None or tracked.stage not in (PREFILLING, DECODING):
            return ()
        if tracked.first_token_at is not None and tracked.resuming_since is None:
            return ()
        state.view.now = now
        instance = tracked.instance if tracked.instance in state.loads else tracked.decodes_on
        if tracked.stage is DECODING:
            self._circuits.answered(tracked, tracked.decodes_on, now)
        elif not self._end_prefill(tracked, now):
            return self._outcomes.take((instance,), now)
        if tracked.resuming_since is not None:
            self._resumed(tracked, tracked.resuming_since, now)
        if tracked.first_token_at is not None:
            return self._outcomes.take((instance,), now)
        tracked.first_token_at = now
        self._learn(tracked, now)
        if tracked.decode is not None and state.loads[tracked.decode].entry.state in REACHABLE:
            state.prefixes.insert(tracked.decode, tracked.request.blocks)
        note_decode_begin(state, tracked, now)
        ttft = now - tracked.request.arrived_at
        if not tracked.request.warms:
            state.recorder.loads.first_token(state.loads[instance], now, ttft, state.table.slo.ttft_seconds)
        state.recorder.settle_moves(tracked, _COMPLETED, ttft)
        return self._outcomes.take((instance,), now)

    def _resumed(self, tracked: TrackedRequest, since: float, now: float) -> None:
        """Record that the request's answer, which had broken off, continues."""
        tracked.resuming_since = None
        *before, last = tracked.continuations
        tracked.continuations = (*before, replace(last, gap_seconds=now - since))
        self._state.recorder.settle_moves(tracked, _COMPLETED, now - since)

    def _learn(self, tracked: TrackedRequest, now: float) -> None:
        """Call the policy's `learn` callback, if the decision has one, with the result of the choice. If the callback
        raises an exception, the request continues.
        """
        if tracked.learn is None:
            return
        try:
            tracked.learn(tracked.instance, now)
        except Exception as error:  # noqa: BLE001  # kept for the next tick, which raises it
            self._state.failures.keep(error, tracked.request.id)

    def _end_prefill(self, tracked: TrackedRequest, now: float) -> bool:
        """Change the request's stage from prefilling to decoding. Return False if the request is refused instead
        because of the present decode load.

        If one instance both prefills and decodes, the request decodes in the same step and is not refused. A turn of a
        task in progress is not refused either. A router with a decider never refuses here, because the decider decides.
        """
        state, decode = self._state, tracked.decode
        self._circuits.answered(tracked, tracked.instance, now)
        begun = tracked.request.by_sidecar or tracked.resuming_since is not None  # what has begun is not refused
        kept = decode is None or state.is_front or begun or tracked.continues
        refusal = None if kept or decode is None else state.gate.after_prefill(tracked.request, state.loads[decode], state.view, now)
        learn_prefill(state, tracked, now)
        self._dispatching.prefilled(tracked, now)
        if refusal is not None:
            self._outcomes.refuse(tracked, refusal, now)
        return refusal is None

    def generated(self, request_id: str, now: float, output_tokens: int) -> None:
        """Record the number of tokens of the request's answer that have arrived so far, and count the tokens that are
        new since the last call.
        """
        tracked = self._state.requests.get(request_id)
        if tracked is not None and tracked.stage is DECODING:
            more = _more_tokens(tracked, output_tokens)
            if more:
                if not tracked.request.warms:
                    self._state.recorder.loads.generated(self._state.loads[tracked.decodes_on], now, more)
                self._circuits.lives(tracked.decodes_on)
                learn_under_way(self._state, tracked, now)

    def complete(self, request_id: str, now: float, output_tokens: int, cached_tokens: int | None) -> tuple[Outcome, ...]:
        """Record that the response to the request is complete. The engine's count of cached tokens, if it reports one,
        replaces the estimate in the load samples.
        """
        state = self._state
        tracked = state.requests.get(request_id)
        if tracked is None or tracked.stage not in (PREFILLING, DECODING):
            return ()
        state.view.now = now
        instance, decodes_on = tracked.instance, tracked.decodes_on
        self._circuits.answered(tracked, decodes_on, now)
        if tracked.stage is PREFILLING:
            self._dispatching.prefilled(tracked, now)
        if tracked.session is not None:
            self._moving.touch_session(tracked.session, now)
            state.bindings.set_context(tracked.session, tracked.request.prompt_tokens + output_tokens)
        decoded_on = state.loads[decodes_on]
        more = _more_tokens(tracked, output_tokens)
        ttft = _ttft_seconds(tracked)
        tpot = _tpot_seconds(tracked, now, output_tokens)
        self._outcomes.end(tracked, _COMPLETED, now, End(_SERVED, None, ttft, tpot))
        learn_decode(state, tracked, decoded_on, now, output_tokens)
        learn_whole_answer(state, tracked, decoded_on, now, output_tokens, cached_tokens)
        if tracked.request.warms:
            return self._outcomes.take((instance,), now)
        if state.tenants is not None:
            state.answers.observe(tracked.request.tenant, output_tokens)
        if ttft is not None:
            state.recorder.slo.completed(tracked.request.priority_class, state.table, now, ttft, tpot)
        if state.canary is not None and not state.is_front:
            state.recorder.canary.ended(
                state.canary,
                tracked,
                instance,
                now,
                decoding=decoded_on.decoding,
                tpot_seconds=tpot,
                output_tokens=output_tokens,
                cached_tokens=cached_tokens,
            )
        state.recorder.loads.completed(
            state.loads.get(instance, decoded_on),
            decoded_on,
            now,
            prompt_tokens=tracked.request.prompt_tokens,
            hit_tokens=tracked.hit_tokens if cached_tokens is None else cached_tokens,
            output_tokens=output_tokens,
            more_tokens=more,
            ttft_seconds=ttft,
            tpot_seconds=tpot,
            slo=state.table.slo,
        )
        return self._outcomes.take((instance,), now)

    def _judge_left(self, tracked: TrackedRequest, load: InstanceLoad | None, end: End, now: float) -> None:
        """Record whether a request whose client disconnected met the objectives, as far as its latencies are known. A
        late request still counts as late.
        """
        state = self._state
        if load is not None:
            state.recorder.loads.cancelled(load, now)
        if end.ttft_seconds is not None:
            state.recorder.slo.completed(tracked.request.priority_class, state.table, now, end.ttft_seconds, end.tpot_seconds)
            if load is not None:
                state.recorder.loads.judged(load, now, end.ttft_seconds, end.tpot_seconds, state.table.slo)

    def abandon(
        self, request_id: str, outcome: MoveOutcome, now: float, *, declined: bool = False, rejection: RejectionReason | None = None
    ) -> tuple[Outcome, ...]:
        """Record that the request ended without an answer: it failed, was cancelled, was refused by a front
        (`rejection`), or was `declined` by the engine.
        """
        state = self._state
        tracked = state.requests.get(request_id)
        if tracked is None:
            self._outcomes.withdraw(request_id)
            return ()
        state.view.now = now
        instance = tracked.instance
        counted_on = tracked.decodes_on if tracked.stage is DECODING else instance
        if outcome is MoveOutcome.CANCELLED:
            self._circuits.left(tracked, now)
        how = RequestOutcome.DECLINED if declined else _OUTCOMES[outcome]
        ttft, tpot = _ttft_when_left(tracked, now, state.table.slo.ttft_seconds), _tpot_seconds(tracked, now, tracked.generated_tokens)
        end = End(how, rejection, ttft if outcome is MoveOutcome.CANCELLED else _ttft_seconds(tracked), tpot)
        self._outcomes.end(tracked, outcome, now, end)
        load = state.loads.get(counted_on)
        if tracked.request.warms:
            return self._outcomes.take((instance,), now)
        if outcome is MoveOutcome.FAILED:
            state.recorder.slo.failed(tracked.request.priority_class, state.table, now)
            if load is not None:
                state.recorder.loads.failed(load, now)
                if state.canary is not None and not state.is_front:
                    state.recorder.canary.ended(state.canary, tracked, instance, now, decoding=load.decoding, failed=True)
        elif outcome is MoveOutcome.CANCELLED:
            self._judge_left(tracked, load, end, now)
        return self._outcomes.take((instance,), now)


_OUTCOMES = {
    MoveOutcome.FAILED: RequestOutcome.FAILED,
    MoveOutcome.CANCELLED: RequestOutcome.CANCELLED,
    MoveOutcome.REFUSED: RequestOutcome.REFUSED,
}


def _ttft_seconds(tracked: TrackedRequest) -> float | None:
    return None if tracked.first_token_at is None else tracked.first_token_at - tracked.request.arrived_at


def _ttft_when_left(tracked: TrackedRequest, now: float, target_seconds: float) -> float | None:
    """Return the TTFT in seconds of a request whose client disconnected. Without a first token, it is the time that the
    client waited, if this time reached the target. None if the client waited less, or if the first token could not have
    been observed.
    """
    if tracked.first_token_at is not None:
        return _ttft_seconds(tracked)
    waited = now - tracked.request.arrived_at
    return waited if tracked.request.streamed and waited >= target_seconds else None


def _more_tokens(tracked: TrackedRequest, output_tokens: int) -> int:
    """Return the number of output tokens that were not reported before, and record them as reported."""
    more = output_tokens - tracked.generated_tokens
    if more <= 0:
        return 0
    tracked.generated_tokens = output_tokens
    return more


def _tpot_seconds(tracked: TrackedRequest, now: float, output_tokens: int) -> float | None:
    """Return the seconds per output token after the first, in each of the request's answers; None if there are no such
    tokens, or if the first token could not be observed.
    """
    each = output_tokens / tracked.request.answers
    if tracked.first_token_at is None or each <= 1:
        return None
    return (now - tracked.first_token_at) / (each - 1)
