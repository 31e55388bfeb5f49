"""`/audit` and `…/{namespace}/{name}/audit`: the actors, actions, times and reasons of all changes, and whether the
log's hash chain is intact. Also shows saved views, which are links with filters of this page.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import (
    AuditAction,
    AuditEntry,
    AuditFacet,
    AuditFacets,
    AuditKind,
    AuditVerification,
    AuditView,
    AuditViewChange,
    AuditViewRequest,
)
from fairlead_client.resources.comments import Comment
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.problems import Problem
from fairlead_web.drawing.differences import Change, changes_between
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.undoing import undoable
from fairlead_web.frame.visits import Visit
from fairlead_web.text.addresses import with_query
from fairlead_web.text.facets import Facet
from fairlead_web.text.time_ranges import TimeRange, span_text
from fairlead_web.text.typed_text import whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """A saved view as a link, with a note about its owner. `chosen` is True if the page shows the view now,
    `may_change` if the reader may rename and delete the view.
    """

    view: AuditView
    url: str
    note: str
    chosen: bool
    may_change: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(Context):
    """The page with the list of audit entries. `whole` is True if the reader sees all namespaces, and so may verify the
    chain. `problem` says why a view could not be saved or changed, and `typed` is the name that was typed for the view.
    """

    template: ClassVar[str] = "pages/audit.html"
    shell: Shell
    listing: Listing[AuditEntry]
    verification: AuditVerification | None
    whole: bool
    actions: list[str]
    facets: dict[str, list[Facet]]
    """For each field, its values with the number of entries in the range, each as a link that filters by the value."""
    counted: int
    """Number of entries that the facets count."""
    views: list[SavedView]
    shown: SavedView | None
    """The saved view that the page shows, if the reader may change that view; otherwise None."""
    may_share: bool
    comments: list[Comment] | None
    """Comments whose range overlaps the page's range; None if they could not be read."""
    problem: Problem | None
    typed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntryPage(Context):
    """The page of one audit entry. `pool` is the pool that the entry is about; `can_undo` is True if the entry's plan
    can still be undone from this page.
    """

    template: ClassVar[str] = "pages/audit_entry.html"
    shell: Shell
    entry: AuditEntry
    changes: list[Change]
    pool: str | None
    can_undo: bool


SHOWN_VALUES = 8
"""Maximum number of values of each field that the page shows as filters; the most frequent are shown."""
SHOWN_COMMENTS = 20
"""Maximum number of comments that are shown beside the entries; the latest are shown."""
FILTERS = ("pool", "kind", "actor", "action", "object")
REFUSALS = frozenset({400, 403, 404, 409, 422})


async def index(visit: Visit) -> Response:
    return await _page(visit)


async def change_views(visit: Visit) -> Response:
    """Save the page's filters as a view, or change or delete a saved view."""
    form = await visit.form()
    name, view, shared = str(form.get("name", "")).strip(), str(form.get("saved", "")), "shared" in form
    try:
        if not view:
            saved = await visit.api.save_audit_view(_request(visit, name, shared))
        elif form.get("act") == "delete":
            await visit.api.delete_audit_view(view)
            return visit.back_to("/audit")
        else:
            saved = await visit.api.change_audit_view(view, AuditViewChange(name=name, shared=shared))
    except ApiProblem as error:
        if error.problem.status not in REFUSALS:
            raise
        return await _page(visit, error.problem, name)
    return visit.redirect(with_query("/audit", saved.query))


def _request(visit: Visit, name: str, shared: bool) -> AuditViewRequest:
    """Return the request that saves the page's filters as a view. The range of a view is relative to the present, so a
    range between two fixed dates is left out.
    """
    chosen = {filter_: visit.param(filter_) for filter_ in FILTERS if filter_ != "kind"}
    kind = next((one for one in AuditKind if one == visit.param("kind")), None)
    start, end = _relative(visit.range)
    return AuditViewRequest(name=name, shared=shared, kind=kind, start=start, end=end, **chosen)


def _relative(chosen: TimeRange) -> tuple[str, str] | tuple[None, None]:
    if not (chosen.start_text.startswith("now") and chosen.end_text.startswith("now")):
        return None, None
    ago = (chosen.now - chosen.end).total_seconds()
    return f"now-{span_text(chosen.seconds + ago)}", f"now-{span_text(ago)}" if ago else "now"


async def _page(visit: Visit, problem: Problem | None = None, typed: str = "") -> Response:
    visit = replace(visit, identity=visit.identity or await visit.api.whoami())
    whole = visit.identity is not None and visit.identity.reaches(AccessRole.VIEWER)
    ranged = {"pool": visit.param("pool"), **visit.range.asked}
    listing, verification, found, views, comments = await asyncio.gather(
        visit.api.audit(visit.filters(*FILTERS, ranged=True)),
        visit.attempt("verification", visit.api.audit_verification()) if whole else _nothing(),
        visit.attempt("facets", visit.api.audit_facets(ranged)),
        visit.attempt("saved views", visit.api.audit_views()),
        visit.attempt("comments", visit.api.comments(ranged)),
    )
    shell = await visit.shell("Audit log", "audit", crumbs=(Crumb(words="Audit"),), ranged=True)
    saved = [] if views is None else [_saved(visit, one) for one in views.views]
    page = AuditPage(
        shell=shell,
        listing=listing,
        verification=verification,
        whole=whole,
        actions=_actions(found),
        facets={} if found is None else _facets(visit, found),
        counted=0 if found is None else found.entries,
        views=saved,
        shown=next((one for one in saved if one.chosen and one.may_change), None),
        may_share=_reaches(visit, AccessRole.OPERATOR, visit.param("pool")),
        comments=None if comments is None else comments.comments[:SHOWN_COMMENTS],
        problem=problem,
        typed=typed,
    )
    return visit.page(page, problem.status if problem else 200)


def _saved(visit: Visit, view: AuditView) -> SavedView:
    shown = {name: visit.param(name) for name in (*FILTERS, "from", "to")}
    mine = visit.identity is not None and view.owner == visit.identity.subject
    return SavedView(
        view=view,
        url=visit.link(with_query("/audit", view.query)),
        note=f"by {view.owner}" if not mine else "shared" if view.shared else "",
        chosen={name: value for name, value in shown.items() if value} == view.query,
        may_change=mine or _reaches(visit, AccessRole.ADMIN, view.pool),
    )


def _reaches(visit: Visit, role: AccessRole, pool: str | None) -> bool:
    """Return whether the reader has the role in the pool's namespace or, if `pool` is None, in all namespaces."""
    return visit.identity is not None and visit.identity.reaches(role, None if pool is None else pool.partition("/")[0])


def _actions(found: AuditFacets | None) -> list[str]:
    """Return the actions for the filter: actions that occur in the range, and all actions of people."""
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
    """Respond with the signed export of the page's time range."""
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
    writes={"/audit": change_views, f"{POOL}/audit": change_views},
    pages={"/audit": index, "/audit/export": export, "/audit/{entry}": show, f"{POOL}/audit": index},
    exports={
        "/audit": Export(name="audit", filters=FILTERS, ranged=True),
        f"{POOL}/audit": Export(name="audit", filters=FILTERS, ranged=True),
    },
)
