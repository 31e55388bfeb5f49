"""Errors of the sandbox; each is one line that a person at a terminal can act on.

FairleadError
└── SandboxError
    ├── AlreadyRunning      a supervisor holds this state directory
    ├── StartFailed         a process or a start-up step did not become ready
    └── ClusterProblem      the Kubernetes API refused a request or could not be reached
"""

from fairlead.errors import FairleadError


class SandboxError(FairleadError):
    """Root of all errors that the sandbox raises on purpose."""


class AlreadyRunning(SandboxError):
    """Another supervisor holds the state directory; the message names its URLs."""


class StartFailed(SandboxError):
    """Something did not become ready; the message names it, why, and where its log is."""


class ClusterProblem(SandboxError):
    """The Kubernetes API answered with an error, or did not answer (`status` is None).

    `reason` is the reason word of the Kubernetes Status (NotFound, Conflict, …) if there was one.
    """

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        self.status = status
        self.reason = reason
        super().__init__(message)

    @property
    def worth_retrying(self) -> bool:
        """Whether the same request may succeed later although nobody changes it."""
        return self.status is None or self.status >= 500 or self.status == 429
