"""Dispatching: sends queued requests as far as an instance's window (its maximum number of prefills in flight) and
circuit allow, and follows each prefill until it ends.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

from fairlead.instances import REACHABLE, Role
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.knowledge.estimators import FURTHEST
from fairlead.routing.knowledge.prefixes import shared_blocks
from fairlead.routing.queues.accounting import PREFILLING, TrackedRequest
from fairlead.routing.queues.queueing import Queue
from fairlead.routing.scheduling.fetching import begin, hit_or_fetched
from fairlead.routing.scheduling.learning import count_prefill
from fairlead.routing.scheduling.moving import Moving
from fairlead.routing.scheduling.prefill_decode import decodes_on, hit_or_fetched_tokens
from fairlead.routing.scheduling.state import SchedulerState

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_PREFILL: Final = Role.PREFILL

LOOK_AGAIN_SECONDS = 0.1
"""Seconds between two checks of whether an engine has begun to compute a request."""
LEAST_PREFILL_SECONDS = 0.01
LONGEST_DOUBT_SECONDS = 10.0
"""Seconds for which an engine's report that it has not begun a prefill is still used, counted from the latest time at
which the prefill was predicted to end.
"""


class Dispatching:
    """Takes requests from queues and returns the dispatches to send."""

    def __init__(self, state: SchedulerState, moving: Moving) -> None:
        self._state = state
        self._moving = moving
        self._unseen_prefills: list[tuple[float, str, str, int]] = []
        """Heap of dispatched requests whose first token the caller cannot observe: (time at which the prefill should
        have ended, request id, decision id, number of attempts so far). An entry is ignored if its request now has
        another decision or number of attempts, because the request was sent again.
        """

    def dispatch_ready(self, instance: str, now: float) -> list[Dispatch]:
        """Dispatch the requests that the instance's window and circuit allow, in queue order.

        A session with a pending move moves now, with its request. If the move has become impossible, the request
        returns to the queue of the session's present instance.
        """
        state = self._state
        queue = state.queues.get(instance)
        if queue is None:
            return []
        load = state.loads[instance]
        window = state.table.routing.prefills_in_flight
        small = state.parameters.in_flight_seconds * state.prefill_times.speed
        sent: list[Dispatch] = []
        late = queue.find_late(now)
        if late:
            self._look_again(queue, late, now)
        if load.broken_until > now:
            state.view.candidates()  # so that each load knows whether it is spared
        while queue and (load.broken_until <= now or load.is_spared):
            gate = state.policy.gates_dispatch
            if gate is not None and load.prefilling and not gate.may_dispatch(load, state.view, now):
                break
            beside = 0 < window <= load.prefilling
            if beside and load.dispatched_prefill_tokens >= small:
                break
            if load.entry.role is _PREFILL and not (state.view.candidates() and not load.lacks_decode):
                break
            tracked = queue.take_in_time(now) if beside else queue.take(now)
            if tracked is None and load.computes_nothing:
                tracked = queue.take_any(now)
            if tracked is None:
                break
            if tracked.move is not None and not self._moving.move_or_go_back(tracked, tracked.move, now):
                continue
            sent.append(self.dispatch(tracked, now))
        if not queue:
            state.put_away(instance)
        return sent

    def _look_again(self, queue: Queue, late: Iterable[TrackedRequest], now: float) -> None:
        """Estimate late requests again. A request may count as late because of its cache hit on arrival, but be in time
        with its present cache hit. The hit grows when other requests with the same prefix, most often the session's
        previous request, are sent before it.
        """
        state = self._state
        for tracked in late:
            held = hit_or_fetched_tokens(tracked, tracked.instance, state.loads, state.view)
            hit = max(held, self._held_soon(tracked))
            if hit > tracked.hit_tokens:
                queue.remove(tracked.request.id)
                state.accounting.estimate_again(tracked, hit, now)
                queue.add(tracked)

    def _held_soon(self, tracked: TrackedRequest) -> int:
        """Return the number of tokens of a queued prompt that will be cached on its instance once the prefills in
        flight there have ended.
        """
        state, request = self._state, tracked.request
        ahead = (state.requests[one].request.blocks for one in state.loads[tracked.instance].in_flight)
        shared = max((shared_blocks(request.blocks, blocks) for blocks in ahead), default=0)
        return min(shared * (request.block_tokens or state.table.engine.block_tokens), request.prompt_tokens - 1)

    def dispatch(self, tracked: TrackedRequest, now: float) -> Dispatch:
        """Move a request that was taken from its queue to the stage prefilling, with new estimates of its hits, and
        return the dispatch.
        """
        state = self._state
        instance, request = tracked.instance, tracked.request
        load = state.loads[instance]
        state.waiting.pop(request.id, None)
        if load.entry.role is _PREFILL:
            state.accounting.redirect(tracked, decodes_on(tracked, tracked.decode, state.loads, state.view))
        guessed = bool(request.engine_blocks) and state.expecting.is_on and state.caches.rests_on_guess(request, instance)
        hit = hit_or_fetched(state, tracked)
        transfer_seconds, longest_transfer = (None, 0.0) if tracked.transfer_from is None else begin(state, tracked, now)
        self._count_sent(tracked, load, hit, now, transfer_seconds or 0.0)
        return Dispatch(  # by position, see fairlead.values
            request,
            instance,
            load.entry.address,
            tracked.fallbacks,
            tracked.decision_id,
            tracked.reason,
            tracked.hit_tokens,
            tracked.miss_tokens,
            tracked.decode,
            None if tracked.decode is None else state.loads[tracked.decode].entry.address,
            tracked.transfer_from,
            tracked.transfer_tokens,
            transfer_seconds,
            longest_transfer,
            bool(request.engine_blocks) and not tracked.transfer_tokens and instance in state.caches.heard,
            guessed,
            tracked.keeps is not None,
            request.trace is not None and state.recorder.decisions.is_certain(tracked),
            tracked.compared,
        )

    def follow(self, tracked: TrackedRequest, dispatch: Dispatch, now: float) -> Dispatch:
        """Move a held request to the stage prefilling as the `dispatch` of another router requires. The hits in
        `dispatch` are used, because the other router knows the instance's cache better. This router must know the
        instance.
        """
        state = self._state
        tracked.decision_id, tracked.is_elsewhere = dispatch.decision_id, True
        tracked.reason = dispatch.reason
        tracked.fallbacks = dispatch.fallbacks
        if dispatch.transfer_from in state.loads:
            tracked.transfer_from, tracked.transfer_tokens = dispatch.transfer_from, dispatch.transfer_tokens
        state.accounting.enqueue(tracked, dispatch.instance, dispatch.hit_tokens, now, dispatch.decode)
        self._count_sent(tracked, state.loads[dispatch.instance], dispatch.hit_tokens, now)
        return dispatch

    def _count_sent(self, tracked: TrackedRequest, load: InstanceLoad, hit_tokens: int, now: float, transfer_seconds: float = 0.0) -> None:
        """Change the request's stage from queued to prefilling, in all counters."""
        state, request, instance = self._state, tracked.request, tracked.instance
        state.accounting.dispatch(tracked, hit_tokens, now)
        if state.gate.forecast is not None:
            state.expect_first_token(tracked, load.dispatched_prefill_tokens, now)
        tracked.tried = (*tracked.tried, instance)
        if request.engine_blocks:
            state.expecting.sent(tracked)
        circuit = state.circuit(instance) if state.circuits else None
        if circuit is not None and circuit.is_open:
            circuit.dispatched(request.id, now)
            state.sync_circuit(instance, circuit)
        if state.tells_prompts and request.blocks:
            state.placed.append((instance, request.blocks))
        if state.counts_early:
            state.prefixes.insert(instance, request.blocks)
        if not request.streamed and (tracked.decode is None or request.by_sidecar):
            if tracked.decode is None:
                tracked.answer_began = load.history.advance(now, load.decode_tokens, load.decoding)
            known = state.prefill_times.observed_speed is not None or load.engine_waiting is None
            expected = (
                now + transfer_seconds + (load.dispatched_prefill_tokens / state.prefill_times.speed if known else LOOK_AGAIN_SECONDS)
            )
            heappush(self._unseen_prefills, (expected, request.id, tracked.decision_id, len(tracked.tried)))
        if not request.warms:
            state.recorder.loads.dispatched(load, now)

    def prefilled(self, tracked: TrackedRequest, now: float) -> None:
        """Change the request's stage from prefilling to decoding: its prompt has been computed, and is cached on the
        instance that computed it.
        """
        state = self._state
        count_prefill(state, tracked)
        state.accounting.prefilled(tracked, now)
        if tracked.expected is not None:
            state.expecting.computed(tracked, now)
        state.recorder.loads.prefilled(state.loads[tracked.instance], now, tracked.miss_tokens)
        if state.gate.forecast is not None:
            state.gate.forecast.begin(tracked.request.id, now, tracked.request.prompt_tokens)
        if state.loads[tracked.instance].entry.state in REACHABLE:
            state.prefixes.insert(tracked.instance, tracked.request.blocks)
            if state.view.stored is not None:
                state.view.stored.insert("", tracked.request.blocks)

    def finish_unseen_prefills(self, now: float) -> None:
        """Treat prefills as finished if their first token cannot be observed and their predicted time has passed. A
        prefill continues to count as unfinished while the engine reports that it has not begun.

        While no prefill speed has been measured, a prefill also counts as unfinished until the engine's next report
        about it or the end of its predicted time. After such a report the declared speed, which may be wrong, delays no
        request.
        """
        unseen = self._unseen_prefills
        while unseen and unseen[0][0] <= now:
            _, request_id, decision_id, attempts = heappop(unseen)
            tracked = self._state.requests.get(request_id)
            if tracked is None or tracked.stage is not PREFILLING:
                continue
            if tracked.decision_id != decision_id or len(tracked.tried) != attempts:
                continue  # it was sent again
            load = self._state.loads[tracked.instance]
            unheard = self._state.prefill_times.observed_speed is None and _is_unheard(tracked, load, now)
            if unheard or _waits_in_engine(tracked, load, now):
                heappush(unseen, (now + LOOK_AGAIN_SECONDS, request_id, decision_id, attempts))
            else:
                self.prefilled(tracked, now)


def _is_unheard(tracked: TrackedRequest, load: InstanceLoad, now: float) -> bool:
    """Return whether the engine's report about this request is still missing. Three conditions must hold: the engine
    normally reports the number of requests that it has not begun, it has sent no report since this request was sent,
    and the predicted time of the prefill has not passed yet.
    """
    sent_at = tracked.dispatched_at or now
    is_over = now >= sent_at + tracked.prefill_microseconds / 1e6
    return load.engine_waiting is not None and load.engine_told_at <= sent_at and not is_over


def _waits_in_engine(tracked: TrackedRequest, load: InstanceLoad, now: float) -> bool:
    """Return whether the engine has probably not begun to compute the request.

    Engines begin with the oldest request. The engine's last report has the number of requests that waited; after that
    report the engine is assumed to begin one request per prefill time. The report is used until `LONGEST_DOUBT_SECONDS`
    after the latest time at which the prefill was predicted to end.
    """
    sent_at, seconds = tracked.dispatched_at or now, tracked.prefill_microseconds / 1e6
    if not load.engine_waiting or now > sent_at + FURTHEST * seconds + LONGEST_DOUBT_SECONDS:
        return False
    left = load.engine_waiting - (now - load.engine_told_at) / max(seconds, LEAST_PREFILL_SECONDS)
    later = 0 if load.engine_told_at < sent_at else sum(1 for at, _ in load.in_flight.values() if at > sent_at)
    return left > later
