"""Routes of a pool's objectives: their versions, attainment, error budget, and the attainment under other targets."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Query

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.listing import Fetch, listing
from fairlead_api.http.routes import Routes
from fairlead_api.slo.reading import SloReading
from fairlead_api.slo.store import PostgresSlo
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.slo import BurnWindow, SloAttainment, SloBurn, SloShare, SloVersion, SloWhatIf, WhatIfShare

From = Annotated[str, Query(alias="from")]
To = Annotated[str, Query(alias="to")]
Class = Annotated[str | None, Query(max_length=63)]


def slo_routes(guard: Guard, versions: PostgresSlo, reading: SloReading, clock: Callable[[], datetime]) -> Routes:
    """Return the routes under /v1/pools/{namespace}/{name}/slo."""
    routes = Routes(prefix="/v1/pools/{namespace}/{name}", tags=["slo"])
    viewer = guard.needs(AccessRole.VIEWER)

    async def slo_versions(namespace: str, name: str) -> Fetch:
        return lambda span: versions.slo_versions(PoolKey(namespace=namespace, name=name), span)

    listing(routes, "/slo", SloVersion, viewer, slo_versions, by="-version")

    async def get_slo_attainment(
        namespace: str,
        name: str,
        start: From = "now-1d",
        end: To = "now",
        version: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        priority_class: Class = None,
    ) -> Ask:
        """The attainment of the objectives, by version and priority class. A range that begins within the last 25 hours
        is widened to whole minutes, any other range to whole hours.
        """
        pool = PoolKey(namespace=namespace, name=name)
        return lambda sight: reading.attainment(pool, start, end, version, priority_class, clock())

    document(routes, "/slo/attainment", SloAttainment, viewer, get_slo_attainment, SloShare, lambda found: [found.whole, *found.shares])

    async def get_slo_burn(namespace: str, name: str) -> Ask:
        """The burn rate of the error budget over seven windows of time, by priority class."""
        return lambda sight: reading.burn(PoolKey(namespace=namespace, name=name), clock())

    document(routes, "/slo/burn", SloBurn, viewer, get_slo_burn, BurnWindow, lambda found: found.windows)

    async def get_slo_what_if(
        namespace: str,
        name: str,
        ttft: Annotated[str | None, Query(max_length=40)] = None,
        tpot: Annotated[str | None, Query(max_length=40)] = None,
        percentile: float | None = None,
        start: From = "now-1d",
        end: To = "now",
        priority_class: Class = None,
    ) -> Ask:
        """The attainment that recorded requests, with their recorded latencies, would have had under other targets
        (`5s`, `80ms`).

        For round targets, which are bounds of latency cells, the result is exact. For all other targets, the result is
        a lower and an upper bound.
        """
        pool = PoolKey(namespace=namespace, name=name)
        return lambda sight: reading.what_if(pool, start, end, ttft, tpot, percentile, priority_class, clock())

    document(routes, "/slo/what-if", SloWhatIf, viewer, get_slo_what_if, WhatIfShare, lambda found: [found.whole, *found.classes])

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of objectives."""
    store = PostgresSlo(infra.reads)
    reading = SloReading(store, timedelta(days=infra.settings.retention.rollups_1m_days))
    return Feature(routes=(slo_routes(guard, store, reading, infra.clock),))
