"""Prefix cache and load aware: the longest match unless that instance is crowded, and the least crowded when the pool is out of balance.

Two stages (Lodestar's Algorithm 1, AIBrix's `prefix-cache`): counts further apart than a threshold send the request to the fewest; otherwise the
longest match wins whose count is not above mean + factor x standard deviation.
"""

from math import sqrt

import numpy as np

from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import IntVector
from fairlead.routing.policies.free_choice import FreeChoice
from fairlead.routing.policies.least_request import fewest_first
from fairlead.routing.policies.policy_parameters import PrefixCacheLoadParameters


class PrefixCacheLoad(FreeChoice):
    """The policy `prefix-cache-load`. Ties for the fewest requests go by chance."""

    name = "prefix-cache-load"

    def __init__(self, parameters: PrefixCacheLoadParameters, seed: int) -> None:
        self._parameters = parameters
        self._dice = Dice(seed)

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        given = self._parameters
        requests = view.vectors().requests
        hits = view.hit_vector(request)
        order = fewest_first(requests, self._dice)
        reason, rule, limits = DecisionReason.FEWEST_REQUESTS, "fewest-requests", {}
        if is_imbalanced(requests, given.imbalance_requests):
            reason, rule = DecisionReason.LOAD_IMBALANCED, "imbalanced"
            limits = {"imbalance": float(requests.max() - requests.min()), "imbalance_requests": float(given.imbalance_requests)}
        else:
            matched = longest_match_within(requests, hits, given.deviations, sample=given.deviation == "sample")
            if matched is not None:
                order = [matched, *(index for index in order if index != matched)][: FALLBACKS + 1]
                reason, rule = DecisionReason.PREFIX_AFFINITY, "longest-match"
                limits = {"crowding_bound": crowding_bound(requests, given.deviations, sample=given.deviation == "sample")}
        return ordered_decision(request, view, order, hits, requests, reason, rule, limits=limits)


def is_imbalanced(requests: IntVector, threshold: int) -> bool:
    """First stage: whether counts are further apart than the threshold."""
    return int(requests.max() - requests.min()) > threshold


def longest_match_within(requests: IntVector, hits: IntVector, deviations: float, *, sample: bool = True) -> int | None:
    """Second stage: index of the longest match (ties: fewest requests, then first) whose count is within the bound; None without any."""
    bound = crowding_bound(requests, deviations, sample=sample)
    order = np.lexsort((requests, -hits))
    return next((int(index) for index in order if hits[index] > 0 and requests[index] <= bound), None)


def crowding_bound(requests: IntVector, deviations: float, *, sample: bool) -> float:
    """Mean + deviations x standard deviation; a single instance deviates by 0."""
    count = len(requests)
    mean = float(requests.sum()) / count
    squares = float(((requests - mean) ** 2).sum())
    return mean + deviations * sqrt(squares / max(1, count - 1 if sample else count))
