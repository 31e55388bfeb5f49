"""Cache and load, linear: the score is a weighted sum of the share of the prompt that an instance holds and of the
instance's idleness.
"""

from dataclasses import dataclass

from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.scorers.loads import idleness
from fairlead.routing.choosing.scorers.prefixes import token_share
from fairlead.routing.choosing.terms import BEST_SCORE
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector, highest
from fairlead.routing.contracts.weighing import TOTAL, Better, PolicyTerms, Term, Unit
from fairlead.schemas.shapes import number


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLoadLinearParameters(QueueParameters):
    """Parameters of `cache-load-linear`."""

    cache_weight: float = number(
        "Weight w of the cached share of the prompt; idleness has the weight 1 - w.", 0.5, minimum=0.0, maximum=1.0
    )


class CacheLoadLinear:
    """The policy `cache-load-linear`. Ties go to the less loaded instance, then to the lowest id."""

    name = "cache-load-linear"

    def __init__(self, parameters: CacheLoadLinearParameters) -> None:
        self._weight = parameters.cache_weight

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        hits = view.hit_vector(request)
        pending = view.vectors().pending
        scores = linear_scores(hits, request.prompt_tokens, pending, self._weight)
        order = highest(scores, FALLBACKS + 1, pending)

        def terms(index: int) -> dict[str, float]:
            cached = self._weight * float(token_share(hits, request.prompt_tokens)[index])
            return {"cache_score": cached, "idle_score": (1 - self._weight) * float(idleness(pending)[index])}

        return ordered_decision(request, view, order, hits, scores, DecisionReason.BEST_SCORE, "best-score", terms=terms)


def linear_scores(hits: IntVector, prompt_tokens: int, pending: IntVector, weight: float) -> FloatVector:
    """Return, per instance, w x hit share + (1 - w) x (1 - pending / largest pending), with w = `weight`. In an idle
    pool the second term is 1 - w on all instances.
    """
    scores: FloatVector = weight * token_share(hits, prompt_tokens) + (1 - weight) * idleness(pending)
    return scores


ENTRY = PolicyEntry(
    name=CacheLoadLinear.name,
    intent="A weighted sum of the cached share of the prompt and idleness.",
    build=lambda parameters, seed: CacheLoadLinear(parameters),
    parameters=CacheLoadLinearParameters,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="score", unit=Unit.SCORE, better=Better.HIGHER),
        parts=("cache_score", "idle_score"),
        terms=(
            Term(name="cache_score", words="cached share × weight", unit=Unit.SCORE, better=Better.HIGHER),
            Term(name="idle_score", words="idleness × weight", unit=Unit.SCORE, better=Better.HIGHER),
        ),
        rules=(BEST_SCORE,),
    ),
)
