"""Errors by which a use case refuses a call; `http.problems` turns each into an RFC 9457 document.

ServiceError
├── NotFound              the named object does not exist
│   └── NotSampled            a decision, most often because it was not kept
├── Changed               the object is not as the caller saw it (If-Match)
├── Conflict              the present state forbids the call; `code` names the reason
│   └── SeveralSessions       sessions of several keys have the name that the call uses
├── Denied                the caller is known, but not allowed
├── NotAuthenticated      the caller is not known; `code` names the reason (login-link-expired, token-invalid, …)
├── TooMany               too many calls in a short time; repeat later
└── Unavailable           a dependency is unavailable; repeat later
    ├── StoreUnavailable      Postgres
    │   └── StoreBusy             Postgres has no capacity for this call
    ├── ClusterUnavailable    the Kubernetes API
    └── IdentityProviderUnavailable
"""

from collections.abc import Sequence

from fairlead.amounts import amount
from fairlead_client.resources.problems import PlanConflict, SessionOfKey


class ServiceError(Exception):
    """Base class of all refusals. `str(error)` is one line of text for users."""


class NotFound(ServiceError):
    """An object does not exist; carries its `kind` and `name`."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"{kind} {name!r} does not exist")


class NotSampled(NotFound):
    """A routing decision is missing, most often because it was not kept. `share` is the observed share of kept
    decisions among requests without a problem (None = unknown); `days` is the number of days for which decisions are
    kept.
    """

    def __init__(self, name: str, share: float | None, days: int) -> None:
        super().__init__("decision", name)
        self.remedy = why_not_there(share, days)


def why_not_there(share: float | None, days: int) -> str:
    """Return the possible reasons why a decision is missing, the likeliest first, and how to keep the next decision."""
    part = "only a share" if share is None else "almost all" if share > 0.99 else f"only about {share * 100:.2g} %"
    likely = (
        f"not sampled: {part} of the decisions about requests without a problem are kept, but all decisions about late, "
        "refused, moved, failed or retried requests; "
        "send the header `x-fairlead-explain: 1` to have one kept"
    )
    return f"{likely}. Otherwise the request has not ended yet, the decision is older than {days} days, or the id is mistyped."


class Conflict(ServiceError):
    """The present state forbids the call; `code` is a short hyphenated name of the reason, used in the problem's type.

    `conflict` describes another caller's change, if such a change is the reason.
    """

    def __init__(self, code: str, detail: str, conflict: PlanConflict | None = None) -> None:
        self.code = code
        self.conflict = conflict
        super().__init__(detail)


MOST_LISTED = 20
"""Maximum number of sessions that the refusal of an ambiguous name lists."""


class SeveralSessions(Conflict):
    """The name that a person gave belongs to sessions of several keys; `sessions` are the first of them. `pool` is None
    if all visible pools were searched.
    """

    def __init__(self, name: str, pool: str | None, sessions: Sequence[SessionOfKey]) -> None:
        self.sessions = list(sessions[:MOST_LISTED])
        self.remedy = "write one of them, with the id of its key"
        listed = ", ".join(f"{one.session} (key {one.key})" for one in self.sessions)
        more = ", …" if len(sessions) > MOST_LISTED else ""
        of = "" if pool is None else f" of {pool}"
        super().__init__("several-sessions", f"{amount(len(sessions), 'session')}{of} have the name {name!r}: {listed}{more}")


class Changed(ServiceError):
    """The object has changed since the caller read it; `tag` is the entity tag of its present version."""

    def __init__(self, what: str, tag: str) -> None:
        self.tag = tag
        super().__init__(f"{what} changed since it was read")


class Denied(ServiceError):
    """The caller is known, but its role does not suffice."""


class NotAuthenticated(ServiceError):
    """The caller is not known; `code` names the reason, on which the caller's next step depends."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


class TooMany(ServiceError):
    """The caller acted too often; `code` names the action. `retry_after_seconds` is the time to wait before the next
    attempt.
    """

    def __init__(self, code: str, detail: str, retry_after_seconds: int) -> None:
        self.code = code
        self.retry_after_seconds = retry_after_seconds
        super().__init__(detail)


class Unavailable(ServiceError):
    """A dependency of the API is unavailable. `retry_after_seconds` is the time to wait before the next attempt."""

    code = "unavailable"

    def __init__(self, detail: str, retry_after_seconds: int = 2) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(detail)


class StoreUnavailable(Unavailable):
    """Postgres does not respond. Nothing of this call was stored, unless the connection was lost during the commit."""

    code = "database-unavailable"


class StoreBusy(StoreUnavailable):
    """Postgres responds, but cannot do the work now: no connection is free, a lock was not granted, or a statement took
    too long.

    Nothing of this call was stored.
    """

    code = "database-busy"


class ClusterUnavailable(Unavailable):
    """The Kubernetes API is not configured or does not respond."""

    code = "cluster-unavailable"


class IdentityProviderUnavailable(Unavailable):
    """The identity provider does not respond, violates the OpenID Connect standard, or refuses this API as its
    client.
    """

    code = "identity-provider-unavailable"
