"""`/slo`: latency targets of every pool, version by version, with how well each was met. Read only."""

import asyncio

from starlette.responses import Response

from fairlead.tables import PoolKey
from fairlead_client.resources import SloVersion
from fairlead_web.contexts.traffic import SloPage
from fairlead_web.shells import Crumb
from fairlead_web.visits import PAGE_ROWS, Visit


async def index(visit: Visit) -> Response:
    pools = await visit.api.pools(limit=PAGE_ROWS)
    wanted = visit.param("pool")
    keys = [PoolKey(namespace=pool.namespace, name=pool.name) for pool in pools.items]
    keys = [key for key in keys if wanted in (None, str(key))]
    versions = await asyncio.gather(*(_versions(visit, key) for key in keys))
    shell = await visit.shell("Service level objectives", "slo", crumbs=(Crumb(words="SLO"),), pool=wanted, pools=pools.items)
    return visit.page(SloPage(shell=shell, pools=[(str(key), found) for key, found in zip(keys, versions, strict=True)]))


async def _versions(visit: Visit, key: PoolKey) -> list[SloVersion]:
    page = await visit.attempt(f"SLO of {key}", visit.api.slo_versions(key, limit=50))
    return sorted(page.items, key=lambda version: -version.version) if page else []
