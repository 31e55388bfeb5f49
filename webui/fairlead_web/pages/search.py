"""`/search`: finds everything that has a page by a part of its name. The command palette shows the same list."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.resources.search import SearchGroup, SearchHit, SearchKind
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit, regions_of
from fairlead_web.text.addresses import instance_path, pool_path, segment, session_path

IN_PALETTE = 5
ON_PAGE = 25
LONGEST = 200
"""Characters of the longest text that is searched for."""
WORDS = {
    SearchKind.POOL: "Pools",
    SearchKind.INSTANCE: "Instances",
    SearchKind.SESSION: "Sessions",
    SearchKind.REQUEST: "Requests",
    SearchKind.PLAN: "Plans",
    SearchKind.AUDIT: "Audit log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRow:
    """One hit with the path of its page."""

    hit: SearchHit
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGroup:
    """The hits of one kind; `key` is safe in an element's id."""

    key: str
    words: str
    rows: list[FoundRow]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage(Context):
    template: ClassVar[str] = "pages/search.html"
    shell: Shell
    q: str
    groups: list[FoundGroup]
    note: str
    """Why the decision of a request may be missing."""
    partly: list[tuple[str, datetime]]
    """Kinds whose rows were searched only in part, and since when."""


async def show(visit: Visit) -> Response:
    q = (visit.param("q") or "").strip()[:LONGEST]
    alone = bool(regions_of(visit.request))
    if alone:
        visit.without_frame()
    report = await visit.api.search(q, limit=IN_PALETTE if alone else ON_PAGE) if q else None
    found = report.groups if report is not None else []
    if alone:
        shell = visit.frame("Search", "search", None, [])
    else:
        shell = await visit.shell("Search", "search", crumbs=(Crumb(words="Search"),))
    return visit.page(SearchPage(shell=shell, q=q, groups=grouped(found), note=(report and report.note) or "", partly=partly_of(found)))


def grouped(groups: Sequence[SearchGroup]) -> list[FoundGroup]:
    """The kinds with at least one result."""
    return [
        FoundGroup(
            key=group.kind.value,
            words=WORDS[group.kind],
            rows=[FoundRow(hit=hit, path=path_of(hit)) for hit in group.hits],
            more=group.more,
        )
        for group in groups
        if group.hits
    ]


def partly_of(groups: Sequence[SearchGroup]) -> list[tuple[str, datetime]]:
    return [(WORDS[group.kind], group.since) for group in groups if group.since is not None]


def path_of(hit: SearchHit) -> str:
    """The page of a search result."""
    pool = hit.pool or ""
    match hit.kind:
        case SearchKind.POOL:
            return pool_path(hit.id)
        case SearchKind.INSTANCE:
            return instance_path(pool, hit.id)
        case SearchKind.SESSION:
            return session_path(pool, hit.id)
        case SearchKind.REQUEST:
            return f"/decisions/{segment(hit.id)}"
        case SearchKind.PLAN:
            return f"/plans/{segment(hit.id)}"
        case SearchKind.AUDIT:
            return f"/audit/{segment(hit.id)}"


ROUTES = Routes(pages={"/search": show})
