"""Errors of the sandbox; each is one line that a person at a terminal can act on.

FairleadError
└── SandboxError
    ├── AlreadyRunning      a supervisor holds this state directory
    └── StartFailed         a process or a start-up step did not become ready
"""

from fairlead.errors import FairleadError


class SandboxError(FairleadError):
    """Root of all errors that the sandbox raises on purpose."""


class AlreadyRunning(SandboxError):
    """Another supervisor holds the state directory; the message names its URLs."""


class StartFailed(SandboxError):
    """A process or step did not become ready; the message names it, the reason, and its log."""
