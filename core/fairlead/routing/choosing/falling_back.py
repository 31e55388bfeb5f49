"""Falling back: a decision that a policy leaves to its heuristic. The record names the reason for falling back and the
heuristic's rule.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from fairlead.reports.decisions import Weighing
from fairlead.routing.contracts.weighing import TOTAL, Comparison, DecisionRule, PolicyTerms

OTHER_TOTAL = "requests"
"""The name under which the heuristic's total is recorded, because it is a different quantity than the policy's
total.
"""


def rules_for(reasons: Mapping[str, str], heuristic: PolicyTerms) -> tuple[DecisionRule, ...]:
    """Return a rule, such as `cold-start-imbalanced`, for each pair of a reason to fall back (`reasons`: code → words)
    and a rule of the heuristic.
    """
    return tuple(
        replace(
            rule,
            code=f"{code}-{rule.code}",
            because=f"{words}, so the heuristic chose: {rule.because}",
            order=tuple(_renamed(term) for term in rule.order),
            among=None if rule.among is None else _compared(rule.among),
            given=tuple(_compared(one) for one in rule.given),
        )
        for code, words in reasons.items()
        for rule in heuristic.rules
    )


def as_fallback(
    weigh: Callable[[], Weighing], code: str, only_instance: str, terms: Callable[[str], dict[str, float]]
) -> Callable[[], Weighing]:
    """Return a function that records the heuristic's choice under the rule for the reason `code`. It adds the `terms`
    of each instance to the heuristic's terms.
    """

    def weighed() -> Weighing:
        plain = weigh()
        return replace(
            plain,
            rule=plain.rule if plain.rule == only_instance else f"{code}-{plain.rule}",
            candidates=tuple(
                replace(one, total=None, terms=({} if one.total is None else {OTHER_TOTAL: one.total}) | terms(one.instance))
                for one in plain.candidates
            ),
        )

    return weighed


def _renamed(term: str) -> str:
    return OTHER_TOTAL if term == TOTAL else term


def _compared(comparison: Comparison) -> Comparison:
    return replace(comparison, term=_renamed(comparison.term), against=_renamed(comparison.against))
