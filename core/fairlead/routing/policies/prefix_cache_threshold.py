"""Prefix cache with a threshold: the longest match when it covers enough of the prompt, else the fewest requests."""

from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import highest
from fairlead.routing.policies.free_choice import FreeChoice
from fairlead.routing.policies.least_request import fewest_first
from fairlead.routing.policies.policy_parameters import PrefixCacheThresholdParameters


class PrefixCacheThreshold(FreeChoice):
    """The policy `prefix-cache-threshold`. Equal matches go to the fewest requests, then by id; ties for the fewest requests by chance."""

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
