"""Errors of the client.

ClientError
├── ApiProblem        the API answered with a problem document; carries it
├── ApiUnreachable    no usable answer: refused, broken mid-way, or not JSON
│   ├── ApiLate       it took the request, but did not answer in time
│   └── ClientBusy    the request was not sent: this process uses all of its connections to the API
├── StreamLost        the routers' stream was refused, ended, fell silent or sent something unreadable
└── UnreadableLine    one line of that stream is not JSON, misses a member or has no end
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_client.resources.problems import Problem


def told(problem: Problem) -> str:
    """Return a line with the fault and its remedy; a remedy that the detail already contains is not repeated."""
    text = problem.detail or problem.title
    return f"{text}; {problem.remedy}" if problem.remedy and problem.remedy not in text else text


class ClientError(Exception):
    """The root of the errors that the client raises on purpose; `str(error)` is one line fit for a user."""


class ApiProblem(ClientError):
    """The API refused or failed.

    `problem.status` is the HTTP status; `retry_after_seconds` comes from Retry-After, if it was sent.
    """

    def __init__(self, problem: Problem, retry_after_seconds: float | None = None) -> None:
        self.problem = problem
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{problem.status} {problem.title}: {told(problem)}")

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later without any change (the API or its database was
        unavailable or busy).
        """
        return self.problem.status in {429, 502, 503, 504}


class ApiUnreachable(ClientError):
    """The API could not be reached, or its response could not be understood.

    A write may or may not have been carried out; every write of this client may safely be repeated.
    """


class ApiLate(ApiUnreachable):
    """The API was reached, but did not respond in time."""


class ClientBusy(ApiUnreachable):
    """The request was not sent, because all of this process's connections to the API were in use for too long."""


class StreamLost(ClientError):
    """The stream is over; the message says why. Lines received before stay valid."""


class UnreadableLine(ClientError):
    """A line of the stream that cannot be read; the message names the fault of the line."""
