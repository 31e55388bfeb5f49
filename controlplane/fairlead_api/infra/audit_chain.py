"""The audit log's hash chain. Pure.

The hash of an entry covers the entry's content and the hash before it, so that a later change, removal or insertion is
noticed. The first entry of a day continues from the last hash of the day before; the first entry of all starts from the
name of its day.
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
    """An audit entry before it is stored: the actor, action, object and result. It has the same fields as
    AuditEntry.
    """

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
    """The parts of a stored audit entry that verification needs."""

    id: int
    at: datetime
    draft: AuditDraft
    chain: str


def genesis(day: date) -> str:
    """Return the value used in place of the previous hash for the log's first entry."""
    return hashlib.sha256(f"fairlead audit {day.isoformat()}".encode()).hexdigest()


def chain(previous: str, number: int, at: datetime, draft: AuditDraft) -> str:
    """Return the hash of an audit entry. `previous` is the hash of the entry before it, or `genesis`."""
    return chained(previous, as_stored(_content(number, at, draft)))


def _content(number: int, at: datetime, draft: AuditDraft) -> dict[str, Any]:
    return {"id": number, "at": at.astimezone(UTC).isoformat(timespec="microseconds"), **msgspec.to_builtins(draft)}


def hashed(link: Link) -> dict[str, Any]:
    """Return an audit entry in the form that its hash covers, together with the hash."""
    return {**as_stored(_content(link.id, link.at, link.draft)), "chain": link.chain}


def first_broken(links: Iterable[Link], previous: str | None = None, expected: int = 1) -> tuple[int | None, str | None, int]:
    """Verify audit entries in order of id.

    Returns the id of the first invalid entry (or None), the last hash, and the next expected id. A further call takes
    this hash and id as `previous` and `expected` to continue.
    """
    for link in links:
        before = previous if previous is not None else genesis(link.at.astimezone(UTC).date())
        if link.id != expected or chain(before, link.id, link.at, link.draft) != link.chain:
            return link.id, previous, expected
        previous, expected = link.chain, link.id + 1
    return None, previous, expected


def as_stored(value: Any) -> Any:
    """Return the value in the form in which JSONB returns it: a float without a fraction becomes an integer, by its
    decimal digits (1e23 becomes 10**23).
    """
    if isinstance(value, dict):
        return {str(key): as_stored(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_stored(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))
    return value
