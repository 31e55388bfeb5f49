"""What a decision's page says about its numbers: the margin, the prediction beside what came, the sum of the score.
Pure.
"""

from dataclasses import dataclass

from fairlead.reports.decisions import CandidateScore
from fairlead.routing.contracts.weighing import TOTAL, Unit
from fairlead.routing.explanations.explaining import in_words, pair_in_words, term_of, value_of
from fairlead.routing.explanations.forecasts import Forecast
from fairlead.routing.explanations.margins import Margin, Standing
from fairlead_client.resources.decisions import RoutingDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with the words above and beside it; `level` is empty or `warn`."""

    words: str
    value: str
    note: str
    level: str = ""


def margin_figure(margin: Margin) -> Figure:
    """By how much the chosen one was ahead, in which term, and of whom."""
    term, other = margin.term, margin.other
    mine, theirs = pair_in_words(margin.chosen_value, margin.other_value, term.unit)
    if margin.standing is Standing.EQUAL:
        return Figure(words=f"Margin in {term.words}", value="none", note=f"{mine}, as on {other}")
    size = in_words(margin.size, term.unit, _digits(margin))
    behind = margin.standing is Standing.BEHIND
    note = f"{mine} against {theirs} on {other}, {term.better} is better"
    if behind:
        why = "" if margin.by_rule else "; the rule stands above it"
        return Figure(words=f"Behind in {term.words}", value=size, note=f"{note}{why}", level="warn")
    return Figure(words=f"Margin in {term.words}", value=size, note=note if margin.by_rule else f"{note}; the rule did not ask")


def _digits(margin: Margin) -> int:
    """As many as show that the margin is not zero."""
    zero = {digits: in_words(0.0, margin.term.unit, digits) for digits in (2, 4, 6, 9)}
    return next((digits for digits, none in zero.items() if in_words(margin.size, margin.term.unit, digits) != none), 9)


def forecast_remark(found: Forecast | None) -> str:
    """What there is to say about a bad prediction; empty where it was a good one."""
    if found is None or not found.is_far_off:
        return ""
    more, less = max(found.actual_seconds, found.predicted_seconds), min(found.actual_seconds, found.predicted_seconds)
    times = f", {more / less:.1f} times" if less >= 0.0005 else ""
    which = "later" if found.off_seconds < 0 else "sooner"
    return (
        f"The prediction was bad: {in_words(found.predicted_seconds, Unit.SECONDS)} predicted, "
        f"{in_words(found.actual_seconds, Unit.SECONDS)} real, {in_words(abs(found.off_seconds), Unit.SECONDS)} {which}{times}."
    )


def sum_of_parts(decision: RoutingDecision, one: CandidateScore) -> str:
    """`1.20 s wait + 400 ms prefill = 1.60 s cost`; empty where the score is no sum, or was not recorded."""
    total = term_of(decision, TOTAL)
    if total is None or one.total is None or not decision.parts:
        return ""
    told = []
    for name in decision.parts:
        term, value = term_of(decision, name), value_of(one, name)
        if term is None:
            return ""
        if value is not None:  # a part that does not apply is not recorded, and counts nothing
            told.append(f"{in_words(value, term.unit)} {term.words}")
    return f"{' + '.join(told)} = {in_words(one.total, total.unit)} {total.words}"
