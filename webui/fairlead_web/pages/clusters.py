"""`/clusters`: the pools of this cluster together with the pools of other clusters, read only, with links to the other
clusters' pages.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.pools import PoolSummary
from fairlead_web.drawing import findings
from fairlead_web.drawing.findings import Finding
from fairlead_web.frame.health import in_time, out_of_slo, pain
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit
from fairlead_web.live.clusters import ClusterView
from fairlead_web.text.addresses import pool_path

LOOK_SECONDS = 10
"""Seconds between two refreshes of an open page."""
NOT_FOR_YOU = "Seeing the pools of other clusters here needs the role viewer in all namespaces. Sign in at its own pages."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """A pool of some cluster: its address in that cluster, the share of its requests within the objectives, and its
    worst finding.
    """

    pool: PoolSummary
    address: str
    in_time: float | None
    late: bool
    notices: int | None
    worst: Finding | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A cluster with its pools, the worst pool first, and sums over them."""

    view: ClusterView
    pools: list[PoolRow]
    serving: int
    desired: int
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClustersPage(Context):
    template: ClassVar[str] = "pages/clusters.html"
    shell: Shell
    clusters: list[ClusterRow]
    every_seconds: int


async def show(visit: Visit) -> Response:
    if not visit.site.clusters:
        raise HTTPException(404)
    shell = await visit.shell("Clusters", "clusters", crumbs=(Crumb(words="Clusters"),))
    views = [await _own(visit), *await _others(visit, shell)]
    return visit.page(ClustersPage(shell=shell, clusters=[row_of(view) for view in views], every_seconds=LOOK_SECONDS))


async def _own(visit: Visit) -> ClusterView:
    """Return this cluster's pools and findings, as far as the person may see them."""
    pools, advice = await visit.first_pools(), await visit.attempt("advice", visit.api.advice())
    known = None if advice is None else tuple(advice.items)
    return ClusterView(name="This cluster", url=visit.here.base, pools=tuple(pools.items), advice=known, at=visit.now, more=pools.cut)


async def _others(visit: Visit, shell: Shell) -> list[ClusterView]:
    """Return the other clusters. A person who may not see all namespaces of this cluster gets only their names and
    addresses.
    """
    if shell.may(AccessRole.VIEWER):
        return await visit.site.clusters.look()
    return [ClusterView(name=one.name, url=one.url, trouble=NOT_FOR_YOU) for one in visit.site.clusters.addresses]


def row_of(view: ClusterView) -> ClusterRow:
    """Return the row of a cluster: its pools with their figures and findings."""
    found = None if view.advice is None else [one for one in findings.of_advice(view.advice) if one.level != "note"]
    pools = [_pool(view.url, one, found) for one in sorted(view.pools, key=pain)]
    return ClusterRow(
        view=view,
        pools=pools,
        serving=sum(one.pool.serving for one in pools),
        desired=sum(one.pool.desired for one in pools),
        late=sum(one.late for one in pools),
    )


def _pool(url: str, pool: PoolSummary, found: list[Finding] | None) -> PoolRow:
    name = f"{pool.namespace}/{pool.name}"
    mine = None if found is None else [one for one in found if one.pool == name]
    worst = None if not mine else replace(mine[0], path=url + mine[0].path)
    return PoolRow(
        pool=pool,
        address=url + pool_path(name),
        in_time=in_time(pool),
        late=out_of_slo(pool),
        notices=None if mine is None else len(mine),
        worst=worst,
    )


ROUTES = Routes(pages={"/clusters": show})
