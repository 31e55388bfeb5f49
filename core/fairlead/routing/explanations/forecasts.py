"""Compares a decision's predicted TTFT with the actual one."""

from dataclasses import dataclass

FAR_OFF_FACTOR = 2.0
FAR_OFF_SECONDS = 0.5
"""Minimum error, in seconds, for a prediction to be called far off. Its relative error must be large too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predicted and actual TTFT in seconds. Neither includes the time for which the request was held before the
    decision.

    `elsewhere` says that another instance than the chosen one computed the prompt. The prediction is then never called
    wrong, because it was made for the chosen instance.
    """

    predicted_seconds: float
    actual_seconds: float
    elsewhere: bool

    @property
    def off_seconds(self) -> float:
        """Predicted minus actual TTFT in seconds: positive if the first token came earlier than predicted."""
        return self.predicted_seconds - self.actual_seconds

    @property
    def is_far_off(self) -> bool:
        more, less = max(self.actual_seconds, self.predicted_seconds), min(self.actual_seconds, self.predicted_seconds)
        return not self.elsewhere and more - less >= FAR_OFF_SECONDS and more / max(less, 1e-3) >= FAR_OFF_FACTOR


def forecast(predicted_seconds: float, ttft_seconds: float | None, held_seconds: float | None, *, elsewhere: bool) -> Forecast | None:
    """Return the predicted and the actual TTFT of a decision; None if no first token was reported. If the request was
    held before its decision, the held time is subtracted from the actual TTFT.
    """
    if ttft_seconds is None:
        return None
    actual = max(0.0, ttft_seconds - (held_seconds or 0.0))
    return Forecast(predicted_seconds=predicted_seconds, actual_seconds=actual, elsewhere=elsewhere)
