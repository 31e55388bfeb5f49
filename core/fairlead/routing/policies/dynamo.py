"""Dynamo: the score of an instance is the cached share of the prompt minus the load, both normalised. NVIDIA Dynamo's
first KV router scored workers in this way.
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
class DynamoParameters(QueueParameters):
    """Parameters of `dynamo`."""

    match_weight: float = number("Weight of the cached share of the prompt (0-1).", 1.0, minimum=0.0, maximum=100.0)
    load_weight: float = number(
        "Weight of the load: pending and decoding tokens as a share of the most loaded.", 1.0, minimum=0.0, maximum=100.0
    )


class Dynamo:
    """The policy `dynamo`. Ties go to the less loaded instance, then to the lowest id."""

    name = "dynamo"

    def __init__(self, parameters: DynamoParameters) -> None:
        self._match = parameters.match_weight
        self._load = parameters.load_weight

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        hits = view.hit_vector(request)
        vectors = view.vectors()
        tokens = vectors.pending + vectors.decode_tokens
        scores = overlap_less_load(hits, request.prompt_tokens, tokens, self._match, self._load)
        order = highest(scores, FALLBACKS + 1, tokens)

        def terms(index: int) -> dict[str, float]:
            overlap = self._match * float(token_share(hits, request.prompt_tokens)[index])
            return {"overlap_score": overlap, "load_score": self._load * (float(idleness(tokens)[index]) - 1)}

        return ordered_decision(request, view, order, hits, scores, DecisionReason.BEST_SCORE, "best-score", terms=terms)


def overlap_less_load(hits: IntVector, prompt_tokens: int, tokens: IntVector, match_weight: float, load_weight: float) -> FloatVector:
    """Return, per instance, `match_weight` x cached share of the prompt - `load_weight` x tokens / largest number of
    tokens of an instance.
    """
    scores: FloatVector = match_weight * token_share(hits, prompt_tokens) + load_weight * (idleness(tokens) - 1)
    return scores


ENTRY = PolicyEntry(
    name=Dynamo.name,
    intent="The cached share of the prompt minus the load, both normalised.",
    build=lambda parameters, seed: Dynamo(parameters),
    parameters=DynamoParameters,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="score", unit=Unit.SCORE, better=Better.HIGHER),
        parts=("overlap_score", "load_score"),
        terms=(
            Term(name="overlap_score", words="cached share × weight", unit=Unit.SCORE, better=Better.HIGHER),
            Term(name="load_score", words="load share × weight, negative", unit=Unit.SCORE, better=Better.HIGHER),
        ),
        rules=(BEST_SCORE,),
    ),
)
