"""`/audit`: who did what, when, why, and whether the log's hash chain still holds."""

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead_client.resources.audit import AuditEntry, AuditVerification
from fairlead_client.resources.pages import Page as Listing
from fairlead_web.differences import Change, changes_between
from fairlead_web.rendering import Context
from fairlead_web.routes import Export, Routes
from fairlead_web.shells import Crumb, Shell
from fairlead_web.visits import Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(Context):
    template: ClassVar[str] = "pages/audit.html"
    shell: Shell
    listing: Listing[AuditEntry]
    verification: AuditVerification | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntryPage(Context):
    template: ClassVar[str] = "pages/audit_entry.html"
    shell: Shell
    entry: AuditEntry
    changes: list[Change]


FILTERS = ("actor", "action", "object")


async def index(visit: Visit) -> Response:
    listing, verification = await asyncio.gather(
        visit.api.audit(visit.filters(*FILTERS, ranged=True)),
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
    return visit.page(AuditEntryPage(shell=shell, entry=entry, changes=changes_between(entry.before or {}, entry.after or {})))


ROUTES = Routes(
    pages={"/audit": index, "/audit/{entry}": show},
    exports={"/audit": Export(name="audit", filters=FILTERS, ranged=True)},
)
