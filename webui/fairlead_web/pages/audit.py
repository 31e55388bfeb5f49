"""`/audit`: who did what, when, why, and whether the log's hash chain still holds."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead_web.contexts.governance import AuditEntryPage, AuditPage, Change
from fairlead_web.rendering import plain
from fairlead_web.shells import Crumb
from fairlead_web.visits import Visit


async def index(visit: Visit) -> Response:
    listing, verification = await asyncio.gather(
        visit.api.audit(visit.filters("actor", "action", "object", ranged=True)),
        visit.attempt("verification", visit.api.audit_verification()),
    )
    shell = await visit.shell("Audit log", "audit", crumbs=(Crumb(words="Audit"),), ranged=True)
    return visit.page(AuditPage(shell=shell, listing=listing, verification=verification))


async def show(visit: Visit) -> Response:
    number = visit.request.path_params["entry"]
    if not (number.isascii() and number.isdigit() and len(number) < 18):
        raise HTTPException(404)
    entry = await visit.api.audit_entry(int(number))
    shell = await visit.shell(f"Audit entry {entry.id}", "audit", crumbs=(Crumb(words="Audit", path="/audit"), Crumb(words=str(entry.id))))
    return visit.page(AuditEntryPage(shell=shell, entry=entry, changes=changes(entry.before or {}, entry.after or {})))


def changes(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[Change]:
    """Fields that differ, by dotted path; nested objects are compared field by field."""
    found: list[Change] = []
    for name in [*before, *(name for name in after if name not in before)]:
        here = f"{path}.{name}" if path else str(name)
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found += changes(old, new, here)
        elif old != new:
            found.append(Change(path=here, before=plain(old), after=plain(new)))
    return found
