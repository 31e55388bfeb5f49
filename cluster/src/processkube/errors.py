"""Errors that are raised on purpose; each is one line that a person at a terminal can act on.

ProcesskubeError
├── InvalidInput        an option cannot be used; names option, value and remedy
└── ClusterProblem      the Kubernetes API refused a request or could not be reached
"""


class ProcesskubeError(Exception):
    """Root of all errors that are raised on purpose."""


class InvalidInput(ProcesskubeError):
    """A value that a person gave cannot be used."""

    def __init__(self, option: str, value: object, remedy: str) -> None:
        super().__init__(f"{option}: {value!r} cannot be used; {remedy}")


class ClusterProblem(ProcesskubeError):
    """The Kubernetes API responded with an error, or did not respond (`status` is None).

    `reason` is the reason of the Kubernetes Status (NotFound, Conflict, …) if there was one.
    """

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        self.status = status
        self.reason = reason
        super().__init__(message)

    @property
    def worth_retrying(self) -> bool:
        """Whether the same request may succeed later without any change by a person."""
        return self.status is None or self.status >= 500 or self.status == 429
