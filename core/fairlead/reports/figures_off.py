"""Rule for a wrong figure: it differs from the observed value by more than half, in either direction."""

from fairlead.reports.engines import LearntFigure

OFF = 1.5
"""Factor above which a figure and its observation differ: the larger value is more than this many times the smaller
value.
"""
LEAST_SAMPLES = 20
"""Minimum number of prefills, answers or prompts from which a reported figure must have been measured to be judged."""


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
