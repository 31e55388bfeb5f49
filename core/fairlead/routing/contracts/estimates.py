"""The measured times that a scheduler reports, with their prediction errors."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateReport:
    """A measured time, and how well it predicts.

    `seconds_per_token` is the mean of the last observations, None before the first. Each error is the mean absolute
    error of predictions made before the observations, as a share (0.1 = 10 %) of the observations' mean: `error` for
    predictions by the pool's measured figure (the fit if the policy asks for a fit, else the mean), `declared_error`
    for predictions by the table's declared figure. An error is None without its figure. `in_use` says whether the
    router predicts by the measured figure.
    """

    form: str
    samples: int
    in_use: bool
    seconds_per_token: float | None
    error: float | None
    declared_error: float | None
    predicted: float | None = None
    """Mean of the predicted seconds per token for the last observations; None without observations."""
    observed: float | None = None
    """Mean of the observed seconds per token for the same observations. For answers, the time of prefills that delayed
    them is left out.
    """
