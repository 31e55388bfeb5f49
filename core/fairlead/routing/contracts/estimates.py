"""Schedulers' reports about measured times."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateReport:
    """A measured time, and how well it predicts.

    `seconds_per_token` is the mean of the last observations, None before the first. Errors are mean absolute errors as
    shares (0.1 = 10 %) of the mean of the last observations, each predicted beforehand: `error` by the pool's measured
    figure (the fit if the policy asks for a fit, else the mean), `declared_error` by the table's figure; None without
    such a figure. `in_use` says whether predictions use the measured figure.
    """

    form: str
    samples: int
    in_use: bool
    seconds_per_token: float | None
    error: float | None
    declared_error: float | None
    predicted: float | None = None
    """Mean seconds per token of the predictions for the last observations; None without observations."""
    observed: float | None = None
    """Mean observed seconds per token for these observations; for answers, without the time of prefills that delayed
    them.
    """
