"""A scheduling profile: a sequence of filters, weighted scorers, and a picker, as in the framework of the Gateway API
Inference Extension and llm-d.

Every score is multiplied by its weight and the products are added; the sum is not normalised. Scorers see only
instances that passed the filters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from fairlead.routing.choosing.considered import BoolVector, Considered
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.pickers import BEST, Picker
from fairlead.routing.contracts.vectors import FloatVector, IntVector

BEST_PASSING, BEST_OF_NONE = "best-passing", "best-of-none"


class Scorer(Protocol):
    """A function that scores one aspect of every instance from 0 to 1; higher is better. `term` names the aspect in the
    record of a decision.
    """

    term: ClassVar[str]

    def scores(self, seen: Considered) -> FloatVector: ...


@runtime_checkable
class Remembers(Protocol):
    """A scorer whose later scores depend on earlier choices. It is called with the picked instance."""

    def picked(self, seen: Considered, place: int) -> None:
        """Record that the request goes to the instance at this index among the considered instances."""


class Filter(Protocol):
    """A function that selects the instances that may be picked."""

    def kept(self, seen: Considered, dice: Dice) -> BoolVector: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedScorer:
    """A scorer and its weight."""

    scorer: Scorer
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """The choice of a profile. Each vector has an entry for each candidate of the view; an instance that was filtered
    out has 0.
    """

    order: Sequence[int]
    """Indexes of candidates: first the picked candidates, then the next best candidates that passed the filters."""
    count: int
    """The number of picked candidates at the beginning of `order`."""
    totals: FloatVector
    terms: Mapping[str, FloatVector]
    """The weighted scores, keyed by the name of the term."""
    rule: str
    passing: IntVector | None
    """Indexes of candidates that passed the filters; None if all passed, or if no candidate passed."""


class Profile:
    """Filters, scorers and a picker, applied to all candidates. If no instance passes the filters, all instances are
    scored, because some instance must take the request. (llm-d would refuse the request.)
    """

    def __init__(self, *, filters: Sequence[Filter] = (), scorers: Sequence[WeightedScorer] = (), picker: Picker) -> None:
        self.filters = tuple(filters)
        self.scorers = tuple(scorers)
        self.picker = picker
        self._remembering = [one.scorer for one in scorers if isinstance(one.scorer, Remembers)]

    def run(self, seen: Considered, dice: Dice) -> Picked:
        """Choose among the considered candidates; there must be at least one candidate."""
        passing, rule = self._filtered(seen, dice)
        terms: dict[str, FloatVector] = {}
        for one in self.scorers:
            term, weighted = one.scorer.term, one.scorer.scores(passing) * one.weight
            terms[term] = terms[term] + weighted if term in terms else weighted
        totals: FloatVector = sum(terms.values(), start=np.zeros(len(passing)))
        order = self.picker.order(totals, dice)
        for scorer in self._remembering:
            scorer.picked(passing, order[0])
        filtered = len(passing) < len(seen)
        if filtered:
            order = passing.places[order].tolist()
            totals = _spread(totals, passing.places, len(seen))
            terms = {name: _spread(vector, passing.places, len(seen)) for name, vector in terms.items()}
        return Picked(
            order=order,
            count=min(self.picker.max_num_of_endpoints, len(order)),
            totals=totals,
            terms=terms,
            rule=rule if self.picker.rule == BEST else self.picker.rule,
            passing=passing.places if filtered else None,
        )

    def _filtered(self, seen: Considered, dice: Dice) -> tuple[Considered, str]:
        """Return the candidates that passed the filters, and the name of the rule by which one of them is chosen."""
        passing = seen
        for each in self.filters:
            kept = each.kept(passing, dice)
            if not kept.any():
                return seen, BEST_OF_NONE
            if not kept.all():
                passing = passing.only(kept)
        return passing, BEST if len(passing) == len(seen) else BEST_PASSING


def _spread(vector: FloatVector, places: IntVector, count: int) -> FloatVector:
    whole = np.zeros(count)
    whole[places] = vector
    return whole
