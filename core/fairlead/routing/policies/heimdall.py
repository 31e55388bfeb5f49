"""Heimdall: weighted scorers (short queue, free KV cache, precise prefix) over the exact prefix index, and a picker
that chooses the highest sum.
"""

from dataclasses import dataclass

from fairlead.routing.choosing.candidates import ordered_decision
from fairlead.routing.choosing.considered import Considered
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.pickers import BEST, MaxScorePicker
from fairlead.routing.choosing.profiles import Profile, Scorer, WeightedScorer
from fairlead.routing.choosing.scorers.loads import KvCacheUtilizationScorer, QueueScorer
from fairlead.routing.choosing.scorers.prefixes import PrefixCacheScorer, PrefixMatches, RelativePrefixScorer
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import TOTAL, Better, DecisionRule, PolicyTerms, Term, Unit
from fairlead.schemas.shapes import number, text, whole

HEIMDALL_PRESETS = ("heimdall-abs", "heimdall-minmax")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeimdallParameters(QueueParameters):
    """Parameters of `heimdall`."""

    preset: str = text(
        (
            "How matched prefixes score. `heimdall-abs`: the matched share of the prompt's blocks; `heimdall-minmax`: the match "
            "on a scale from the smallest to the largest match of an instance."
        ),
        "heimdall-abs",
        enum=HEIMDALL_PRESETS,
    )
    queue_weight: float = number("Weight of a short queue.", 2.0, minimum=0.0, maximum=1000.0)
    kv_weight: float = number("Weight of a free KV cache.", 2.0, minimum=0.0, maximum=1000.0)
    prefix_weight: float = number("Weight of the matched prefix.", 3.0, minimum=0.0, maximum=1000.0)
    max_endpoints: int = whole(
        "Number of instances picked: the best one, and the instances on which a failed request is retried, in order.",
        4,
        minimum=1,
        maximum=16,
    )


class Heimdall:
    """The policy `heimdall`. Ties are broken at random, because the picker shuffles before it sorts."""

    name = "heimdall"

    def __init__(self, parameters: HeimdallParameters, seed: int) -> None:
        prefix: Scorer = RelativePrefixScorer() if parameters.preset == "heimdall-minmax" else PrefixCacheScorer(PrefixMatches())
        self._profile = Profile(
            scorers=(
                WeightedScorer(scorer=QueueScorer(), weight=parameters.queue_weight),
                WeightedScorer(scorer=KvCacheUtilizationScorer(), weight=parameters.kv_weight),
                WeightedScorer(scorer=prefix, weight=parameters.prefix_weight),
            ),
            picker=MaxScorePicker(max_num_of_endpoints=parameters.max_endpoints),
        )
        self._dice = Dice(seed)

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        seen = Considered.of(request, view, now)
        picked = self._profile.run(seen, self._dice)

        def terms(index: int) -> dict[str, float]:
            return {name: float(scores[index]) for name, scores in picked.terms.items()}

        order = picked.order[: picked.count]
        return ordered_decision(request, view, order, seen.hits, picked.totals, DecisionReason.BEST_SCORE, picked.rule, terms=terms)


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
        rules=(DecisionRule(code=BEST, because="its score was the best", order=(TOTAL,), ties="by chance"),),
    ),
)
