"""Errors that are raised on purpose. Each is one line on which a person at a terminal can act.

- ProcesskubeError: the base of the others
- InvalidInput: an option cannot be used; names option, value and remedy
- ClusterProblem: the Kubernetes API refused a request or could not be reached
"""


class ProcesskubeError(Exception):
    """The base of all errors that are raised on purpose."""


class InvalidInput(ProcesskubeError):
    """Raised for a value of an option that cannot be used."""

    def __init__(self, option: str, value: object, remedy: str) -> None:
        super().__init__(f"{option}: {value!r} cannot be used; {remedy}")


class ClusterProblem(ProcesskubeError):
    """Raised when the Kubernetes API responds with an error, or does not respond (then `status` is None).

    `reason` is the reason in the Kubernetes Status, such as NotFound or Conflict; "" if the API sent no Status.
    """

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        self.status = status
        self.reason = reason
        super().__init__(message)

    @property
    def worth_retrying(self) -> bool:
        """Whether the same request may succeed later without any change by a person."""
        return self.status is None or self.status >= 500 or self.status == 429
