"""Search: objects of all kinds that have a page and whose name contains the given text."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class SearchKind(StrEnum):
    """The kind of a search result; a request is found by the decision that routed it."""

    POOL = "pool"
    INSTANCE = "instance"
    SESSION = "session"
    REQUEST = "request"
    PLAN = "plan"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A search result.

    `id` is the id in the path of the result's page: for a request the id of its decision, for a pool `namespace/name`.
    `pool` is None for an audit entry. `at` is the time at which the object was last seen, decided, made or written;
    None for a pool.
    """

    kind: SearchKind
    id: str
    name: str
    words: str
    pool: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGroup:
    """The hits of one kind, newest first.

    `more` says whether further rows match. `since` is the time of the oldest row that was searched, None if all rows
    were searched.
    """

    kind: SearchKind
    hits: list[SearchHit]
    more: bool = False
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """One group for each kind; no group if the searched text is empty. If the text may be a request's id and nothing
    was found, `note` says why the request's decision may be missing.
    """

    q: str
    groups: list[SearchGroup]
    note: str | None = None
