"""What schedulers tell of the times they learn."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateReport:
    """What was learnt of a time, and how well that predicts.

    `seconds_per_token` is the mean of what was observed last, None before any observation. Errors are mean absolute
    errors as shares (0.1 = 10 %) of the mean of the last observations, each predicted before it was learnt from:
    `error` by what is learnt of all the pool's instances (the fit where one is asked for, else the mean),
    `declared_error` by the table's figure; None where there is none. `in_use` says whether predictions come from what
    is learnt.
    """

    form: str
    samples: int
    in_use: bool
    seconds_per_token: float | None
    error: float | None
    declared_error: float | None
    predicted: float | None = None
    """Seconds per token that predictions went by in the mean, for the last observations; None where there are none."""
    observed: float | None = None
    """What these then took: of answers, without the prefills that held them up."""
