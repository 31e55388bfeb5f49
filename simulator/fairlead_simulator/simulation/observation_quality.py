"""The accuracy and the delay of a simulated router's observations of its engines."""

from dataclasses import dataclass
from math import exp
from random import Random

from fairlead_simulator.simulation.kv_events import KvEventQuality


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationQuality:
    """Errors and delays of a router's observations. The engines' responses and metrics reach the router `delay_seconds`
    late.
    """

    token_noise: float = 0.0
    """Error of the prompt lengths that the router estimates, and thus of its predicted prefills. The error is a
    log-normal factor with median 1, and this is its sigma.
    """
    delay_seconds: float = 0.0
    metrics_seconds: float = 1.0
    """Seconds between two readings of the engines' metrics."""
    streamed_share: float = 1.0
    """Share of the requests that are streamed, 0 to 1. If a request is not streamed, the router observes nothing of the
    answer until it is complete.
    """
    kv_events: KvEventQuality | None = None
    """The quality of KV events. None = engines send no KV events, and routers rely on the prompts that they have
    sent.
    """

    def is_streamed(self, chance: Random) -> bool:
        """Return whether the next request is streamed; a random number decides."""
        return self.streamed_share >= 1.0 or chance.random() < self.streamed_share

    def seen_tokens(self, tokens: int, noise: Random) -> int:
        """Return the number of tokens that the router estimates for a prompt of `tokens` tokens."""
        return max(1, round(tokens * exp(noise.gauss(0.0, self.token_noise)))) if self.token_noise > 0 else tokens
