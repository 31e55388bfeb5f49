"""Prefix cache and load aware: chooses the longest match unless its instance has too many requests; if the pool is out
of balance, chooses the instance with the fewest requests.

The policy has two stages (Lodestar's Algorithm 1, AIBrix's `prefix-cache`). If request counts differ by more than a
threshold, the instance with the fewest requests gets the request. Otherwise the longest match wins among instances with
at most mean + factor x standard deviation of requests.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.terms import REQUEST_COUNT
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import IntVector
from fairlead.routing.contracts.weighing import TOTAL, Comparison, DecisionRule, Holds, Limit, PolicyTerms, Unit
from fairlead.routing.policies.least_request import fewest_first
from fairlead.schemas.shapes import number, text, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheLoadParameters(QueueParameters):
    """Parameters of `prefix-cache-load`."""

    imbalance_requests: int = whole(
        "If the most and the fewest requests differ by more than this, the instance with the fewest wins.", 8, maximum=1_000_000
    )
    deviations: float = number(
        "A match counts only if its instance has at most mean + this many standard deviations of requests.", 1.0, minimum=0.0, maximum=100.0
    )
    deviation: str = text(
        "Kind of standard deviation: `sample` (over n - 1, as in the published code) or `population`.",
        "sample",
        enum=("sample", "population"),
    )


class PrefixCacheLoad:
    """The policy `prefix-cache-load`. Ties for the fewest requests are broken at random."""

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
    """Return whether the largest and the smallest number of requests differ by more than the threshold (first
    stage).
    """
    return int(requests.max() - requests.min()) > threshold


def longest_match_within(requests: IntVector, hits: IntVector, deviations: float, *, sample: bool = True) -> int | None:
    """Return the index of the longest match among instances whose number of requests is within the bound (second
    stage). Ties go to the instance with the fewest requests, then to the lowest index. None if no such instance has a
    match.
    """
    bound = crowding_bound(requests, deviations, sample=sample)
    order = np.lexsort((requests, -hits))
    return next((int(index) for index in order if hits[index] > 0 and requests[index] <= bound), None)


def crowding_bound(requests: IntVector, deviations: float, *, sample: bool) -> float:
    """Return the largest number of requests that an instance may have without counting as crowded: mean + `deviations`
    x standard deviation. The standard deviation of a single instance is 0.
    """
    count = len(requests)
    mean = float(requests.sum()) / count
    squares = float(((requests - mean) ** 2).sum())
    return mean + deviations * sqrt(squares / max(1, count - 1 if sample else count))


ENTRY = PolicyEntry(
    name=PrefixCacheLoad.name,
    intent="The longest match on an instance that is not crowded; the fewest requests when the pool is out of balance.",
    build=PrefixCacheLoad,
    parameters=PrefixCacheLoadParameters,
    terms=PolicyTerms(
        total=REQUEST_COUNT,
        limits=(
            Limit(name="imbalance", words="distance between the most and the fewest requests", unit=Unit.REQUESTS),
            Limit(name="imbalance_requests", words="distance that is still balanced", unit=Unit.REQUESTS),
            Limit(name="crowding_bound", words="requests above which an instance is crowded", unit=Unit.SCORE),
        ),
        rules=(
            DecisionRule(
                code="imbalanced",
                because="the pool was out of balance, and it had the fewest requests",
                order=(TOTAL,),
                given=(Comparison(term="imbalance", holds=Holds.ABOVE, against="imbalance_requests"),),
                ties="by chance",
            ),
            DecisionRule(
                code="longest-match",
                because="it held the most of the prompt among those that were not crowded",
                order=("hit_tokens", TOTAL),
                among=Comparison(term=TOTAL, holds=Holds.AT_MOST, against="crowding_bound"),
            ),
            DecisionRule(
                code="fewest-requests",
                because="no uncrowded instance held any of the prompt, and it had the fewest requests",
                order=(TOTAL,),
            ),
        ),
    ),
)
