"""The audit log: its entries, and whether its hash chain holds."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """`chain` is the hash linking this entry to the one before it on the same day."""

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
    result: str
    request_id: str | None
    plan: str | None
    chain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """An entry's place in the audit log's chain. Whoever keeps one elsewhere can prove later that nothing up to it was changed or cut off."""

    id: int
    chain: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerification:
    """Whether the audit log is whole. `first_broken` is the id of the first entry that does not fit or is gone, `missing` how many entries the
    newest head knows of and the log has not, `kept_head_holds` whether the head asked about is still in the chain (None: none was)."""

    intact: bool
    entries: int
    first_broken: int | None
    missing: int = 0
    head: AuditHead | None = None
    kept_head_holds: bool | None = None
