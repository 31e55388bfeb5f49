"""`/slo`: the latency targets of every pool, version by version, and how well each version was met; also as CSV and
JSON.

This page changes nothing.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import msgspec
from starlette.responses import Response, StreamingResponse

from fairlead.tables import PoolKey
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.pools import PoolSummary
from fairlead_client.resources.slo import SloVersion
from fairlead_web.frame import exports
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import PAGE_ROWS, Visit
from fairlead_web.text.paging import MOST_PER_CALL, Taken, first_of, part_of, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SloPage(Context):
    template: ClassVar[str] = "pages/slo.html"
    shell: Shell
    listing: Listing[SloVersion]
    cut: str
    """A text such as `the first 200 of 260 pools` if not all pools' versions are shown; otherwise empty."""


async def index(visit: Visit) -> Response:
    pools, place, wanted = await visit.first_pools(), visit.param("cursor"), visit.param("pool")
    versions = await found(visit, pools.items, place_of(place) + PAGE_ROWS)
    listing = part_of(versions.items, place, PAGE_ROWS)
    shell = await visit.shell("Service level objectives", "slo", crumbs=(Crumb(words="SLO"),), pool=wanted, pools=pools)
    return visit.page(
        SloPage(shell=shell, listing=replace(listing, total=versions.total), cut="" if wanted else pools.cut_words("pools")),
    )


async def as_csv(visit: Visit) -> Response:
    versions = (await found(visit, (await visit.first_pools(None)).items)).items
    names = [field.name for field in fields(SloVersion)]
    plain = [msgspec.to_builtins(version) for version in versions]
    rows = [names, *(["" if row[name] is None else str(row[name]) for name in names] for row in plain)]
    headers = {"Content-Disposition": 'attachment; filename="slo.csv"'}
    return StreamingResponse(exports.csv_file(rows), media_type="text/csv; charset=utf-8", headers=headers)


async def as_json(visit: Visit) -> Response:
    versions = (await found(visit, (await visit.first_pools(None)).items)).items
    return Response(msgspec.json.encode({"items": versions}), media_type="application/json")


async def found(visit: Visit, pools: Iterable[PoolSummary], enough: int | None = None) -> Taken[SloVersion]:
    """Return the versions of the objectives of the pool that the URL names, or of all `pools`: pool by pool, each
    pool's newest version first.

    If `enough` is None, all versions are read, and ApiProblem is raised if the versions of some pool cannot be read.
    Otherwise reading stops once `enough` versions have been read.
    """
    keys, versions, cut = _asked(visit.param("pool"), pools), list[SloVersion](), False
    for at in range(0, len(keys), PAGE_ROWS):
        if enough is not None and len(versions) > enough:
            cut = True
            break
        for each in await asyncio.gather(*(_versions(visit, key, enough) for key in keys[at : at + PAGE_ROWS])):
            versions += each.items
            cut = cut or each.cut
    return Taken(items=versions, cut=cut, total=None if cut else len(versions))


def _asked(wanted: str | None, pools: Iterable[PoolSummary]) -> list[PoolKey]:
    if wanted is None:
        return [PoolKey(namespace=pool.namespace, name=pool.name) for pool in pools]
    try:
        return [PoolKey.parse(wanted)]
    except ValueError:
        return []


async def _versions(visit: Visit, key: PoolKey, enough: int | None) -> Taken[SloVersion]:
    most = None if enough is None else enough + 1
    reading = first_of(lambda cursor: visit.api.slo_versions(key, cursor=cursor, limit=MOST_PER_CALL), most)
    if enough is None:
        return await reading
    return await visit.attempt(f"SLO of {key}", reading) or Taken(items=[], cut=False, total=0)


ROUTES = Routes(pages={"/slo": index, "/slo.csv": as_csv, "/slo.json": as_json})
