"""The audit log: its entries, and whether its hash chain holds."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class AuditAction(StrEnum):
    """The actions of people and processes that are audited.

    The action of an event from the operator process is `operator.` and the event's reason.
    """

    LOGIN = "login"
    LOGOUT = "logout"
    ACCESS_DENIED = "access.denied"
    SESSION_REVOKED = "session.revoked"
    LOGIN_LINK_CREATED = "login-link.created"
    TOKEN_CREATED = "token.created"  # noqa: S105 - an action, no secret
    TOKEN_REVOKED = "token.revoked"  # noqa: S105
    GATEWAY_KEY_CREATED = "gateway-key.created"
    GATEWAY_KEY_CHANGED = "gateway-key.changed"
    GATEWAY_KEY_ROTATED = "gateway-key.rotated"
    GATEWAY_KEY_REVOKED = "gateway-key.revoked"
    GATEWAY_KEY_BUDGET_SOFT = "gateway-key.budget-soft"
    GATEWAY_KEY_BUDGET_USED_UP = "gateway-key.budget-used-up"
    WEBHOOK_CREATED = "webhook.created"
    WEBHOOK_DELETED = "webhook.deleted"
    WEBHOOK_TESTED = "webhook.tested"
    AUDIT_VIEW_SAVED = "audit-view.saved"
    AUDIT_VIEW_CHANGED = "audit-view.changed"
    AUDIT_VIEW_DELETED = "audit-view.deleted"
    COMMENT_ADDED = "comment.added"
    COMMENT_DELETED = "comment.deleted"
    SESSION_KEPT = "session.decisions-kept"
    """All decisions of a session are kept for some minutes."""
    SESSION_LET_GO = "session.decisions-let-go"
    PLAN_CREATED = "plan.created"
    PLAN_PROPOSED = "plan.proposed"
    PLAN_APPLIED = "plan.applied"
    PLAN_UNDONE = "plan.undone"
    SIMULATION_CREATED = "simulation.created"
    ENGINE_FITTED = "engine.fitted"
    SIMULATION_CANCELLED = "simulation.cancelled"
    POOL_CREATED = "pool.created"
    POOL_SPEC_CHANGED = "pool.spec-changed"
    POOL_CHANGE_ATTRIBUTED = "pool.change-attributed"
    """The Kubernetes API's audit log named the author of a change that was recorded under its field manager."""
    POOL_DELETED = "pool.deleted"
    DATABASE_WENT_BACK = "database.went-back"
    """The database lacks data that it had committed, so tokens and keys whose revocation is lost are valid again."""


OPERATOR_EVENT = "operator."
"""Prefix of actions that are events of the operator process, such as `operator.InstanceCreated`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAuditReceipt:
    """The result of receiving a list of the Kubernetes API's audit events. `changes` is the number of changes of pools,
    and `new` the number of changes that were new. `unusable` is the number of pool events that cannot be used, because
    the audit policy's level is below RequestResponse.
    """

    changes: int
    new: int
    unusable: int


class AuditKind(StrEnum):
    """The kind of actor: a person (also with a token or kubectl), or the system."""

    HUMAN = "human"
    SYSTEM = "system"


class AuditResult(StrEnum):
    """The result of the action: done, not allowed, failed during execution, or refused because of its input."""

    OK = "ok"
    DENIED = "denied"
    FAILED = "failed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One entry of the audit log. `action` is an AuditAction, or OPERATOR_EVENT and the event's reason.

    `role` is an AccessRole, `cluster` for an action from outside, or `none` if the caller was not recognized. `chain`
    is the hash that links this entry to the one before it on the same day. For a change made with kubectl, `actor` is
    its field manager, unless the Kubernetes API's audit log has already named the user; if it names the user later, an
    entry `pool.change-attributed` follows, because entries are never changed.
    """

    id: int
    at: datetime
    actor: str
    role: str
    source: str
    action: str
    object: str
    reason: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    result: AuditResult
    request_id: str | None
    plan: str | None
    chain: str
    kind: AuditKind = AuditKind.HUMAN


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFacet:
    """A value of a field of audit entries, and how many entries have it."""

    value: str
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFacets:
    """The values that occur in the entries of a range, at most 50 of each field, the most frequent first.

    At most the newest 100,000 entries are counted; `entries` is their number.
    """

    start: datetime
    end: datetime
    entries: int
    actions: list[AuditFacet]
    actors: list[AuditFacet]
    results: list[AuditFacet]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """An entry's position in the audit log's chain.

    A head kept outside the database later proves that no entry up to it was changed or removed.
    """

    id: int
    chain: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerification:
    """Whether the audit log is whole.

    `first_broken` is the id of the first entry that is wrong or missing. `missing` counts the entries that are missing
    before the newest head. `kept_head_holds` says whether the head that the caller gave is still in the chain (None: no
    head was given).
    """

    intact: bool
    entries: int
    first_broken: int | None
    missing: int = 0
    head: AuditHead | None = None
    kept_head_holds: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditViewFilters:
    """Filters of the audit log, as `GET /v1/audit` has them; `start` and `end` are its `from` and `to`, as relative
    times such as `now-7d`.
    """

    pool: str | None = None
    kind: AuditKind | None = None
    actor: str | None = None
    action: str | None = None
    object: str | None = None
    start: str | None = None
    end: str | None = None

    @property
    def query(self) -> dict[str, str]:
        """The filters that are set, as query parameters of `GET /v1/audit` and of the audit page."""
        names = ("pool", "kind", "actor", "action", "object", "start", "end")
        given = {name: getattr(self, name) for name in names}
        return {{"start": "from", "end": "to"}.get(name, name): str(value) for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditViewRequest(AuditViewFilters):
    """A view to save: filters under a name that is unique among the person's own views. `shared` shows the view to
    everybody who sees its pool; without a pool, to everybody who sees all pools.
    """

    name: str
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditViewChange:
    """The changes to a saved view: its name, whether it is shared, or both. None leaves a value unchanged."""

    name: str | None = None
    shared: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView(AuditViewFilters):
    """A saved view of the audit log, which belongs to the person `owner`."""

    id: str
    name: str
    owner: str
    shared: bool
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditViews:
    """The saved views that a person sees, by name: the person's own views, and views that other people share."""

    views: list[AuditView]
