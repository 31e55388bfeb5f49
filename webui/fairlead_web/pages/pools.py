"""`/pools`: every pool with its figures over the range, and filters (facets)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead.pool_states import INSTANCES_STARTING
from fairlead_client.resources.figures import RangeFigures
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.pools import PoolSummary
from fairlead_web.drawing import findings
from fairlead_web.drawing.range_figures import ShownFigures, shown
from fairlead_web.frame.health import out_of_slo, pain
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import PAGE_ROWS, Visit
from fairlead_web.text.addresses import Here
from fairlead_web.text.facets import Facet, facet
from fairlead_web.text.paging import part_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsPage(Context):
    template: ClassVar[str] = "pages/pools.html"
    shell: Shell
    listing: Listing[PoolSummary]
    """The page of those pools that match the filters."""
    total: int
    """Number of all pools, whether they match the filters or not."""
    cut: str
    """A text such as `the first 200 of 260 pools` if the page has not read all pools; otherwise empty."""
    facets: dict[str, list[Facet]]
    sort: str
    figures: dict[str, ShownFigures]
    """The figures over the range, by pool. If there are too many pools, only the first ones have figures."""


def _health(pool: PoolSummary) -> str:
    if not pool.ready:
        return "starting" if pool.ready_reason == INSTANCES_STARTING else "not ready"
    if out_of_slo(pool):
        return "out of SLO"
    return "refuses requests" if pool.rejections_per_second > 0 else "well"


MOST = 1_000
"""Maximum number of pools in the list. The limit is high, so that people can find any pool in the list."""
FACETS: dict[str, Callable[[PoolSummary], str]] = {
    "namespace": lambda pool: pool.namespace,
    "engine": lambda pool: pool.engine,
    "policy": lambda pool: pool.policy,
    "health": _health,
}
SORTS: dict[str, Callable[[PoolSummary, RangeFigures | None], tuple[float | str, ...]]] = {
    "pain": lambda pool, _: pain(pool),
    "name": lambda pool, _: (pool.namespace, pool.name),
    "attainment": lambda _, of: (2.0 if of is None or of.attainment is None else of.attainment,),
    "requests": lambda _, of: (0 if of is None else -of.asked,),
    "serving": lambda pool, _: (-pool.serving,),
    "rejections": lambda _, of: (0 if of is None else -of.refused,),
    "migrations": lambda _, of: (0 if of is None else -of.migrations,),
}


async def index(visit: Visit) -> Response:
    """Show a page of the pools that match the filters. All pools are read, so search, filters and order apply to all of
    them.
    """
    pools, advice = await asyncio.gather(visit.first_pools(MOST), visit.attempt("advice", visit.api.advice()))
    visit = visit.since(pool.created_at for pool in pools.items)
    asked = visit.range.asked
    trends = await visit.attempt("figures", visit.api.trends(start=asked["from"], end=asked["to"]), ["results"])
    figures = {one.pool: one.figures for one in trends.pools} if trends else {}
    sort = visit.param("sort") or "pain"
    order = SORTS[sort := sort if sort in SORTS else "pain"]
    found = sorted(chosen(pools.items, visit.here), key=lambda pool: order(pool, figures.get(_name(pool))))
    listing = part_of(found, visit.param("cursor"), PAGE_ROWS)
    shell = await visit.shell(
        "Pools",
        "pools",
        crumbs=(Crumb(words="Pools"),),
        ranged=True,
        live="pools",
        findings=findings.first(findings.of_advice(advice.items if advice else ())),
        pools=pools,
    )
    return visit.page(
        PoolsPage(
            shell=shell,
            listing=listing,
            total=len(pools.items),
            cut=pools.cut_words("pools"),
            facets=facets(pools.items, visit.here),
            sort=sort,
            figures={_name(pool): shown(figures[_name(pool)]) for pool in listing.items if _name(pool) in figures},
        )
    )


def _name(pool: PoolSummary) -> str:
    return f"{pool.namespace}/{pool.name}"


def chosen(pools: Sequence[PoolSummary], here: Here) -> list[PoolSummary]:
    """Return the pools that match every filter in the URL and whose name or model contains `q`."""
    wanted = (here.params.get("q") or "").lower()
    return [
        pool
        for pool in pools
        if all(here.params.get(name) in (None, value(pool)) for name, value in FACETS.items())
        and wanted in f"{pool.namespace}/{pool.name} {pool.model}".lower()
    ]


def facets(pools: Sequence[PoolSummary], here: Here) -> dict[str, list[Facet]]:
    """Return the values of each facet with their counts. Facets with a single value are left out unless that value is
    chosen.
    """
    result: dict[str, list[Facet]] = {}
    for name, value in FACETS.items():
        found = facet(here, name, (value(pool) for pool in pools))
        if len(found) > 1 or name in here.params:
            result[name] = found
    return result


ROUTES = Routes(pages={"/pools": index}, exports={"/pools": Export(name="pools")})
