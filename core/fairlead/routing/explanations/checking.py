"""Checks recorded decisions for contradictions: each choice is computed again from the recorded rule, terms and limits,
and compared with the recorded choice.
"""

from math import isclose, isfinite

from fairlead.routing.contracts.weighing import (
    INDIVISIBLE,
    MOVED_BY_PERSON,
    NO_PREFILL,
    NOBODY,
    NOT_RECORDED,
    NOT_WEIGHED,
    ONLY_INSTANCE,
    QUEUE_FULL,
    STAYS_PAUSED,
    TOTAL,
)
from fairlead.routing.explanations.explaining import (
    WeighedDecision,
    beats,
    candidate,
    eligible,
    holds,
    sides,
    term_of,
    value_of,
)


def contradictions(decision: WeighedDecision, parts: tuple[str, ...], considered: int, reason: str) -> list[str]:
    """Return the contradictions in the record, in words; empty if the record is consistent. `parts` are the terms whose
    sum is the total.
    """
    if decision.rule.code in {NOT_RECORDED, NOT_WEIGHED, NOBODY}:
        return []
    chosen = candidate(decision, decision.target)
    if chosen is None:
        return [f"the chosen {decision.target} is not among the candidates"]
    found: list[str] = []
    names = [one.instance for one in decision.candidates]
    if len(set(names)) < len(names):
        found.append("a candidate is listed twice")
    for one in decision.candidates:
        numbers = [one.predicted_ttft_seconds, *one.terms.values(), *([one.total] if one.total is not None else [])]
        if not all(isfinite(number) for number in numbers):
            found.append(f"{one.instance} has a term that is not a number")
        unknown = [name for name in one.terms if term_of(decision, name) is None]
        if unknown:
            found.append(f"{one.instance} has undeclared terms: {', '.join(unknown)}")
        if (
            parts
            and one.total is not None
            and not isclose(one.total, sum(value_of(one, part) or 0.0 for part in parts), abs_tol=1e-6, rel_tol=1e-6)
        ):
            found.append(f"the total {one.total} of {one.instance} is not the sum of {', '.join(parts)}")
    if (decision.rule.code == ONLY_INSTANCE) and considered != 1:
        found.append(f"it was the only instance, but {considered} were considered")
    if decision.rule.code == QUEUE_FULL and decision.passed_over in (None, decision.target):
        found.append("the queue of the policy's choice was full, but that choice is not recorded")
    if decision.rule.code in {STAYS_PAUSED, MOVED_BY_PERSON} and decision.passed_over in (None, decision.target):
        found.append("the policy's choice was overruled, but is not recorded")
    if decision.decode is not None and decision.decode == decision.served_by:
        found.append(f"{decision.decode} was recorded as the decode instance of its own prefill")
    return [*found, *_rule(decision), *_reason(decision, reason)]


def _rule(decision: WeighedDecision) -> list[str]:
    chosen = candidate(decision, decision.target)
    assert chosen is not None
    found: list[str] = []
    for condition in decision.rule.given:
        left, right = sides(decision, condition, chosen)
        if left is None or right is None:
            found.append(f"rule {decision.rule.code} needs {condition.term} and {condition.against}, which were not recorded")
        elif not holds(condition, left, right):
            found.append(
                f"rule {decision.rule.code} requires {condition.term} {condition.holds} {condition.against}, but {left} "
                f"and {right} do not satisfy this"
            )
    missing = [
        f"{one.instance} has no {name}"
        for one in decision.candidates
        for name in decision.rule.order
        if term_of(decision, name) is None or value_of(one, name) is None
    ]
    if missing:
        return [*found, *missing]
    able = eligible(decision)
    if decision.rule.order and all(one.instance != chosen.instance for one in able):
        found.append(f"rule {decision.rule.code} chooses among candidates to which {decision.target} does not belong")
    if decision.rule.order:
        found += [
            f"according to rule {decision.rule.code}, {one.instance} is better than {decision.target}"
            for one in able
            if beats(decision, one, chosen)
        ]
    return found


def _reason(decision: WeighedDecision, reason: str) -> list[str]:
    """Return a contradiction if the recorded reason does not fit the recorded numbers."""
    chosen = candidate(decision, decision.target)
    assert chosen is not None
    wrong = {
        "prefix-equal": any(one.hit_tokens != chosen.hit_tokens for one in decision.candidates) or not chosen.hit_tokens,
        "slo-overloaded": decision.passed_over is None,
        "session-hot-migrated": decision.passed_over is None,
        "only-instance": decision.rule.code != ONLY_INSTANCE,
        "decode-only": decision.rule.code not in (NO_PREFILL, INDIVISIBLE),
    }
    if wrong.get(reason, False):
        return [f"the reason {reason} does not fit the terms"]
    total = term_of(decision, TOTAL)
    return [] if total is not None or all(one.total is None for one in decision.candidates) else ["undeclared totals are recorded"]
