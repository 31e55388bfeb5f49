"""Advice for requests that are refused, per cause. Pure."""

from fairlead.advice.remedy_words import beyond_remedies, beyond_words, is_beyond, rest_words
from fairlead.reports.rejections import FOR_DECODE, FOR_PREFILL, RejectionReason
from fairlead.scaling.remedies import Simulated

_ADVICE = {
    RejectionReason.PREDICTED_TTFT: "Every instance would miss the TTFT target. Add instances; prompts too long for one of them need a longer slo.ttft.",
    RejectionReason.DECODE_OVERLOADED: "Decoding would miss the TPOT target. Add instances (that decode), raise slo.tpot, or raise earlyRejection.headroom.",
    RejectionReason.AFTER_PREFILL: "Prompts were computed in vain. Add decode instances, or set earlyRejection.mode to Load: it refuses at arrival.",
    RejectionReason.QUEUE_FULL: "Router queues are full. Add instances, or raise routing.prefillsInFlight.",
    RejectionReason.QUEUE_TIMEOUT: "Requests waited too long in the router's queue. Add instances, or turn on earlyRejection to refuse them at once.",
    RejectionReason.NO_INSTANCES: "No instance accepts requests. Look at the pool's instances and conditions.",
    RejectionReason.POLICY_FAILED: "The routing policy failed on these requests. The routers' logs say how; choose another policy meanwhile.",
    RejectionReason.SCALED_TO_ZERO: "No instance is wanted. Raise replicas, or look at the pool's schedules.",
    RejectionReason.UPSTREAM_FAILED: "Engines failed before the first byte on every try. Look at the engines' logs and restarts.",
    RejectionReason.SHUTTING_DOWN: "A router was shutting down. Clients should retry; nothing to change.",
}


def advice(reason: str, found: Simulated | None = None) -> str:
    """One to three sentences; for a cause that this version does not know, they say where to look. What simulations
    `found` of the pool lately says more of requests that were refused for want of instances.
    """
    try:
        usual = _ADVICE[RejectionReason(reason)]
    except ValueError:
        return "Look at the routers' logs for this cause."
    if found is None or reason not in FOR_PREFILL | FOR_DECODE:
        return usual
    if reason in FOR_DECODE or not is_beyond(found):
        return f"{usual} By now {rest_words(found)}."
    beyond = beyond_words(found.reach, found.ttft_seconds)
    return f"{beyond}; {beyond_remedies(found)}. For the other requests: {rest_words(found)}."
