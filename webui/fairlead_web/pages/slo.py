"""`/slo`: latency targets of every pool, version by version, with how well each was met; also as CSV and JSON.

Read only.
"""

import asyncio
from dataclasses import dataclass, fields
from typing import ClassVar

import msgspec
from starlette.responses import Response, StreamingResponse

from fairlead.tables import PoolKey
from fairlead_client.resources.pools import PoolSummary
from fairlead_client.resources.slo import SloVersion
from fairlead_web import exports
from fairlead_web.rendering import Context
from fairlead_web.routes import Routes
from fairlead_web.shells import Crumb, Shell
from fairlead_web.visits import PAGE_ROWS, Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class SloPage(Context):
    template: ClassVar[str] = "pages/slo.html"
    shell: Shell
    versions: list[SloVersion]


async def index(visit: Visit) -> Response:
    pools, versions = await found(visit)
    shell = await visit.shell("Service level objectives", "slo", crumbs=(Crumb(words="SLO"),), pool=visit.param("pool"), pools=pools)
    return visit.page(SloPage(shell=shell, versions=versions))


async def as_csv(visit: Visit) -> Response:
    _, versions = await found(visit)
    names = [field.name for field in fields(SloVersion)]
    plain = [msgspec.to_builtins(version) for version in versions]
    rows = [names, *(["" if row[name] is None else str(row[name]) for name in names] for row in plain)]
    headers = {"Content-Disposition": 'attachment; filename="slo.csv"'}
    return StreamingResponse(exports.csv_lines(rows), media_type="text/csv; charset=utf-8", headers=headers)


async def as_json(visit: Visit) -> Response:
    _, versions = await found(visit)
    return Response(msgspec.json.encode({"items": versions}), media_type="application/json")


async def found(visit: Visit) -> tuple[list[PoolSummary], list[SloVersion]]:
    """All pools, and the versions of those the URL asks for: pool by pool, the newest first."""
    pools = await visit.api.pools(limit=PAGE_ROWS)
    wanted = visit.param("pool")
    keys = [PoolKey(namespace=pool.namespace, name=pool.name) for pool in pools.items]
    versions = await asyncio.gather(*(_versions(visit, key) for key in keys if wanted in (None, str(key))))
    return pools.items, [version for each in versions for version in each]


async def _versions(visit: Visit, key: PoolKey) -> list[SloVersion]:
    page = await visit.attempt(f"SLO of {key}", visit.api.slo_versions(key, limit=50))
    return sorted(page.items, key=lambda version: -version.version) if page else []


ROUTES = Routes(pages={"/slo": index, "/slo.csv": as_csv, "/slo.json": as_json})
