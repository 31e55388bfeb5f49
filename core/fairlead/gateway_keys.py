"""Keys of the gateway's clients: the access that a key gives, its expiry, and its limits per minute."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.tables import PoolKey

MINUTE_SECONDS = 60.0


class KeyRefusal(StrEnum):
    """The reason why a request is refused because of its API key. For an exceeded limit, the reason is also the code in
    the response.
    """

    MISSING = "key-missing"
    UNKNOWN = "key-unknown"
    EXPIRED = "key-expired"
    NOT_READ = "keys-not-read"
    OUT_OF_SCOPE = "key-out-of-scope"
    OVER_REQUESTS = "rejected-key-requests"
    OVER_TOKENS = "rejected-key-tokens"
    OVER_BUDGET = "rejected-key-budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKeyFacts:
    """The facts that a router knows about a key. `digest` is the SHA-256 of its secret in hexadecimal; the secret
    itself is not stored.

    A key has 256 random bits, too many to guess. So a fast hash protects the key as well as a slow password hash would,
    and every request pays for the hash.

    `pools` (as `namespace/name`) and `models` are the pools and models to which the key gives access; empty = all.
    `expires_at` is in Unix seconds. A limit that is None does not apply.
    """

    id: str
    digest: str
    pools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    expires_at: float | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    priority_class: str | None = None
    """The class of the key's requests in pools that declare this class; a request may name a lower class. None = the
    pool's default class.
    """
    explain: bool = False
    """Whether requests with this key may ask the router to keep their routing decisions (`x-fairlead-explain`)."""

    budget_ends_at: float | None = None
    """The time until which the key is refused because its budget is used up, in Unix seconds of the API's clock."""

    def opens(self, pool: PoolKey, model: str) -> bool:
        """Return whether the key gives access to this pool, which serves this model."""
        return (not self.pools or str(pool) in self.pools) and (not self.models or model in self.models)


class RateLimit:
    """A token bucket that holds as much as one minute allows, and is full at first.

    If every caller checks first (`take_if_any`), at most `per_minute * (1 + t / 60)` plus the amount of the last call
    is taken within any `t` seconds. `take` does not check, because the number of a response's tokens is only known at
    its end; it may leave a debt, and later requests wait until the debt is repaid.
    """

    __slots__ = ("_at", "_level", "_most", "_per_second")

    def __init__(self, per_minute: float, now: float) -> None:
        self._at = now
        self._per_second = per_minute / MINUTE_SECONDS
        self._level = self._most = max(1.0, per_minute)

    def change(self, per_minute: float, now: float) -> None:
        """Change the limit. The unused amount under the old limit is kept, up to the new limit."""
        self._refill(now)
        self._per_second = per_minute / MINUTE_SECONDS
        self._most = max(1.0, per_minute)
        self._level = min(self._level, self._most)

    def wait_seconds(self, now: float, *, returning: float = 0.0) -> float:
        """Return the seconds until one unit can be taken, assuming that `returning` is given back now; 0 if one can be
        taken now.
        """
        self._refill(now)
        missing = 1.0 - (min(self._most, self._level + returning) if returning else self._level)
        return 0.0 if missing <= 1e-9 else missing / self._per_second

    def take_if_any(self, amount: float, now: float) -> float:
        """Take this amount and return 0 if at least 1 is left; otherwise take nothing and return the seconds to wait.

        The amount may be larger than the rest; the rest is then negative (a debt). So a request larger than the limit
        is not refused forever.
        """
        if now > self._at:  # as `_refill`, which would be a call for each request
            level = self._level + (now - self._at) * self._per_second
            self._level, self._at = level if level < self._most else self._most, now
        missing = 1.0 - self._level
        if missing > 1e-9:
            return missing / self._per_second
        self._level -= amount
        return 0.0

    def take(self, amount: float, now: float) -> None:
        """Take this amount without a check; a negative amount is given back."""
        self._refill(now)
        self._level = min(self._most, self._level - amount)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self._most, self._level + (now - self._at) * self._per_second)
            self._at = now
