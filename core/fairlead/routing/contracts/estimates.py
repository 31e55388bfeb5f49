"""The measured times that a scheduler reports, with their prediction errors."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateReport:
    """A measured time, and the errors of predictions by it.

    `seconds_per_token` is the mean of the last observations, None before the first. An error is the mean absolute error
    of the predictions made before each observation, as a share of the observations' mean (0.1 = 10 %). `error` is the
    error of predictions by the pool's measured figure: the fit if the policy asks for a fit, else the mean.
    `declared_error` is the error of predictions by the figure that the routing table declares. An error is None if its
    figure is unknown. `in_use` says whether the router predicts by the measured figure.
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
    """Mean of the observed seconds per token for the same observations as in `predicted`. The time of an answer
    excludes the prefills that delayed the answer.
    """
