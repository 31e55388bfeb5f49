"""Least request: chooses the instance with the fewest requests waiting, prefilling and decoding, regardless of their
length.
"""

import numpy as np

from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.terms import REQUEST_COUNT
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import IntVector, lowest
from fairlead.routing.contracts.weighing import TOTAL, DecisionRule, PolicyTerms


class LeastRequest:
    """The policy `least-request`. Ties are broken at random."""

    name = "least-request"

    def __init__(self, seed: int) -> None:
        self._dice = Dice(seed)

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        requests = view.vectors().requests
        order = fewest_first(requests, self._dice)
        return ordered_decision(request, view, order, view.hit_vector(request), requests, DecisionReason.FEWEST_REQUESTS, "fewest-requests")


def fewest_first(requests: IntVector, dice: Dice, count: int = FALLBACKS + 1) -> list[int]:
    """Return the indexes of the `count` lowest numbers of requests; the first index is drawn at random among ties."""
    tied = np.flatnonzero(requests == requests.min())
    first = int(tied[0]) if len(tied) == 1 else int(tied[dice.below(len(tied))])
    return [first, *(index for index in lowest(requests, count) if index != first)][:count]


ENTRY = PolicyEntry(
    name=LeastRequest.name,
    intent="The instance with the fewest requests.",
    build=lambda parameters, seed: LeastRequest(seed),
    terms=PolicyTerms(
        total=REQUEST_COUNT,
        rules=(DecisionRule(code="fewest-requests", because="it had the fewest requests", order=(TOTAL,), ties="by chance"),),
    ),
)
