"""Rule for a wrong figure: it differs from the observed value by more than half, in either direction."""

from fairlead.reports.engines import LearntFigure

OFF = 1.5
"""A figure is wrong by more than half if the larger of the figure and its observation is more than this many times the
smaller.
"""
LEAST_SAMPLES = 20
"""A reported figure is judged only if it was measured from at least this many prefills, answers or prompts."""


def is_off(figure: float | None, observed: float | None) -> bool:
    """Return whether the two values differ by more than half."""
    return figure is not None and observed is not None and min(figure, observed) * OFF < max(figure, observed)


def off_figure(figure: LearntFigure) -> bool:
    """Return whether the figure in use is wrong, or the declared figure is wrong while the measured figure is in use.
    The router would use the declared figure after a restart.
    """
    if figure.samples < LEAST_SAMPLES:
        return False
    return is_off(figure.predicted, figure.observed) or (figure.in_use and is_off(figure.declared, figure.observed))
