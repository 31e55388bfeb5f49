"""Learning: updates the estimators of a pool from finished prefills and decodes, and drops observations that are too
old.
"""

from fairlead.capabilities import UNKNOWN
from fairlead.kv_events.sources import NOTHING_SLOW
from fairlead.reports.engines import EngineMemory
from fairlead.routing.contracts.loads import InstanceLoad, OthersLoad
from fairlead.routing.knowledge.engine_memories import decode_coefficients
from fairlead.routing.knowledge.load_times import LEAST_TOKENS
from fairlead.routing.knowledge.prefill_speeds import MEMORY_SECONDS
from fairlead.routing.knowledge.whole_answers import LEAST_SECONDS
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.queues.deadline import LASTING_PACE_WEIGHT, RISING_AMONG_OTHERS, next_pace
from fairlead.routing.scheduling.state import SchedulerState

FORGET_SECONDS = 10.0
"""Seconds between two checks for observations that are too old."""
PACE_SECONDS = 600.0
"""Seconds without a prefill after which an instance's pace (measured time divided by predicted time of its prefills) is
reset to 1. The instance may have become faster; without the reset, it might get no requests that would show this.
"""

MUCH = 1.25
"""Factor by which the predicted speed has to change before the prefills of waiting requests are predicted again."""

_NO_OTHERS = OthersLoad()

TELLING_TOKENS = 16
"""Minimum number of tokens of an answer, or of a part of a running answer, over which the time per token is measured.
"""


def count_prefill(state: SchedulerState, tracked: TrackedRequest) -> None:
    """Add a prefill that has ended, or is assumed to have ended, to the totals of its instance, because the prefill
    delayed the decodes there.
    """
    history, times = state.loads[tracked.instance].history, state.prefill_times
    history.prefilled_tokens += tracked.miss_tokens
    history.prefill_seconds += times.seconds(tracked.input_tokens, tracked.hit_tokens) * times.speeds.computing_share


def learn_prefill(state: SchedulerState, tracked: TrackedRequest, now: float) -> None:
    """Measure a prefill: the time until now from its dispatch or, if that was later, from the end of the previous
    prefill on its instance.

    The measured time divided by the predicted time updates two averages of the instance: its pace, and its lasting
    pace, which changes more slowly and distinguishes slow instances from fast ones. The time also updates the prefill
    times of the pool, unless a part of the prefix was fetched. Prefills whose first token cannot be observed are
    ignored. Prefills on an instance that a proxy chose are ignored too, because the time of that choice is unknown.

    With several routers, prefills of other routers may lengthen the measured time, but never shorten it. Therefore
    short times have more weight in the lasting pace. Otherwise an instance with much work from other routers would seem
    slow. Each prefill counts in proportion to its length. Otherwise an instance with many cached prefixes, whose
    prefills are short, would seem fast.
    """
    if tracked.dispatched_at is None or tracked.by_proxy or not _shows_prefill(tracked):
        return
    if tracked.dispatched_at >= now:
        return  # a second attempt at the decode leg, with the blocks of the first: nothing was computed for it
    arrived_at, target = tracked.request.arrived_at, state.table.slo.ttft_seconds
    if tracked.dispatched_at < arrived_at + target and not tracked.request.warms:
        state.late.saw_first_token(late=now >= arrived_at + target)
    if tracked.transfer is not None:
        return  # its time is a transfer's too
    load = state.loads[tracked.instance]
    if tracked.slow_tokens is not NOTHING_SLOW and _learn_load(state, tracked, load, now):
        return
    load.paced_at = now
    before = load.last_first_token_at
    seconds = now - (tracked.dispatched_at if before is None else max(tracked.dispatched_at, before))
    tokens, routers = tracked.input_tokens, state.view.routers
    if tracked.loading_seconds:
        seconds = max(0.0, seconds - tracked.loading_seconds)
    predicted = state.prefill_times.seconds(tokens, tracked.hit_tokens)  # by the speed of now
    load.prefill_pace, load.recent_prefill_seconds = next_pace(load.prefill_pace, load.recent_prefill_seconds, seconds, predicted)
    rising = RISING_AMONG_OTHERS if routers > 1 else 1.0
    load.lasting_pace, load.usual_prefill_seconds = next_pace(
        load.lasting_pace, load.usual_prefill_seconds, seconds, predicted, LASTING_PACE_WEIGHT, rising
    )
    if not tracked.transfer_tokens:
        times = state.prefill_times
        before, knew = times.speed, times.is_measured
        times.speeds.among_others = routers > 1
        times.observe(tracked.instance, tokens, tracked.hit_tokens, seconds, now)
        if times.speed != before:
            follow_speed(state, before, now, paces_hold=knew)


def _learn_load(state: SchedulerState, tracked: TrackedRequest, load: InstanceLoad, now: float) -> bool:
    """Return whether the request loaded at least as many tokens from cache tiers outside the GPU as it computed. Its
    time is then recorded as a time of loading, not of prefilling.
    """
    if sum(tracked.slow_tokens) < max(LEAST_TOKENS, tracked.miss_tokens):
        return False
    if tracked.transfer_tokens or state.prefill_times.observed_speed is None or tracked.dispatched_at is None:
        return True
    before = load.last_first_token_at
    seconds = now - (tracked.dispatched_at if before is None else max(tracked.dispatched_at, before))
    computing = state.prefill_times.seconds(tracked.input_tokens, tracked.hit_tokens)
    state.load_times.observe(tracked.slow_tokens, seconds - computing, now)
    return True


def _shows_prefill(tracked: TrackedRequest) -> bool:
    """Return whether the first token or the end of the prefill can be observed. With a side-car, only the first token
    can be observed; the transfer before it then counts as a part of the prefill.
    """
    return tracked.request.streamed or (tracked.decode is not None and not tracked.request.by_sidecar)


def learn_whole_answer(
    state: SchedulerState, tracked: TrackedRequest, served_on: InstanceLoad, now: float, output_tokens: int, cached_tokens: int | None
) -> None:
    """Measure the prefill speed and the decode steps on an answer whose first token could not be observed
    (`WholeAnswers`).

    The work of other routers on the instance is taken from their reports. Without reports, it is assumed to equal this
    router's average work per instance. (An assumption per answer would vary too much to show the effect of that work.)
    For the request's own prompt, the engine's count of cached tokens replaces the estimate.
    """
    began = tracked.answer_began
    if began is None or tracked.dispatched_at is None or tracked.by_proxy or tracked.transfer_tokens or output_tokens < 1:
        return
    if tracked.request.answers > 1:
        return
    if tracked.transfer is not None or now - began.at < LEAST_SECONDS or state.prefill_times.whole.is_crowded(now):
        return
    ended = served_on.history.advance(now, served_on.decode_tokens, served_on.decoding)
    seconds = ended.at - began.at
    if seconds <= 0:
        return
    times, routers, others = state.prefill_times, state.view.assumed_routers, served_on.others or _NO_OTHERS
    beside = max(0, ended.prefilled_tokens - began.prefilled_tokens - tracked.miss_tokens)
    own = tracked.miss_tokens if cached_tokens is None else max(1, tracked.request.prompt_tokens - max(0, cached_tokens))
    elsewhere = _usual_prefills(state, served_on, routers - 1) + others.prefill_share * times.speed
    computed = own + beside + elsewhere * seconds
    before, knew = times.speed, times.is_measured
    context = routers * (ended.token_seconds - began.token_seconds) / seconds + others.decode_tokens
    requests = routers * (ended.request_seconds - began.request_seconds) / seconds + others.decoding
    times.observe_whole(served_on.entry.id, computed, output_tokens, context, requests, seconds, now)
    if times.speed != before:
        follow_speed(state, before, now, paces_hold=knew)
    speed = times.whole.tokens_per_second
    if state.learns_decoding and speed is not None and output_tokens >= TELLING_TOKENS:
        state.decode_times.observe(context, requests, (seconds - computed / speed) / (output_tokens - 1), now)


def _usual_prefills(state: SchedulerState, beside: InstanceLoad, routers: int) -> float:
    """Return the prompt tokens per second that an instance of this role is assumed to compute for `routers` other
    routers. Each of them is assumed to send as many tokens as this router.

    The rate uses this router's mean over all instances. This router's rate on the answer's own instance is not typical:
    at the end of an answer it is high, because the instance has just worked for this router. When that rate was used,
    measured speeds were 1.3 to 1.6 times the true speed.
    """
    if not routers:
        return 0.0
    rates = [load.history.prefilled_per_second for load in state.loads.values() if load.entry.role is beside.entry.role]
    return routers * sum(rates) / max(1, len(rates))


def follow_speed(state: SchedulerState, before: float, now: float, *, paces_hold: bool) -> None:
    """Adapt all estimates that depend on the pool's predicted prefill speed, after the speed has changed from `before`.
    If the change is large, pending prefills are predicted again.

    The pace of an instance is the measured time of its prefills divided by the predicted time. With `paces_hold` (the
    old speed was measured), each pace is scaled so that the product of pace and prediction stays the same. Otherwise
    the old speed was declared or recalled. Then all paces restart, and so does the fit of decode steps, which subtracts
    predicted prefills.

    The lasting pace, a slower average, is scaled only if this router is alone. With several routers it stays as it is,
    because prefills of the other routers distort the measured speed.
    """
    times = state.prefill_times.speed / before
    state.view.offered.scale(1 / times)
    for instance, load in state.loads.items():
        load.history.prefill_seconds /= times
        if paces_hold:
            load.scale_pace(times, lasting=state.view.routers == 1)
        else:
            load.forget_pace()
        state.accounting.changed.add(instance)
    if not paces_hold:
        state.decode_times.begin_again()
    if max(times, 1 / times) >= MUCH:
        _predict_again(state, times, now)


def _predict_again(state: SchedulerState, times: float, now: float) -> None:
    for tracked in state.requests.values():
        if tracked.stage is Stage.PREFILLING:
            state.accounting.predict_again(tracked, now)
        elif tracked.decode_began is not None:
            tracked.decode_began = tracked.decode_began.scaled(1 / times)
    for tracked in tuple(state.waiting.values()):
        if tracked.stage is Stage.QUEUED:
            queue = state.queues[tracked.instance]
            queue.remove(tracked.request.id)
            state.accounting.estimate_again(tracked, tracked.hit_tokens, now)
            queue.add(tracked)


def note_decode_begin(state: SchedulerState, tracked: TrackedRequest, now: float, tokens: int = 1) -> None:
    """Record the totals of the instance's decodes and prefills at the moment when `tokens` of this request's answer
    have arrived.
    """
    if state.learns_decoding:
        load = state.loads[tracked.decodes_on]
        tracked.decode_began = load.history.advance(now, load.decode_tokens, load.decoding)
        tracked.tokens_before = tokens


def learn_decode(state: SchedulerState, tracked: TrackedRequest, decoded_on: InstanceLoad, now: float, output_tokens: int) -> None:
    """Measure decode steps on the answer of a request that ended.

    Every answer gives a time per token. If the gate or the queues need decode step times, a fit relates that time to
    the mean number of requests that decoded at the same time. Prefills that delayed the request are not part of a
    decode step, so their predicted computing times are subtracted. If an engine computes prefill and decode in one
    step, too much is subtracted. The predicted load is then too low, so that the gate refuses too few requests rather
    than too many. Short answers, answers from several instances, and requests for several answers are left out.
    """
    if tracked.continuations or tracked.request.answers > 1:
        return
    if tracked.first_token_at is not None and output_tokens >= TELLING_TOKENS:
        state.decode_times.observe_answer(decoded_on.entry.id, output_tokens, now - tracked.first_token_at, now)
    if tracked.first_token_at is not None and output_tokens > 1:
        state.late.saw_answer(late=now - tracked.first_token_at > (output_tokens - 1) * state.table.slo.tpot_seconds)
    if state.learns_decoding and not state.decode_times.is_crowded(now):
        _learn_steps(state, tracked, decoded_on, now, output_tokens)


def learn_under_way(state: SchedulerState, tracked: TrackedRequest, now: float) -> None:
    """Measure decode steps on the new tokens of a running answer, until enough steps were observed.

    In a new pool, the first answers end only after a while. Until step times are known, prefills leave no time for
    decodes, which delays all answers. If several routers share the pool, only whole answers are measured, because other
    routers' work cannot be estimated over the time of a few tokens.
    """
    if not state.learns_decoding or state.decode_times.is_settled or state.view.routers > 1 or tracked.request.answers > 1:
        return
    tokens = tracked.generated_tokens
    if _learn_steps(state, tracked, state.loads[tracked.decodes_on], now, tokens):
        note_decode_begin(state, tracked, now, tokens)


def _learn_steps(state: SchedulerState, tracked: TrackedRequest, decoded_on: InstanceLoad, now: float, output_tokens: int) -> bool:
    """Measure a decode step if enough tokens have arrived since the answer's last measurement. Return whether it was
    measured.
    """
    began, tokens = tracked.decode_began, output_tokens - tracked.tokens_before
    if began is None or tokens < TELLING_TOKENS - 1:
        return False
    ended = decoded_on.history.advance(now, decoded_on.decode_tokens, decoded_on.decoding)
    seconds, routers = ended.at - began.at, state.view.assumed_routers
    if seconds <= 0:
        return False
    others = decoded_on.others or _NO_OTHERS
    prefilled = routers * (ended.prefill_seconds - began.prefill_seconds) + others.prefill_share * seconds
    state.decode_times.observe(
        routers * (ended.token_seconds - began.token_seconds) / seconds + others.decode_tokens,
        routers * (ended.request_seconds - began.request_seconds) / seconds + others.decoding,
        (seconds - prefilled) / tokens,
        now,
    )
    return True


def recall_engines(state: SchedulerState, memory: EngineMemory | None, now: float) -> None:
    """Use the measurements from before a restart until this router has its own. Measurements that are not valid for the
    present table are ignored.
    """
    before = state.prefill_times.speed
    state.prefill_times.recall(UNKNOWN if memory is None else memory.known.prefill_tokens_per_second, now)
    if state.prefill_times.speed != before:
        follow_speed(state, before, now, paces_hold=False)
    coefficients = () if memory is None else decode_coefficients(memory)
    if memory is None or not coefficients:
        state.decode_times.forget_recalled()
    else:
        state.decode_times.recall(coefficients, memory.known.decode_step_seconds.age_seconds or 0.0, now)


def forget_older(state: SchedulerState, now: float) -> None:
    """Forget observations that are too old, so that no wrong figure lasts in a pool without requests."""
    before = state.prefill_times.speed
    state.prefill_times.forget_older(now)
    if state.prefill_times.speed != before:
        follow_speed(state, before, now, paces_hold=True)
    state.decode_times.forget_older(now)
    state.load_times.forget_older(now - MEMORY_SECONDS)
    if state.gate.forecast is not None:
        state.gate.forecast.forget_older(now)
    for instance, load in state.loads.items():
        if load.paced_at is not None and now - load.paced_at > PACE_SECONDS:
            load.forget_pace()
            state.accounting.changed.add(instance)
