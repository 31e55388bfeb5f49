"""Learning: what a finished prefill or decode teaches the estimators and the predictor of its pool."""

from fairlead.routing.accounting import TrackedRequest
from fairlead.routing.placing import Placing
from fairlead.routing.protocols import InstanceLoad


def learn_prefill(placing: Placing, tracked: TrackedRequest, now: float) -> None:
    """How long prefills take: from when this one was sent, or the one before it on its instance was done, until now.

    Nothing is learnt while the configured speed is used, from fetched prefixes, or from first tokens nobody sees.
    """
    times = placing.prefill_times
    if times.form == "configured" or tracked.dispatched_at is None or tracked.transfer_tokens or not tracked.request.streamed:
        return
    before = placing.accounting.loads[tracked.instance].last_first_token_at
    began = tracked.dispatched_at if before is None else max(tracked.dispatched_at, before)
    times.observe(tracked.request.prompt_tokens, tracked.hit_tokens, now - began)


def learn_decode(placing: Placing, decoded_on: InstanceLoad, tpot_seconds: float) -> None:
    """How long decode steps take, among what decodes there as a request ends. Only while a forecast asks for it."""
    if placing.gate.forecast is not None:
        placing.decode_times.observe(decoded_on.decode_tokens, decoded_on.decoding, tpot_seconds)


def learn_ttft(placing: Placing, tracked: TrackedRequest, ttft_seconds: float) -> None:
    """Tell the predictor what it was asked about, or would have been."""
    if placing.predictor is not None and tracked.features is not None:
        placing.predictor.observe(tracked.request.prompt_tokens, tracked.features, ttft_seconds)
