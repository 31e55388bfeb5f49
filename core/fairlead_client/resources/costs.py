"""The cost of instances over a range, and the clients whose requests caused it. Amounts are decimals with six places,
as texts, and add up exactly.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class CostGroup(StrEnum):
    """The property by which cost is divided."""

    POOL = "pool"
    ROLE = "role"
    KEY = "key"
    CLASS = "class"
    SESSION = "session"


class CostPart(StrEnum):
    """The part of the cost that a line is about. `used`: the cost of requests. `idle`: the time in which an instance
    had no request. `unattributed`: busy time without known tokens. `others`: all sessions without a line of their own.
    """

    USED = "used"
    IDLE = "idle"
    UNATTRIBUTED = "unattributed"
    OTHERS = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """A part of the cost, in one currency. All lines of a currency add up to its total.

    `name` is the pool, role, key, class or session, as the report's `by` says; empty for requests without a name, and
    for lines that are not `used`. `label` is a key's name. `amount` is `prefill` plus `decode`, or the idle or
    unattributed cost. `hit_tokens` are prompt tokens that were cached. If the cost is divided by role, requests and
    tokens are None, because they are recorded for the pool, whose roles serve each request together.
    """

    name: str
    part: CostPart
    currency: str
    amount: str
    prefill: str = "0.000000"
    decode: str = "0.000000"
    requests: int | None = 0
    prefill_tokens: int | None = 0
    hit_tokens: int | None = 0
    output_tokens: int | None = 0
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTotal:
    """The whole cost in one currency: hours of instances times their prices. `used`, `idle` and `unattributed` add up
    to `amount`. `measured_hours` are the part of `instance_hours` whose price was measured by a cost tool.
    """

    currency: str
    amount: str
    used: str
    idle: str
    unattributed: str
    instance_hours: float
    measured_hours: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostStep:
    """The cost of a step of the range, in one currency. Steps add up to the total."""

    at: datetime
    currency: str
    used: str
    idle: str
    unattributed: str


class SavedBy(StrEnum):
    """The cause of saved cost."""

    SCHEDULES = "schedules"
    CACHING = "caching"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSaving:
    """An estimate of the additional cost that was avoided; `how` says how the estimate was made."""

    by: SavedBy
    currency: str
    amount: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """The cost of a range of whole hours in UTC; the range ends at the latest now. `unpriced_hours` are hours of
    instances without a price; no amount includes them.
    """

    by: CostGroup
    start: datetime
    end: datetime
    step_seconds: int
    lines: list[CostLine]
    totals: list[CostTotal]
    steps: list[CostStep]
    savings: list[CostSaving]
    unpriced_hours: float = 0.0
