"""Heimdall: weighted scorers (short queue, free KV cache, precise prefix) over the exact prefix
index, and a max-score picker.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.routing.choosing.candidates import ordered_decision
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.scorers import loads, prefixes
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector
from fairlead.routing.contracts.weighing import TOTAL, Better, DecisionRule, PolicyTerms, Term, Unit
from fairlead.schemas.shapes import number, text, whole

HEIMDALL_PRESETS = ("heimdall-abs", "heimdall-minmax")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeimdallParameters(QueueParameters):
    """Parameters of `heimdall`."""

    preset: str = text(
        "How matched prefixes score: `heimdall-abs` matched share of the prompt's blocks, `heimdall-minmax` spread between the matching instances.",
        "heimdall-abs",
        enum=HEIMDALL_PRESETS,
    )
    queue_weight: float = number("Weight of a short queue.", 2.0, minimum=0.0, maximum=1000.0)
    kv_weight: float = number("Weight of a free KV cache.", 2.0, minimum=0.0, maximum=1000.0)
    prefix_weight: float = number("Weight of the matched prefix.", 3.0, minimum=0.0, maximum=1000.0)
    max_endpoints: int = whole(
        "Instances picked: the best, and in order those a failed request is tried on next.", 4, minimum=1, maximum=16
    )


class Heimdall:
    """The policy `heimdall`. Ties go by chance, as the picker shuffles before it sorts."""

    name = "heimdall"

    def __init__(self, parameters: HeimdallParameters, seed: int) -> None:
        self._parameters = parameters
        self._dice = Dice(seed)

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        given = self._parameters
        vectors = view.vectors()
        hits = view.hit_vector(request)
        engine = view.table.engine
        block = engine.block_tokens
        matched = (hits + block - 1) // block  # the one token always computed does not cost the last block its match
        prefix = (
            prefixes.minmax(matched) if given.preset == "heimdall-minmax" else prefixes.absolute(matched, request.prompt_tokens // block)
        )
        queue = loads.short_queue(vectors.queued)
        usage = loads.free_kv(vectors.kv_usage)
        totals: FloatVector = given.queue_weight * queue + given.kv_weight * usage + given.prefix_weight * prefix

        def terms(index: int) -> dict[str, float]:
            return {
                "queue_score": given.queue_weight * float(queue[index]),
                "kv_score": given.kv_weight * float(usage[index]),
                "prefix_score": given.prefix_weight * float(prefix[index]),
            }

        picked = max_score(totals, given.max_endpoints, self._dice)
        return ordered_decision(request, view, picked, hits, totals, DecisionReason.BEST_SCORE, "best-score", terms=terms)


def max_score(totals: FloatVector, endpoints: int, dice: Dice) -> Sequence[int]:
    """Indexes of the best `endpoints` (at least 1) totals, best first, ties shuffled."""
    scores: list[float] = totals.tolist()
    count = min(max(1, endpoints), len(scores))
    least = float(np.partition(totals, -count)[-count])
    return sorted([index for index in dice.shuffled(len(scores)) if scores[index] >= least], key=lambda index: -scores[index])[:count]


ENTRY = PolicyEntry(
    name=Heimdall.name,
    intent="Weighted scorers for queue, KV cache and precise prefix; the highest sum wins.",
    build=Heimdall,
    parameters=HeimdallParameters,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="score", unit=Unit.SCORE, better=Better.HIGHER),
        parts=("queue_score", "kv_score", "prefix_score"),
        terms=(
            Term(name="queue_score", words="short queue × weight", unit=Unit.SCORE, better=Better.HIGHER),
            Term(name="kv_score", words="free KV cache × weight", unit=Unit.SCORE, better=Better.HIGHER),
            Term(name="prefix_score", words="cached prefix × weight", unit=Unit.SCORE, better=Better.HIGHER),
        ),
        rules=(DecisionRule(code="best-score", because="its score was the best", order=(TOTAL,), ties="by chance"),),
    ),
)
