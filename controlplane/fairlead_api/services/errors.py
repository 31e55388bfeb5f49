"""Why a use case refuses; `problems.py` turns each into an RFC 9457 document.

ServiceError
├── NotFound              what was named does not exist
├── Conflict              the state of the world forbids it; `code` names why
├── Denied                known, but not allowed
├── NotAuthenticated      not known; `code` names why (login-link-expired, token-invalid, …)
└── Unavailable           a dependency is away; repeat later
    ├── StoreUnavailable      Postgres
    │   └── StoreBusy             Postgres has no time for this
    └── ClusterUnavailable    the Kubernetes API
"""


class ServiceError(Exception):
    """Root of every refusal; `str(error)` is one line fit for a user."""


class NotFound(ServiceError):
    """`kind` and `name` of what was looked for."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"{kind} {name!r} does not exist")


class Conflict(ServiceError):
    """`code` is a short word with hyphens, used in the problem's type."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


class Denied(ServiceError):
    """Known to the API, but the role does not reach."""


class NotAuthenticated(ServiceError):
    """`code` tells a person what to do next."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


class Unavailable(ServiceError):
    """A dependency is away. `retry_after_seconds` is when it is worth asking again."""

    code = "unavailable"

    def __init__(self, detail: str, retry_after_seconds: int = 2) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(detail)


class StoreUnavailable(Unavailable):
    """Postgres does not answer; nothing of this call was stored."""

    code = "database-unavailable"


class StoreBusy(StoreUnavailable):
    """Postgres answers, but not this: no connection free, a lock not granted or a statement too long.

    Nothing of this call was stored.
    """

    code = "database-busy"


class ClusterUnavailable(Unavailable):
    """The Kubernetes API is not configured or does not answer."""

    code = "cluster-unavailable"
