"""Early rejection by load: refuse at the door what no instance could serve within its TTFT SLO."""

from math import ceil

from fairlead.admission.refusals import contended
from fairlead.reports import RejectionReason
from fairlead.routing.protocols import PoolView, Refusal, RoutingRequest


def best_ttft_seconds(request: RoutingRequest, view: PoolView) -> float:
    """The smallest predicted TTFT over all candidates; infinite when there is none."""
    candidates = view.candidates()
    if not candidates:
        return float("inf")
    speed = view.table.engine.prefill_tokens_per_second
    hits = view.hit_tokens_everywhere(request)
    tokens = request.prompt_tokens
    return min(load.pending_prefill_tokens + max(1, tokens - hits.get(load.entry.id, 0)) for load in candidates) / speed


def early_rejection(request: RoutingRequest, chosen_ttft_seconds: float, view: PoolView) -> Refusal | None:
    """A refusal when mode is Load and even the best candidate is predicted beyond headroom x SLO, else None.

    `chosen_ttft_seconds` is the prediction for the instance already chosen: when that is within bounds nothing else needs looking at.
    """
    facts = view.table.early_rejection
    if facts.mode != "Load":
        return None
    limit = facts.headroom * view.table.slo.ttft_seconds
    if chosen_ttft_seconds <= limit:
        return None
    best = best_ttft_seconds(request, view)
    if best <= limit:
        return None
    return contended(
        request,
        RejectionReason.PREDICTED_TTFT,
        retry_after_seconds=float(ceil(best - limit)),
        message=f"predicted time to first token {best:.1f} s exceeds {limit:.1f} s on every instance of pool {view.table.pool}",
        predicted_ttft_seconds=best,
    )
