"""Sessions: the instance that holds each session's KV cache, and the earlier instances."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.reports.bindings import BindingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session and the instance to which it is bound.

    `shared_at` is the time at which several conversations were found to share the session's name. Since then each
    conversation is a separate session, and the session of this name is not bound to any instance.
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
    """The data-parallel rank of the instance that holds the session, if the instance has several."""
    key: str | None = None
    """The name of the gateway key to which the session belongs; the key's id if the key is not known, None without a
    key.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingHistoryItem:
    """A period in which an instance held the session, from `bound_at` until `released_at` (None = now)."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepSessionRequest:
    """Keep all decisions of a session for this many minutes from now."""

    session: str
    minutes: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSession:
    """A session whose decisions are all kept until `until`; `by` is the last person who asked to keep them."""

    session: str
    until: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSessions:
    """The sessions of a pool whose decisions are all kept now, ordered by `until`, the earliest first."""

    pool: str
    sessions: list[KeptSession]
