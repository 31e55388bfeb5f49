"""Heimdall: weighted scorers (short queue, free KV cache, precise prefix) over the exact prefix index, and a max-score picker."""

from collections.abc import Sequence

import numpy as np

from fairlead.routing.choosing.candidates import ordered_decision
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.scorers import loads, prefixes
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector
from fairlead.routing.policies.free_choice import FreeChoice
from fairlead.routing.policies.policy_parameters import HeimdallParameters


class Heimdall(FreeChoice):
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
