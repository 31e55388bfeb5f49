"""The ground of a recorded decision: its rule, terms and limits, as declared by its policy."""

from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.routing.contracts.weighing import (
    COMMON_LIMITS,
    COMMON_RULES,
    COMMON_TERMS,
    NOT_RECORDED,
    TIER_TERMS,
    TOTAL,
    DecisionRule,
    Limit,
    PolicyTerms,
    Term,
    Unit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitValue(Limit):
    """A limit and its value in one decision."""

    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The rule, terms and limits of a recorded decision. Sentences and checks are made from them and from the
    candidates alone.
    """

    rule: DecisionRule
    terms: tuple[Term, ...]
    parts: tuple[str, ...]
    limits: tuple[LimitValue, ...]


def ground_of(known: PolicyTerms | None, code: str, limits: Mapping[str, float]) -> Ground:
    """Return the rule, terms and limits of a decision, as its policy declares them. `known` is None if this version
    does not know the policy.

    If this version does not know the rule, the result names the rule by its code.
    """
    unknown = DecisionRule(
        code=code, because="the rule that decided is not known to this version" if code != NOT_RECORDED else "the rule was not recorded"
    )
    named = limits_of(known)
    values = [(named.get(name, Limit(name=name, words=name, unit=Unit.SCORE)), value) for name, value in limits.items()]
    return Ground(
        rule=rule_of(known, code) or unknown,
        terms=tuple(terms_of(known).values()),
        parts=() if known is None else known.parts,
        limits=tuple(LimitValue(name=limit.name, words=limit.words, unit=limit.unit, value=value) for limit, value in values),
    )


def rule_of(known: PolicyTerms | None, code: str) -> DecisionRule | None:
    """Return the rule with this code; None if this version does not know it."""
    rules = COMMON_RULES if known is None else (*COMMON_RULES, *known.rules)
    return next((rule for rule in rules if rule.code == code), None)


def terms_of(known: PolicyTerms | None) -> dict[str, Term]:
    """Return all terms by name: the common terms, the terms of cache tiers, the policy's own terms and its total."""
    found = {term.name: term for term in (*COMMON_TERMS, *TIER_TERMS)}
    if known is not None:
        found |= {term.name: term for term in known.terms}
        if known.total is not None:
            found[TOTAL] = known.total
    return found


def limits_of(known: PolicyTerms | None) -> dict[str, Limit]:
    return {limit.name: limit for limit in (*COMMON_LIMITS, *(known.limits if known is not None else ()))}
