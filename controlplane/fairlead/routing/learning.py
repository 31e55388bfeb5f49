"""Learning: what a finished prefill or decode teaches the estimators and the predictor of its pool."""

from fairlead.routing.accounting import TrackedRequest
from fairlead.routing.deadline_queue import next_pace
from fairlead.routing.placing import Placing
from fairlead.routing.protocols import InstanceLoad


def learn_prefill(placing: Placing, tracked: TrackedRequest, now: float) -> None:
    """How long prefills take: from when this one was sent, or the one before it on its instance was done, until now.

    Every prefill tells the pace of its instance; fits learn only while they are asked for, and not from prefills with fetched prefixes. First tokens
    nobody sees say nothing.
    """
    if tracked.dispatched_at is None or not tracked.request.streamed:
        return
    load = placing.accounting.loads[tracked.instance]
    before = load.last_first_token_at
    seconds = now - (tracked.dispatched_at if before is None else max(tracked.dispatched_at, before))
    load.prefill_pace = next_pace(load.prefill_pace, seconds, tracked.prefill_microseconds / 1e6)
    if placing.prefill_times.form != "configured" and not tracked.transfer_tokens:
        placing.prefill_times.observe(tracked.request.prompt_tokens, tracked.hit_tokens, seconds)


def learn_decode(placing: Placing, decoded_on: InstanceLoad, tpot_seconds: float) -> None:
    """How long decode steps take, among what decodes there as a request ends. Only while a forecast asks for it."""
    if placing.gate.forecast is not None:
        placing.decode_times.observe(decoded_on.decode_tokens, decoded_on.decoding, tpot_seconds)


def learn_ttft(placing: Placing, tracked: TrackedRequest, ttft_seconds: float) -> None:
    """Tell the predictor what it was asked about, or would have been."""
    if placing.predictor is not None and tracked.features is not None:
        placing.predictor.observe(tracked.request.prompt_tokens, tracked.features, ttft_seconds)
