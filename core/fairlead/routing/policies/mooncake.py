"""Mooncake's Conductor, Algorithm 1: chooses the instance with the shortest predicted TTFT. An instance may fetch a
prefix from another instance that holds much more of the prompt.

The best match is the longest match that an instance holds. If it is at least theta times as long as an instance's own
match, this instance's TTFT is predicted as if it fetched the best match. Choosing such an instance replicates a hot
prefix. This policy refuses no requests; the pool's early rejection mode does.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from fairlead.instances import Role
from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.decoding import select_decoding
from fairlead.routing.choosing.transfers import least_busy_holder, transfer_seconds
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector, lowest
from fairlead.routing.contracts.weighing import TOTAL, DecisionRule, PolicyTerms, Term, Unit
from fairlead.schemas.shapes import number, text

THETAS = {
    "mooncake-theta2": 2.0,
    "mooncake-theta1.25": 1.25,
    "mooncake-theta1.5": 1.5,
    "mooncake-theta4": 4.0,
    "mooncake-cache-aware": inf,
}
"""Theta of each preset. `mooncake-cache-aware`, the variant of the paper's ablation study, never fetches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MooncakeParameters(QueueParameters):
    """Parameters of `mooncake`."""

    preset: str = text("Preset for theta if theta is not given; cache-aware never fetches.", "mooncake-theta2", enum=tuple(THETAS))
    theta: float | None = number(
        "An instance may fetch the best match if it is at least this many times as long as the instance's own match; default: by preset.",
        None,
        minimum=1.01,
        maximum=1e6,
    )
    transfer_rule: str = text(
        (
            "Predicted TTFT of an instance that may fetch. `threshold`: always with the fetch (Algorithm 1); `shorter`: "
            "with the fetch or without it, whichever is shorter."
        ),
        "threshold",
        enum=("threshold", "shorter"),
    )

    @property
    def balancing_threshold(self) -> float:
        """The value of the parameter `theta`; if it is not set, the preset's value."""
        return THETAS[self.preset] if self.theta is None else self.theta


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """The predicted TTFT on each instance, and for each instance whether its TTFT includes fetching the best match from
    `source` (an index; None = no instance fetches).
    """

    ttft_seconds: FloatVector
    fetches: "np.typing.NDArray[np.bool_]"
    source: int | None


class Mooncake:
    """The policy `mooncake`. Ties go to the lowest id, as in the algorithm."""

    name = "mooncake"

    def __init__(self, parameters: MooncakeParameters) -> None:
        self._theta = parameters.balancing_threshold
        self._shorter = parameters.transfer_rule == "shorter"

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        hits = view.hit_vector(request)
        holder = int(hits.argmax())
        most = int(hits[holder])
        plans = self._plans(request, hits, holder, view)
        order = lowest(plans.ttft_seconds, FALLBACKS + 1)
        best = order[0]
        loads = view.vectors().loads
        fetched_from = None
        if plans.source is not None and plans.fetches[best]:
            reason, fetched_from = DecisionReason.PREFIX_REPLICATED, loads[plans.source].entry.id
        else:
            reason = DecisionReason.PREFIX_AFFINITY if most and hits[best] == most else DecisionReason.SHORTEST_TTFT
        decode = select_decoding(request, view, loads[best].entry) if loads[best].entry.role is Role.PREFILL else None
        return ordered_decision(
            request,
            view,
            order,
            hits,
            plans.ttft_seconds,
            reason,
            "shortest-ttft",
            terms=lambda index: {"fetched_tokens": float(most - hits[index]) if plans.source is not None and plans.fetches[index] else 0.0},
            ttfts=lambda index: float(plans.ttft_seconds[index]),
            decode=None if decode is None else decode.instance,
            transfer_from=fetched_from,
            ttft_seconds=float(plans.ttft_seconds[best]),
        )

    def _plans(self, request: RoutingRequest, hits: IntVector, holder: int, view: PoolView) -> FetchOptions:
        """Return the predicted TTFTs with and without fetching; `holder` is the index of the first instance that holds
        the best match.
        """
        most = hits[holder]
        speed = view.fetching(request) if most and self._theta < inf else None
        if speed is None:
            return FetchOptions(ttft_seconds=view.ttft_vector(request, hits), fetches=np.zeros(len(hits), dtype=np.bool_), source=None)
        loads = view.vectors().loads
        source = least_busy_holder(hits, most, view.vectors()) if loads[holder].transfers_out else holder
        fetches = hits <= most / self._theta  # the best match is at least theta times as long as their own
        fetching = fetches * transfer_seconds(most - hits, loads[source].transfers_out, speed)
        with_fetch: FloatVector = view.ttft_vector(request, np.where(fetches, most, hits)) + fetching
        if self._shorter:
            alone = view.ttft_vector(request, hits)
            fetches &= with_fetch < alone
            return FetchOptions(ttft_seconds=np.minimum(with_fetch, alone), fetches=fetches, source=source)
        return FetchOptions(ttft_seconds=with_fetch, fetches=fetches, source=source)


ENTRY = PolicyEntry(
    name=Mooncake.name,
    intent="The shortest predicted TTFT, if necessary after fetching a prefix that another instance holds.",
    build=lambda parameters, seed: Mooncake(parameters),
    parameters=MooncakeParameters,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="predicted TTFT, fetching included", unit=Unit.SECONDS),
        terms=(Term(name="fetched_tokens", words="of the prompt to be fetched", unit=Unit.TOKENS),),
        rules=(DecisionRule(code="shortest-ttft", because="its predicted TTFT was the shortest", order=(TOTAL,)),),
    ),
)
