"""The lead of the chosen instance over the next best instance, in the term that decided between them."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.routing.contracts.weighing import TOTAL, Better, Term, better
from fairlead.routing.explanations.explaining import WeighedDecision, candidate, deciding, runner_up, term_of, value_of


class Standing(StrEnum):
    """The chosen instance compared with the next best instance. `ahead`: the chosen instance is better by the rule's
    order of terms, or by the score if the rule ignores the score. `equal`: both are equal in every term that the rule
    compares. `behind`: the chosen instance has a worse score, but the rule overrides the score.
    """

    AHEAD = "ahead"
    EQUAL = "equal"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The values of `term` for the chosen candidate and for the candidate `other`, the best of the remaining
    candidates.

    `by_rule` says that the rule compared these two values; otherwise `term` is the score, which did not decide.
    """

    standing: Standing
    term: Term
    other: str
    chosen_value: float
    other_value: float
    by_rule: bool

    @property
    def size(self) -> float:
        return abs(self.chosen_value - self.other_value)


def margin_of(decision: WeighedDecision) -> Margin | None:
    """Return the chosen candidate's margin; None if there was only one candidate, or if nothing can be compared."""
    chosen = candidate(decision, decision.target)
    if chosen is None:
        return None
    if not decision.rule.order:
        return _by_score(decision)
    other = runner_up(decision, chosen)
    if other is None:
        return None
    found = deciding(decision, chosen, other)
    if found is not None:
        term, mine, theirs = found
        standing = Standing.AHEAD if better(term, mine, theirs) else Standing.BEHIND
        return Margin(standing=standing, term=term, other=other.instance, chosen_value=mine, other_value=theirs, by_rule=True)
    first, value = term_of(decision, decision.rule.order[0]), value_of(chosen, decision.rule.order[0])
    if first is None or value is None:
        return None
    return Margin(standing=Standing.EQUAL, term=first, other=other.instance, chosen_value=value, other_value=value, by_rule=True)


def _by_score(decision: WeighedDecision) -> Margin | None:
    """Return the margin for a rule that compares no terms: the chosen candidate's score minus the best score of the
    other candidates.
    """
    total, chosen = term_of(decision, TOTAL), candidate(decision, decision.target)
    if total is None or chosen is None or chosen.total is None:
        return None
    others = [(one.total, one.instance) for one in decision.candidates if one.total is not None and one.instance != chosen.instance]
    if not others:
        return None
    value, other = min(others) if total.better is Better.LOWER else max(others)
    ahead = Standing.AHEAD if better(total, chosen.total, value) else Standing.BEHIND
    standing = Standing.EQUAL if value == chosen.total else ahead
    return Margin(standing=standing, term=total, other=other, chosen_value=chosen.total, other_value=value, by_rule=False)
