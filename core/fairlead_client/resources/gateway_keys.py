"""Keys of the gateway's clients."""

from dataclasses import dataclass, field
from datetime import datetime

SOFT_PERCENT = 80
"""Default of `budget_soft_percent`: the share of a budget, in percent, from which the audit log records a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKeyRequest:
    """A key to create. Its requests have its `priority_class` in pools that declare that class, and the default class
    elsewhere.

    The key gives access to `pools` (as `namespace/name`) and `models`; an empty list means all. Without `days` the key
    does not expire; a limit that is None does not apply. With `explain` the key's requests may ask for their decisions
    to be kept (`x-fairlead-explain: 1`).

    `budget_day` and `budget_month` are the maximum cost of the key's requests in a UTC day and month (docs/cost.md), as
    decimals in `budget_currency`. From `budget_soft_percent` of a budget on (None = 80) the audit log records a
    warning; beyond the budget the key's requests are refused until the day or month ends.
    """

    name: str
    pools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    days: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    priority_class: str | None = None
    explain: bool = False
    budget_day: str | None = None
    budget_month: str | None = None
    budget_currency: str | None = None
    budget_soft_percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKeyChange:
    """The fields of a key to change, as in `GatewayKeyRequest`; None leaves a field unchanged.

    An empty list gives access to all pools or models. An empty `priority_class` means the default class. An empty
    budget removes the budget, and 0 removes a limit; `days` 0 removes the key's expiry.
    """

    name: str | None = None
    pools: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    days: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    priority_class: str | None = None
    explain: bool | None = None
    budget_day: str | None = None
    budget_month: str | None = None
    budget_currency: str | None = None
    budget_soft_percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKeyRotation:
    """A new secret for a key. The former secret is accepted for `hours` more, 0 to 720, so that clients can change
    over; in that time each of the two secrets has the key's limits.
    """

    hours: int = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKeyTotals:
    """The use of a key during a period: requests that were sent to a pool, with their tokens, and the number of
    `refused` requests for each reason.
    """

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    refused: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKey:
    """A key without its secret; `prefix` is the secret's beginning.

    `secret` is present only in the response that created or rotated the key. After a rotation, the former secret is
    accepted until `former_until`. `last_used_at` is the minute of the key's last request that was sent to a pool; None
    if there was no such request.
    """

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
    priority_class: str | None = None
    explain: bool = False
    secret: str | None = None
    former_until: datetime | None = None
    budget_day: str | None = None
    budget_month: str | None = None
    budget_currency: str | None = None
    budget_soft_percent: int | None = None
    budget_soft_at: datetime | None = None
    """Time when the key reached the soft limit of a budget; None if it has not reached it."""
    budget_ends_at: datetime | None = None
    """Time until which the key's requests are refused because a budget is used up; None if no budget is used up."""
    last_used_at: datetime | None = None
    last_day: GatewayKeyTotals = field(default_factory=GatewayKeyTotals)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKeyUsePoint(GatewayKeyTotals):
    """The use of a key in the step that begins at `at`."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKeyUsage:
    """A key's use from `start` to `end`: `total`, and `points` in steps of `step_seconds`, oldest first, without empty
    steps.
    """

    key: str
    start: datetime
    end: datetime
    step_seconds: int
    total: GatewayKeyTotals
    points: list[GatewayKeyUsePoint]
