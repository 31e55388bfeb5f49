"""The possible outcomes of one call of the internal protocol.

Calls are never retried here; the caller decides what to do about the outcome.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Taken(Generic[Answer]):
    """The API accepted the call and responded."""

    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The API understood the body and will never accept it (400, 413, 422), so sending it again is pointless.

    `problem` is one line.
    """

    problem: str


class Cause(Enum):
    """The reason why a call was not accepted now."""

    UNREACHABLE = "unreachable"
    """No connection could be made, or it broke before the response arrived."""
    TIMED_OUT = "timed-out"
    """The call was sent, but no response arrived in time. The API may still be working on it."""
    FAULT = "fault"
    """The API responded with 500, because it failed at this particular body or fails at every body."""
    UNAVAILABLE = "unavailable"
    """The API responded with 429, or 5xx other than 500: it or its database is unavailable or busy."""
    DECLINED = "declined"
    """Any other response of the API, such as 401 for an unknown token or 409 for a state older than the stored one."""
    UNREADABLE = "unreadable"
    """The API accepted the body, but this version cannot read the response."""


OUTAGES = frozenset({Cause.UNREACHABLE, Cause.TIMED_OUT, Cause.FAULT, Cause.UNAVAILABLE})
"""Causes that are faults or outages of the API, so other calls would fail too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """The call was not accepted, or it is not known whether it was accepted. It may succeed later, and repeating it
    does no harm.

    `problem` is one line; `retry_after_seconds` is the pause the API asked for, None if the API asked for no pause.
    """

    cause: Cause
    problem: str
    retry_after_seconds: float | None = None


Outcome = Taken[Answer] | Refused | Later
