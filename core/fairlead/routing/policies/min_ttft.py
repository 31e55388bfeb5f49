"""Min TTFT: chooses the instance with the lowest predicted TTFT. The prediction uses the part of the prompt that the
instance holds and the instance's pending work.
"""

from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.terms import DECODE_TOKENS
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import lowest
from fairlead.routing.contracts.weighing import TOTAL, DecisionRule, PolicyTerms, Term, Unit


class MinTtft:
    """The policy `min-ttft`. Ties go to the fewest context tokens in running decodes, then to the lowest id."""

    name = "min-ttft"

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        hits = view.hit_vector(request)
        seconds = view.ttft_vector(request, hits)
        decodes = view.vectors().decode_tokens
        order = lowest(seconds, FALLBACKS + 1, decodes)
        return ordered_decision(
            request,
            view,
            order,
            hits,
            seconds,
            DecisionReason.SHORTEST_TTFT,
            "shortest-ttft",
            terms=lambda index: {"decode_tokens": float(decodes[index])},
            ttfts=lambda index: float(seconds[index]),
        )


ENTRY = PolicyEntry(
    name=MinTtft.name,
    intent="The instance predicted to give the first token soonest.",
    build=lambda parameters, seed: MinTtft(),
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="predicted TTFT", unit=Unit.SECONDS),
        terms=(DECODE_TOKENS,),
        rules=(DecisionRule(code="shortest-ttft", because="its predicted TTFT was the shortest", order=(TOTAL, "decode_tokens")),),
    ),
)
