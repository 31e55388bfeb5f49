"""Prefix cache with a threshold: chooses the longest match if it covers enough of the prompt, else the instance with
the fewest requests.
"""

from dataclasses import dataclass

from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.terms import REQUEST_COUNT
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import highest
from fairlead.routing.contracts.weighing import TOTAL, Comparison, DecisionRule, Holds, Limit, PolicyTerms, Unit
from fairlead.routing.policies.least_request import fewest_first
from fairlead.schemas.shapes import number


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheThresholdParameters(QueueParameters):
    """Parameters of `prefix-cache-threshold`."""

    match_percent: float = number(
        "The longest match wins when it covers more than this percentage of the prompt; 100 = never.", 50.0, minimum=0.0, maximum=100.0
    )


class PrefixCacheThreshold:
    """The policy `prefix-cache-threshold`.

    Among equal matches, the instance with the fewest requests wins, then the lowest id. Ties for the fewest requests in
    the pool are broken at random.
    """

    name = "prefix-cache-threshold"

    def __init__(self, parameters: PrefixCacheThresholdParameters, seed: int) -> None:
        self._percent = parameters.match_percent
        self._dice = Dice(seed)

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        requests = view.vectors().requests
        hits = view.hit_vector(request)
        if 100 * int(hits.max()) > self._percent * request.prompt_tokens:
            order, reason, rule = highest(hits, FALLBACKS + 1, requests), DecisionReason.PREFIX_AFFINITY, "longest-match"
        else:
            order, reason, rule = fewest_first(requests, self._dice), DecisionReason.FEWEST_REQUESTS, "fewest-requests"
        limits = {"match_tokens": self._percent * request.prompt_tokens / 100}
        return ordered_decision(request, view, order, hits, requests, reason, rule, limits=limits)


ENTRY = PolicyEntry(
    name=PrefixCacheThreshold.name,
    intent="The longest match when it covers enough of the prompt, else the fewest requests.",
    build=PrefixCacheThreshold,
    parameters=PrefixCacheThresholdParameters,
    terms=PolicyTerms(
        total=REQUEST_COUNT,
        limits=(Limit(name="match_tokens", words="cached share from which a match decides", unit=Unit.TOKENS),),
        rules=(
            DecisionRule(
                code="longest-match",
                because="it held the most of the prompt, and enough of it",
                order=("hit_tokens", TOTAL),
                given=(Comparison(term="hit_tokens", holds=Holds.ABOVE, against="match_tokens"),),
            ),
            DecisionRule(
                code="fewest-requests",
                because="no instance held enough of the prompt, and it had the fewest requests",
                order=(TOTAL,),
                given=(Comparison(term="hit_tokens", holds=Holds.AT_MOST, against="match_tokens"),),
                ties="by chance",
            ),
        ),
    ),
)
