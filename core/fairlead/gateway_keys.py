"""Keys of the gateway's clients: what a key gives access to, until when, and its limits per minute."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.tables import PoolKey

MINUTE_SECONDS = 60.0


class KeyRefusal(StrEnum):
    """Why a request is refused because of its key. For a limit it is also the answer's code."""

    MISSING = "key-missing"
    UNKNOWN = "key-unknown"
    EXPIRED = "key-expired"
    NOT_READ = "keys-not-read"
    OUT_OF_SCOPE = "key-out-of-scope"
    OVER_REQUESTS = "rejected-key-requests"
    OVER_TOKENS = "rejected-key-tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKeyFacts:
    """What a router knows of a key. `digest` is the SHA-256 of its secret in hexadecimal; the secret itself is not
    stored.

    A key has 256 random bits, too many to guess. So a fast hash protects it as well as a slow password hash would, and
    every request pays for the hash.

    `pools` (as `namespace/name`) and `models` are what the key opens; empty = all. `expires_at` is in Unix seconds. A
    limit that is None does not apply.
    """

    id: str
    digest: str
    pools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    expires_at: float | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    priority_class: str | None = None
    """The class of its requests in pools that declare it; they may ask for a lower one. None is the default one's."""
    explain: bool = False
    """Whether its requests may ask for their decisions to be kept (`x-fairlead-explain`)."""

    def opens(self, pool: PoolKey, model: str) -> bool:
        """Whether the key opens this pool, which serves this model."""
        return (not self.pools or str(pool) in self.pools) and (not self.models or model in self.models)


class RateLimit:
    """A token bucket that holds a minute's worth and is full at first.

    In any span of `t` seconds at most `per_minute * (1 + t / 60)` is taken, and the last amount, if each taking asks
    first (`take_if_any`). A taking that does not (an answer's tokens are known when it ends) makes a debt, which is
    waited for.
    """

    __slots__ = ("_at", "_level", "_most", "_per_second")

    def __init__(self, per_minute: float, now: float) -> None:
        self._at = now
        self._per_second = per_minute / MINUTE_SECONDS
        self._level = self._most = max(1.0, per_minute)

    def change(self, per_minute: float, now: float) -> None:
        """Change the limit. What was left under the old limit stays, up to the new one."""
        self._refill(now)
        self._per_second = per_minute / MINUTE_SECONDS
        self._most = max(1.0, per_minute)
        self._level = min(self._level, self._most)

    def wait_seconds(self, now: float, *, returning: float = 0.0) -> float:
        """Seconds until one can be taken, if `returning` were given back now; 0 when it can be now."""
        self._refill(now)
        missing = 1.0 - (min(self._most, self._level + returning) if returning else self._level)
        return 0.0 if missing <= 1e-9 else missing / self._per_second

    def take_if_any(self, amount: float, now: float) -> float:
        """Take this amount if at least 1 is left, and return 0; else take nothing and return the seconds until there
        is. An amount above the balance leaves a debt, so that an amount above the limit is not refused forever.
        """
        seconds = self.wait_seconds(now)
        if not seconds:
            self._level -= amount
        return seconds

    def take(self, amount: float, now: float) -> None:
        """Take this much; a negative amount is given back."""
        self._refill(now)
        self._level = min(self._most, self._level - amount)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self._most, self._level + (now - self._at) * self._per_second)
            self._at = now
