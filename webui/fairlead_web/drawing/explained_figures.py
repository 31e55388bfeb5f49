"""The figures that explain an instance's load, and the figures that explain a routing decision.

A load's figures are rows of text: for this instance, for the other instances, and for the time before. A decision's
figures are the margin, the prediction next to the observed figure, and the terms of the score with their sum. Pure.
"""

from dataclasses import dataclass

from fairlead.reports.decisions import CandidateScore
from fairlead.routing.contracts.weighing import TOTAL, Unit
from fairlead.routing.explanations.explaining import in_words, pair_in_words, term_of, value_of
from fairlead.routing.explanations.forecasts import Forecast
from fairlead.routing.explanations.margins import Margin, Standing
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.heatmaps import GOOD_WHEN_HIGH
from fairlead_client.resources.load_explanations import LoadExplanation, WindowFigure
from fairlead_web.heatmaps.cells import METRIC_WORDS, text_of
from fairlead_web.text import formats

SHOWN = ("ttft_p95", "pending_prefill_tokens", "waiting", "running", "kv_usage", "hit_rate", "tpot_p95")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRow:
    """One metric of an explained load. `limit` is empty for a metric without a limit. `over` is True if this instance
    exceeded the limit, and `others_over` if the other instances exceeded it. `asked` is True for the metric whose
    explanation was requested.
    """

    words: str
    limit: str
    here: str
    others: str
    before: str
    over: bool
    others_over: bool
    asked: bool


def figure_rows(found: LoadExplanation) -> list[FigureRow]:
    """Return the rows of the explanation: the row of the requested metric, then the rows of the metrics that usually
    explain a load. Metrics that were not measured have no row.
    """
    by_metric = {figure.metric: figure for figure in found.figures}
    names = [found.metric, *(name for name in SHOWN if name != found.metric)]
    return [_row(by_metric[name], found.metric) for name in names if name in by_metric and _measured(by_metric[name])]


def _measured(figure: WindowFigure) -> bool:
    return figure.maximum is not None or figure.others is not None


def _row(figure: WindowFigure, asked: str) -> FigureRow:
    words = METRIC_WORDS.get(figure.metric, formats.words(figure.metric))
    return FigureRow(
        words=f"{words}, mean of seconds" if figure.metric in GOOD_WHEN_HIGH else words,
        limit="" if figure.limit is None else text_of(figure.limit, figure.unit),
        here=_text(figure.compared, figure.unit),
        others=_text(figure.others, figure.unit),
        before=_text(figure.before, figure.unit),
        over=_over(figure.maximum, figure.limit),
        others_over=_over(figure.others, figure.limit),
        asked=figure.metric == asked,
    )


def _over(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit


def _text(value: float | None, unit: str) -> str:
    if value is None:
        return formats.NONE
    text = text_of(value, unit)
    return text.removesuffix(" requests").removesuffix(" request") if unit == "requests" else text.removesuffix(" tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with the text above it and the text next to it; `level` is empty or `warn`."""

    words: str
    value: str
    note: str
    level: str = ""


def margin_figure(margin: Margin) -> Figure:
    """Describe the chosen candidate's margin: the term of the score that was compared, and the difference from the
    other candidate's value.
    """
    term, other = margin.term, margin.other
    mine, theirs = pair_in_words(margin.chosen_value, margin.other_value, term.unit)
    if margin.standing is Standing.EQUAL:
        return Figure(words=f"Margin in {term.words}", value="none", note=f"{mine}, as on {other}")
    size = in_words(margin.size, term.unit, _digits(margin))
    behind = margin.standing is Standing.BEHIND
    note = f"{mine} against {theirs} on {other}, {term.better} is better"
    if behind:
        why = "" if margin.by_rule else "; the rule overrides it"
        return Figure(words=f"Behind in {term.words}", value=size, note=f"{note}{why}", level="warn")
    return Figure(words=f"Margin in {term.words}", value=size, note=note if margin.by_rule else f"{note}; the rule did not compare it")


def _digits(margin: Margin) -> int:
    """Return the smallest number of digits with which the margin does not look like zero."""
    zero = {digits: in_words(0.0, margin.term.unit, digits) for digits in (2, 4, 6, 9)}
    return next((digits for digits, none in zero.items() if in_words(margin.size, margin.term.unit, digits) != none), 9)


def forecast_remark(found: Forecast | None) -> str:
    """Return a remark about a TTFT prediction that was far off; empty if the prediction was not far off, or if there
    was no prediction.
    """
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
    """Return the terms of a score and their sum, such as `1.20 s wait + 400 ms prefill = 1.60 s cost`; empty if the
    score is not a sum, or was not recorded.
    """
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
