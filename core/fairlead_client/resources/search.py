"""Search: what has a given part of a name in it, of every kind that has a page."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class SearchKind(StrEnum):
    """What was found; a request is found by the decision that routed it."""

    POOL = "pool"
    INSTANCE = "instance"
    SESSION = "session"
    REQUEST = "request"
    PLAN = "plan"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """`id` is what its own path asks for: of a request the id of its decision, of a pool its namespace/name.

    `pool` is None for an audit entry; `at` is when it was last seen, decided, made or written, None for a pool.
    """

    kind: SearchKind
    id: str
    name: str
    words: str
    pool: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGroup:
    """What was found of one kind, newest first.

    `more` says that others match too. `since` is the time of the oldest row that was looked at, where older ones were
    not; None where all were.
    """

    kind: SearchKind
    hits: list[SearchHit]
    more: bool = False
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """One group for each kind; none for an empty search. Where nothing was found by what may be a request's id, `note`
    says why a decision may not be there.
    """

    q: str
    groups: list[SearchGroup]
    note: str | None = None
