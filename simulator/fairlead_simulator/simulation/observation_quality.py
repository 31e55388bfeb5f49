"""The accuracy and the delay with which a simulated router observes its engines."""

from dataclasses import dataclass
from math import exp
from random import Random

from fairlead_simulator.simulation.kv_events import KvEventQuality


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationQuality:
    """Errors and delays of a router's observations. Engines' events and metrics reach the router `delay_seconds`
    late.
    """

    token_noise: float = 0.0
    """Sigma of a log-normal factor (median 1) on the prompt lengths that the router estimates, and thereby on its
    predictions of prefills.
    """
    delay_seconds: float = 0.0
    metrics_seconds: float = 1.0
    """Seconds between two readings of the engines' metrics."""
    streamed_share: float = 1.0
    """Share of the requests that are streamed; for the others, the router observes nothing of the answer until it is
    complete.
    """
    kv_events: KvEventQuality | None = None
    """The quality of KV events. None: engines send no KV events, and routers rely on their own history."""

    def is_streamed(self, chance: Random) -> bool:
        """Decide at random whether the next request is streamed."""
        return self.streamed_share >= 1.0 or chance.random() < self.streamed_share

    def seen_tokens(self, tokens: int, noise: Random) -> int:
        """Return the estimated length of a prompt that the router uses."""
        return max(1, round(tokens * exp(noise.gauss(0.0, self.token_noise)))) if self.token_noise > 0 else tokens
