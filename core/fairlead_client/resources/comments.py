"""Comments that people write about a pool: on a range of time, or on a plan."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentRequest:
    """A comment of 1 to 1,000 characters, either on a plan of the pool or on the time from `start` to `end`, which are
    RFC 3339 or relative, such as now-1h and now.
    """

    text: str
    plan: str | None = None
    start: str | None = None
    end: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment of `author` on the time from `start` to `end` of a pool. The time of a comment on a `plan` is the
    moment when the plan was made.
    """

    id: str
    pool: str
    author: str
    text: str
    start: datetime
    end: datetime
    plan: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Comments:
    """The comments of a range, ordered by the time that they are about, the latest first. If not `complete`, the range
    has more comments.
    """

    comments: list[Comment]
    complete: bool
