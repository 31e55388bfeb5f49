"""LMetric: the product of prefill work and batch size, so that neither long prompts nor crowded batches go unseen."""

from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import IntVector, lowest, misses
from fairlead.routing.policies.free_choice import FreeChoice


class LMetric(FreeChoice):
    """The policy `lmetric`. Ties go to the smaller batch, then by id."""

    name = "lmetric"

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        hits = view.hit_vector(request)
        vectors = view.vectors()
        scores = products(vectors.pending + misses(request.prompt_tokens, hits), vectors.requests + 1)
        order = lowest(scores, FALLBACKS + 1, vectors.requests)

        def terms(index: int) -> dict[str, float]:
            tokens = vectors.pending[index] + max(1, request.prompt_tokens - hits[index])
            return {"prefill_tokens": float(tokens), "batch": float(vectors.requests[index] + 1)}

        return ordered_decision(request, view, order, hits, scores, DecisionReason.BEST_SCORE, "best-score", terms=terms)


def products(prefill_tokens: IntVector, batch: IntVector) -> IntVector:
    """P x BS per instance; at least 1 token each keeps the product from vanishing."""
    scores: IntVector = prefill_tokens * batch
    return scores
