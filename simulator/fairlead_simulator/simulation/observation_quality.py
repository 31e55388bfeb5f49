"""How well a simulated router sees its engines."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationQuality:
    """How well the router sees. `token_noise` is the sigma of a log-normal factor (median 1) on the prompt length it is told, and so on its
    prefill estimates; events and metrics reach it `delay_seconds` late."""

    token_noise: float = 0.0
    delay_seconds: float = 0.0
    metrics_seconds: float = 1.0
