"""LMetric: chooses the instance with the smallest product of prefill work and batch size, so that both long prompts and
large batches count.
"""

from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import IntVector, lowest, misses
from fairlead.routing.contracts.weighing import TOTAL, DecisionRule, PolicyTerms, Term, Unit


class LMetric:
    """The policy `lmetric`. Ties go to the smaller batch, then to the lowest id."""

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
    """Return P x BS per instance, with P the prefill tokens and BS the batch size, this request included in both. P is
    at least 1, so that the product is never 0.
    """
    scores: IntVector = prefill_tokens * batch
    return scores


ENTRY = PolicyEntry(
    name=LMetric.name,
    intent="The smallest product of prefill tokens and batch size.",
    build=lambda parameters, seed: LMetric(),
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="tokens × requests", unit=Unit.SCORE),
        terms=(
            Term(name="prefill_tokens", words="load with this request", unit=Unit.TOKENS),
            Term(name="batch", words="requests with this one", unit=Unit.REQUESTS),
        ),
        rules=(DecisionRule(code="best-score", because="it had the lowest product of tokens and requests", order=(TOTAL, "batch")),),
    ),
)
