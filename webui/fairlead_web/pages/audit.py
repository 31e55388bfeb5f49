"""`/audit` and `…/{namespace}/{name}/audit`: who did what, when, why, and whether the log's hash chain still holds."""

import asyncio
from dataclasses import dataclass, replace
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditAction, AuditEntry, AuditVerification
from fairlead_client.resources.pages import Page as Listing
from fairlead_web.drawing.differences import Change, changes_between
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.undoing import undoable
from fairlead_web.frame.visits import Visit
from fairlead_web.text.typed_text import whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(Context):
    """The list. `whole`: whether the reader sees all namespaces, and so may verify the chain."""

    template: ClassVar[str] = "pages/audit.html"
    shell: Shell
    listing: Listing[AuditEntry]
    verification: AuditVerification | None
    whole: bool
    actions: list[AuditAction]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntryPage(Context):
    """One entry. `pool` is the pool it is about; `can_undo` says whether its plan can still be undone from here."""

    template: ClassVar[str] = "pages/audit_entry.html"
    shell: Shell
    entry: AuditEntry
    changes: list[Change]
    pool: str | None
    can_undo: bool


FILTERS = ("pool", "kind", "actor", "action", "object")


async def index(visit: Visit) -> Response:
    visit = replace(visit, identity=visit.identity or await visit.api.whoami())
    whole = visit.identity is not None and visit.identity.reaches(AccessRole.VIEWER)
    listing, verification = await asyncio.gather(
        visit.api.audit(visit.filters(*FILTERS, ranged=True)),
        visit.attempt("verification", visit.api.audit_verification()) if whole else _nothing(),
    )
    shell = await visit.shell("Audit log", "audit", crumbs=(Crumb(words="Audit"),), ranged=True)
    return visit.page(AuditPage(shell=shell, listing=listing, verification=verification, whole=whole, actions=list(AuditAction)))


async def _nothing() -> None:
    return None


async def show(visit: Visit) -> Response:
    number = whole_number(visit.request.path_params["entry"])
    if number is None:
        raise HTTPException(404)
    entry = await visit.api.audit_entry(number)
    shell = await visit.shell(f"Audit entry {entry.id}", "audit", crumbs=(Crumb(words="Audit", path="/audit"), Crumb(words=str(entry.id))))
    pools = (f"{one.namespace}/{one.name}" for one in shell.pools)
    pool = next((pool for pool in pools if f"{entry.object}/".startswith(f"{pool}/")), None)
    context = AuditEntryPage(
        shell=shell,
        entry=entry,
        changes=changes_between(entry.before or {}, entry.after or {}),
        pool=pool,
        can_undo=await undoable(visit, entry, shell.identity),
    )
    return visit.page(context)


ROUTES = Routes(
    pages={"/audit": index, "/audit/{entry}": show, f"{POOL}/audit": index},
    exports={
        "/audit": Export(name="audit", filters=FILTERS, ranged=True),
        f"{POOL}/audit": Export(name="audit", filters=FILTERS, ranged=True),
    },
)
