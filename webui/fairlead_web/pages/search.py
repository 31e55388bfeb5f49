"""`/search`: finds objects that have a page by a part of their name; also finds pages and forms for changes by words in
their titles, such as "heatmap chat" or "scale code". The command palette shows the same list.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.resources.pools import PoolSummary
from fairlead_client.resources.search import SearchGroup, SearchHit, SearchKind
from fairlead_web.forms.change_forms import offered
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Routes
from fairlead_web.frame.shells import POOL_TABS, SECTIONS, Crumb, Shell, first_pools
from fairlead_web.frame.visits import Visit, regions_of
from fairlead_web.text.addresses import instance_path, pool_path, segment, session_path

IN_PALETTE = 5
ON_PAGE = 25
MOST_PLACES = 12
"""Maximum number of matching pages and forms that are shown."""
MOST_POOLS = 200
"""Maximum number of pools whose pages and forms can be found; the first pools by name are used."""
LONGEST = 200
"""Maximum number of characters of the searched text."""
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
    """One search result with the path of its page; `words` describe the result."""

    name: str
    words: str
    path: str
    pool: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGroup:
    """The search results of one kind; `key` is the kind in a form that is safe as an element's id."""

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
    """A note about why the routing decision of a request may be missing."""
    partly: list[tuple[str, datetime]]
    """Kinds of objects of which only the newest rows were searched, each with the time of the oldest searched row."""


async def show(visit: Visit) -> Response:
    q = (visit.param("q") or "").strip()[:LONGEST]
    alone = bool(regions_of(visit.request))
    if alone:
        visit.without_frame()
    report = await visit.api.search(q, limit=IN_PALETTE if alone else ON_PAGE) if q else None
    places = await _places(visit, q) if alone or q else []
    found = report.groups if report is not None else []
    if alone:
        shell = visit.frame("Search", "search", None, [])
    else:
        shell = await visit.shell("Search", "search", crumbs=(Crumb(words="Search"),))
    return visit.page(
        SearchPage(
            shell=shell, q=q, groups=[*_going(places), *grouped(found)], note=(report and report.note) or "", partly=partly_of(found)
        )
    )


def grouped(groups: Sequence[SearchGroup]) -> list[FoundGroup]:
    """Return the groups that have at least one result."""
    return [
        FoundGroup(
            key=group.kind.value,
            words=WORDS[group.kind],
            rows=[
                FoundRow(
                    name=hit.name,
                    words=hit.words,
                    path=path_of(hit),
                    pool=hit.pool or "" if group.kind is not SearchKind.POOL else "",
                    at=hit.at,
                )
                for hit in group.hits
            ],
            more=group.more,
        )
        for group in groups
        if group.hits
    ]


async def _places(visit: Visit, q: str) -> list[FoundRow]:
    """Return the pages and forms whose titles contain all typed words. The pages of the pool on whose page the reader
    is come first.
    """
    pools = (await visit.attempt("pools", first_pools(visit.api, MOST_POOLS))) or None
    own = visit.param("pool")
    known = sorted(pools.items if pools else [], key=lambda pool: _key(pool) != own)
    return matching(q, [*_of_pools(known, own), *_of_fleet()] if q or own else [*_of_fleet()])


def matching(q: str, places: Iterable[FoundRow]) -> list[FoundRow]:
    """Return the first of `places` whose titles contain every word of the text."""
    words = q.lower().split()
    found = (one for one in places if all(word in f"{one.name} {one.words} {one.pool}".lower() for word in words))
    return [one for one, _ in zip(found, range(MOST_PLACES), strict=False)]


def _of_fleet() -> Iterator[FoundRow]:
    for _, pages in SECTIONS:
        yield from (FoundRow(name=words, words="page", path=path) for _, words, path in pages)
    yield from (FoundRow(name=words, words="page", path=path) for words, path in (("Settings", "/settings"), ("Help and keys", "/help")))


def _of_pools(pools: Sequence[PoolSummary], own: str | None) -> Iterator[FoundRow]:
    """Yield the pages and the forms of the pools. Pages of the pool `own`, on whose page the reader is, also match a
    text that names no pool.
    """
    for pool in pools:
        key = _key(pool)
        for _, tabs in POOL_TABS:
            yield from (FoundRow(name=words, words="page", path=pool_path(key) + path, pool=key) for _, words, path in tabs)
        for kind in offered(pool):
            yield FoundRow(name=f"{kind.facts.title}…", words="change", path=f"{pool_path(key)}?change={kind.value}#h-change", pool=key)


def _key(pool: PoolSummary) -> str:
    return f"{pool.namespace}/{pool.name}"


def _going(places: list[FoundRow]) -> list[FoundGroup]:
    return [FoundGroup(key="places", words="Pages and changes", rows=places, more=False)] if places else []


def partly_of(groups: Sequence[SearchGroup]) -> list[tuple[str, datetime]]:
    return [(WORDS[group.kind], group.since) for group in groups if group.since is not None]


def path_of(hit: SearchHit) -> str:
    """Return the path of the page of a search result."""
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
