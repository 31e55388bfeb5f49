"""The audit log's hash chain. Pure.

Every entry's hash covers its content and the hash before it, so that a later change, removal or insertion is noticed.
The chain of a day starts from the last hash of the day before, or from the day's name if there is no earlier hash.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from fairlead_client.audit_exports import chained
from fairlead_client.resources.audit import AuditResult


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDraft:
    """An entry before it is stored: the actor, action, object and result. It has the same fields as AuditEntry."""

    actor: str
    role: str
    source: str
    action: str
    object: str
    reason: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    result: AuditResult = AuditResult.OK
    request_id: str | None = None
    plan: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The parts of a stored entry that verification needs."""

    id: int
    at: datetime
    draft: AuditDraft
    chain: str


def genesis(day: date) -> str:
    """Return the value used as the previous hash for the very first entry."""
    return hashlib.sha256(f"fairlead audit {day.isoformat()}".encode()).hexdigest()


def chain(previous: str, number: int, at: datetime, draft: AuditDraft) -> str:
    """Hash of an entry. `previous` is the hash of the entry before, or `genesis`."""
    return chained(previous, as_stored(_content(number, at, draft)))


def _content(number: int, at: datetime, draft: AuditDraft) -> dict[str, Any]:
    return {"id": number, "at": at.astimezone(UTC).isoformat(timespec="microseconds"), **msgspec.to_builtins(draft)}


def hashed(link: Link) -> dict[str, Any]:
    """Return an entry in the form that its hash covers, with the hash."""
    return {**as_stored(_content(link.id, link.at, link.draft)), "chain": link.chain}


def first_broken(links: Iterable[Link], previous: str | None = None, expected: int = 1) -> tuple[int | None, str | None, int]:
    """Check entries in order of id.

    Returns the id of the first invalid entry (or None), the last hash, and the next expected id. The next call
    continues with this hash and id.
    """
    for link in links:
        before = previous if previous is not None else genesis(link.at.astimezone(UTC).date())
        if link.id != expected or chain(before, link.id, link.at, link.draft) != link.chain:
            return link.id, previous, expected
        previous, expected = link.chain, link.id + 1
    return None, previous, expected


def as_stored(value: Any) -> Any:
    """Return the value in the form in which JSONB returns it: whole floats become integers, by their decimal digits
    (1e23 is 10**23).
    """
    if isinstance(value, dict):
        return {str(key): as_stored(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_stored(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))
    return value
