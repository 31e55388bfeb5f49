"""The figures of a load explanation as rows of text: here, at the others, and before. Pure."""

from dataclasses import dataclass

from fairlead_client.resources.heatmaps import GOOD_WHEN_HIGH
from fairlead_client.resources.load_explanations import LoadExplanation, WindowFigure
from fairlead_web.heatmaps.cells import METRIC_WORDS, text_of
from fairlead_web.text import formats

SHOWN = ("ttft_p95", "pending_prefill_tokens", "waiting", "running", "kv_usage", "hit_rate", "tpot_p95")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRow:
    """One metric; `over` says that it was over its limit, `asked` that it is the one that was asked about."""

    words: str
    here: str
    others: str
    before: str
    over: bool
    asked: bool


def figure_rows(found: LoadExplanation) -> list[FigureRow]:
    """The metric that was asked about first, then those that usually tell why."""
    by_metric = {figure.metric: figure for figure in found.figures}
    names = [found.metric, *(name for name in SHOWN if name != found.metric)]
    return [_row(by_metric[name], found.metric) for name in names if name in by_metric and _measured(by_metric[name])]


def _measured(figure: WindowFigure) -> bool:
    return figure.maximum is not None or figure.others is not None


def _row(figure: WindowFigure, asked: str) -> FigureRow:
    words = METRIC_WORDS.get(figure.metric, formats.words(figure.metric))
    return FigureRow(
        words=f"{words}, mean of seconds" if figure.metric in GOOD_WHEN_HIGH else words,
        here=_text(figure.compared, figure.unit),
        others=_text(figure.others, figure.unit),
        before=_text(figure.before, figure.unit),
        over=figure.limit is not None and figure.maximum is not None and figure.maximum > figure.limit,
        asked=figure.metric == asked,
    )


def _text(value: float | None, unit: str) -> str:
    if value is None:
        return formats.NONE
    text = text_of(value, unit)
    return text.removesuffix(" requests").removesuffix(" request") if unit == "requests" else text.removesuffix(" tokens")
