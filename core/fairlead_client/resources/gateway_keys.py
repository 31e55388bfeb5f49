"""Keys of the gateway's clients."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKeyRequest:
    """A key to be made.

    `pools` (as `namespace/name`) and `models` are what it opens; an empty list opens all. Without `days` it does not
    expire; without a limit it has none.
    """

    name: str
    pools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    days: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKey:
    """A key without its secret; `prefix` is how that begins. `secret` is present only in the answer that created it."""

    id: str
    name: str
    prefix: str
    pools: tuple[str, ...]
    models: tuple[str, ...]
    requests_per_minute: int | None
    tokens_per_minute: int | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    secret: str | None = None
