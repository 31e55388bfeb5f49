"""What became of one call of the internal protocol.

The caller only decides what to do about it; nothing here was tried twice.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Taken(Generic[Answer]):
    """The API did it and said so."""

    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The API understood the body and will never take it (400, 413, 422), so that sending it again is pointless.

    `problem` is one line.
    """

    problem: str


class Cause(Enum):
    """Why a call was not taken now."""

    UNREACHABLE = "unreachable"
    """No connection, or it broke before the answer."""
    TIMED_OUT = "timed-out"
    """Sent, but not answered in time. The API may still be working on it."""
    FAULT = "fault"
    """Answered 500: the API failed at this very body, or at everything."""
    UNAVAILABLE = "unavailable"
    """Answered 429, or 5xx other than 500: the API or its database is away or busy."""
    DECLINED = "declined"
    """Any other answer, such as 401 for a token it does not know or 409 for a state older than the stored one."""
    UNREADABLE = "unreadable"
    """Answered that it took the body, in words this version cannot read."""


OUTAGES = frozenset({Cause.UNREACHABLE, Cause.TIMED_OUT, Cause.FAULT, Cause.UNAVAILABLE})
"""Causes that lie with the API, so that other calls would fare no better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """Not taken now, or not known to be: the same call may succeed later, and may be repeated without
    harm. `problem` is one line;
    `retry_after_seconds` is the pause that was asked for, None when none was.
    """

    cause: Cause
    problem: str
    retry_after_seconds: float | None = None


Outcome = Taken[Answer] | Refused | Later
