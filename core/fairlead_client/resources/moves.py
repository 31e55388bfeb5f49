"""Session migrations and re-routes: what went from one instance to another, why, and whether it paid off."""

from dataclasses import dataclass
from datetime import datetime

from fairlead import reports
from fairlead.reports import BindingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(reports.Move[str, datetime]):
    """What migrations and re-routes have in common: the router's record, the router, and what follows from both."""

    pool: str
    at: datetime
    router: str
    explanation: str
    """What moved, why, what was promised and whether it came true, in sentences made from the other fields."""
    paid_off: bool | None
    """False when the real TTFT was not below the one predicted for staying, true when it was and a gain had
    been predicted, else None.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration(Move):
    """A bound session's home moved: a step of the session's history.

    `request` is the one that carried it, None when none did.
    """

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReRoute(Move):
    """A queued or unbound request went elsewhere; no session's home moved. `session` is only what the request named."""

    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFlow:
    source: str
    target: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationMatrix:
    """Flows between instances, of migrations or of re-routes. Not more than the newest 10,000 of the range are counted:
    `complete` says whether those are all, and `counted_from` is the time from which on all are counted.
    """

    flows: list[MigrationFlow]
    by_trigger: dict[BindingReason, int]
    timeline: list["TimelineBucket"]
    total: int
    complete: bool = True
    counted_from: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineBucket:
    at: datetime
    counts: dict[BindingReason, int]
