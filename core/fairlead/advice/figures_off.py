"""FigureOff: a figure about a pool's engines (such as bytes per token) that routers use, or would use after a restart,
has been wrong by more than half for minutes.
"""

from collections.abc import Iterator

from fairlead.advice import wording
from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, wrong_figure
from fairlead.advice.situations import PoolSituation, SeenFigure
from fairlead.reports.engines import Quantity
from fairlead.reports.figures_off import is_off

LASTING_SECONDS = 180.0
"""Seconds for which a figure must have been wrong before advice mentions it."""

_FIELDS: dict[str, str] = {
    Quantity.TEXT: "spec.engine.bytesPerToken",
    Quantity.PREFILL: "spec.engine.prefillTokensPerSecond",
}
"""Maps a quantity to the field of the pool's spec that declares it."""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield a finding for each figure that has been wrong for `LASTING_SECONDS`: a warning if routers use the wrong
    figure, a note if only the spec declares it.
    """
    for figure in pool.figures:
        if figure.off_seconds < LASTING_SECONDS:
            continue
        if is_off(figure.predicted, figure.observed):
            yield _finding(pool, figure, figure.predicted, figure.observed, Level.WARN)
        elif is_off(figure.declared, figure.observed):
            yield _finding(pool, figure, figure.declared, figure.observed, Level.NOTE)


def _finding(pool: PoolSituation, figure: SeenFigure, wrong: float | None, seen: float | None, level: Level) -> Finding:
    assert wrong is not None
    assert seen is not None
    who = f"{pool.pool}'s routers use" if level is Level.WARN else f"{pool.pool} declares"
    return Finding(
        pool=pool.pool,
        cause=Cause.FIGURE_OFF,
        subject=figure.quantity,
        level=level,
        harm=Harm(amount=abs(wrong / seen - 1) if seen > 0 else wrong, unit=HarmUnit.ERROR),
        sentence=(
            f"{who} {_words(figure.quantity, wrong)}, but engines have shown {_words(figure.quantity, seen)} "
            f"for {wording.seconds(figure.off_seconds)}; {_then(figure.quantity, level)}."
        ),
        evidence=Evidence(kind=EvidenceKind.POOL, seconds=figure.off_seconds),
        explains=frozenset({wrong_figure(figure.quantity)}),
    )


def _words(quantity: str, value: float) -> str:
    if quantity == Quantity.TEXT:
        return f"{value:.3g} bytes of text a token"
    if quantity == Quantity.PREFILL and value > 0:
        return f"{1 / value:,.0f} prompt tokens/s"
    return f"{wording.seconds(value)} a decode step" if quantity == Quantity.DECODE else f"{value:.3g} ({quantity})"


def _then(quantity: str, level: Level) -> str:
    remedy = f"; set {_FIELDS[quantity]}" if quantity in _FIELDS else ""
    if level is Level.NOTE:
        return f"routers have measured the right value, but start from the wrong one after a restart{remedy}"
    return f"predicted times, and decisions that use them, are wrong by the same factor{remedy}"
