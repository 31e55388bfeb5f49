"""Advice for requests that are refused, per cause. Pure."""

from fairlead.reports.rejections import RejectionReason

_ADVICE = {
    RejectionReason.PREDICTED_TTFT: "Every instance would miss the TTFT target. Add instances, raise slo.ttft, or raise earlyRejection.headroom.",
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


def advice(reason: str) -> str:
    """One or two sentences; for a cause that this version does not know, they say where to look."""
    try:
        return _ADVICE[RejectionReason(reason)]
    except ValueError:
        return "Look at the routers' logs for this cause."
