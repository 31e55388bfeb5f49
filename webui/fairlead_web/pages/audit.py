"""`/audit` and `…/{namespace}/{name}/audit`: who did what, when, why, and whether the log's hash chain still holds."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditAction, AuditEntry, AuditFacet, AuditFacets, AuditVerification
from fairlead_client.resources.pages import Page as Listing
from fairlead_web.drawing.differences import Change, changes_between
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.undoing import undoable
from fairlead_web.frame.visits import Visit
from fairlead_web.text.facets import Facet
from fairlead_web.text.typed_text import whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(Context):
    """The list. `whole`: whether the reader sees all namespaces, and so may verify the chain."""

    template: ClassVar[str] = "pages/audit.html"
    shell: Shell
    listing: Listing[AuditEntry]
    verification: AuditVerification | None
    whole: bool
    actions: list[str]
    facets: dict[str, list[Facet]]
    """Values of fields with the number of entries in the range, each a link."""
    counted: int
    """Entries that the facets count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntryPage(Context):
    """One entry. `pool` is the pool it is about; `can_undo` says whether its plan can still be undone from here."""

    template: ClassVar[str] = "pages/audit_entry.html"
    shell: Shell
    entry: AuditEntry
    changes: list[Change]
    pool: str | None
    can_undo: bool


SHOWN_VALUES = 8
"""Values of a facet that the page shows, the most frequent."""
FILTERS = ("pool", "kind", "actor", "action", "object")


async def index(visit: Visit) -> Response:
    visit = replace(visit, identity=visit.identity or await visit.api.whoami())
    whole = visit.identity is not None and visit.identity.reaches(AccessRole.VIEWER)
    ranged = {"pool": visit.param("pool"), **visit.range.asked}
    listing, verification, found = await asyncio.gather(
        visit.api.audit(visit.filters(*FILTERS, ranged=True)),
        visit.attempt("verification", visit.api.audit_verification()) if whole else _nothing(),
        visit.attempt("facets", visit.api.audit_facets(ranged)),
    )
    shell = await visit.shell("Audit log", "audit", crumbs=(Crumb(words="Audit"),), ranged=True)
    page = AuditPage(
        shell=shell,
        listing=listing,
        verification=verification,
        whole=whole,
        actions=_actions(found),
        facets={} if found is None else _facets(visit, found),
        counted=0 if found is None else found.entries,
    )
    return visit.page(page)


def _actions(found: AuditFacets | None) -> list[str]:
    """The actions that occur in the range, and all that people can make."""
    occurring = [] if found is None else [one.value for one in found.actions]
    return sorted({*AuditAction, *occurring})


def _facets(visit: Visit, found: AuditFacets) -> dict[str, list[Facet]]:
    values = {"action": found.actions, "actor": found.actors}
    return {name: [_facet(visit, name, one) for one in counted[:SHOWN_VALUES]] for name, counted in values.items() if counted}


def _facet(visit: Visit, name: str, one: AuditFacet) -> Facet:
    chosen = visit.param(name) == one.value
    return Facet(
        words=one.value, count=one.entries, chosen=chosen, url=visit.here.url(**{name: None if chosen else one.value, "cursor": None})
    )


async def export(visit: Visit) -> Response:
    """The signed export of the page's range."""
    chunks = visit.api.export("/v1/audit/export", visit.range.asked)
    first = await anext(chunks, b"")  # a refusal becomes an answer of its own, and not a broken file

    async def body() -> AsyncIterator[bytes]:
        yield first
        async for chunk in chunks:
            yield chunk

    headers = {"Content-Disposition": 'attachment; filename="audit.jsonl"'}
    return StreamingResponse(body(), media_type="application/jsonl", headers=headers)


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
    pages={"/audit": index, "/audit/export": export, "/audit/{entry}": show, f"{POOL}/audit": index},
    exports={
        "/audit": Export(name="audit", filters=FILTERS, ranged=True),
        f"{POOL}/audit": Export(name="audit", filters=FILTERS, ranged=True),
    },
)
