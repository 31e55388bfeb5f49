"""Pickers: choose the instance for a request by each instance's sum of scores. The classes implement llm-d's plugins of
the given names.

`order` returns indexes into the sums: first the picked instances, then the next best, which are only recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log, ulp
from typing import ClassVar

import numpy as np

from fairlead.routing.choosing.candidates import FALLBACKS
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.contracts.vectors import FloatVector
from fairlead.schemas.shapes import whole

_LEAST = ulp(0.0)

BEST, DRAWN_BY_SCORE, DRAWN = "best-score", "drawn-by-score", "drawn"


def best(totals: FloatVector, count: int, dice: Dice) -> Sequence[int]:
    """Return the indexes of the `count` (at least 1) highest sums, best first; equal sums are in random order."""
    scores: list[float] = totals.tolist()
    count = min(max(1, count), len(scores))
    least = float(np.partition(totals, -count)[-count])
    return sorted([index for index in dice.shuffled(len(scores)) if scores[index] >= least], key=lambda index: -scores[index])[:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxScorePicker:
    """`max-score-picker`: picks the highest sums; ties are broken at random."""

    rule: ClassVar[str] = BEST

    max_num_of_endpoints: int = whole(
        "Number of instances picked: the best one, and the instances on which a failed request is retried, in order.",
        1,
        minimum=1,
        maximum=64,
    )

    def order(self, totals: FloatVector, dice: Dice) -> Sequence[int]:
        return best(totals, max(self.max_num_of_endpoints, FALLBACKS + 1), dice)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomPicker:
    """`random-picker`: picks a random instance, regardless of the weighted sums of the scores."""

    rule: ClassVar[str] = DRAWN

    max_num_of_endpoints: int = whole("Number of instances picked; all are equally likely.", 1, minimum=1, maximum=64)

    def order(self, totals: FloatVector, dice: Dice) -> Sequence[int]:
        return dice.shuffled(len(totals))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedRandomPicker:
    """`weighted-random-picker`: picks each instance with a probability proportional to its sum; with equal
    probabilities if no sum is above 0.

    Samples without replacement after Efraimidis and Spirakis (A-Res): the highest U^(1/sum), with U drawn from 0 to 1.
    Logarithms are compared, because for small sums all powers would round to 0.
    """

    rule: ClassVar[str] = DRAWN_BY_SCORE

    max_num_of_endpoints: int = whole(
        "Number of instances picked; each one's probability is proportional to its sum of scores.", 1, minimum=1, maximum=64
    )

    def order(self, totals: FloatVector, dice: Dice) -> Sequence[int]:
        scores: list[float] = totals.tolist()
        if not any(score > 0 for score in scores):
            return dice.shuffled(len(scores))
        keys = [log(dice.fraction() or _LEAST) / score if score > 0 else -inf for score in scores]
        return sorted(range(len(keys)), key=lambda index: -keys[index])


Picker = MaxScorePicker | RandomPicker | WeightedRandomPicker
