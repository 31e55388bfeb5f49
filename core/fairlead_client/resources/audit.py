"""The audit log: its entries, and whether its hash chain holds."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class AuditAction(StrEnum):
    """What people and processes do that is audited.

    What the operator process tells of is `operator.` and the reason of its event.
    """

    LOGIN = "login"
    LOGOUT = "logout"
    ACCESS_DENIED = "access.denied"
    LOGIN_LINK_CREATED = "login-link.created"
    TOKEN_CREATED = "token.created"  # noqa: S105 - an action, no secret
    TOKEN_REVOKED = "token.revoked"  # noqa: S105
    PLAN_CREATED = "plan.created"
    PLAN_APPLIED = "plan.applied"
    PLAN_UNDONE = "plan.undone"
    POOL_CREATED = "pool.created"
    POOL_SPEC_CHANGED = "pool.spec-changed"
    POOL_DELETED = "pool.deleted"


OPERATOR_EVENT = "operator."
"""Beginning of the actions that are events of the operator process, such as `operator.DrainStarted`."""


class AuditResult(StrEnum):
    """How it ended: done, not allowed, failed on the way, or refused for what it asked."""

    OK = "ok"
    DENIED = "denied"
    FAILED = "failed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """`action` is an AuditAction, or OPERATOR_EVENT and the event's reason; `role` is an AccessRole, `cluster` for
    what came from outside, or
    `none` where nobody was recognized. `chain` is the hash linking this entry to the one before it on the same day.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """An entry's place in the audit log's chain.

    Whoever keeps one elsewhere can prove later that nothing up to it was changed or cut off.
    """

    id: int
    chain: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerification:
    """Whether the audit log is whole. `first_broken` is the id of the first entry that does not fit or is gone,
    `missing` how many entries the newest head knows of and the log has not, `kept_head_holds` whether the head asked
    about is still in the chain (None: none was).
    """

    intact: bool
    entries: int
    first_broken: int | None
    missing: int = 0
    head: AuditHead | None = None
    kept_head_holds: bool | None = None
