"""Sessions: where the KV cache of each lives, and where it lived before."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.reports.bindings import BindingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """`shared_at`: when its name was found to be no session's, as several conversations use it; then each of these is a
    session by itself, and nobody holds this one.
    """

    pool: str
    session: str
    instance: str | None
    version: int
    reason: BindingReason
    bound_at: datetime
    last_seen_at: datetime
    migrations: int
    context_tokens: int
    shared_at: datetime | None = None
    rank: int | None = None
    """The data-parallel rank of the instance that holds it, if it has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingHistoryItem:
    """One holder of the session, from `bound_at` until `released_at` (None = now)."""

    instance: str
    version: int
    reason: BindingReason
    bound_at: datetime
    released_at: datetime | None
    router: str
    migration: str | None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDetail:
    session: SessionSummary
    history: list[BindingHistoryItem]
