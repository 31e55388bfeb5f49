"""Objectives of a pool: versions, attainment, error budget, and other targets."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Query

from fairlead.tables import PoolKey
from fairlead_api.routes.answers import answer
from fairlead_api.routes.guards import Guard
from fairlead_api.routes.listing import Fetch, listing
from fairlead_api.services.access.access import Caller
from fairlead_api.services.history.slo_reading import SloReading
from fairlead_api.services.spans import Span
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.pages import Page
from fairlead_client.resources.slo import SloAttainment, SloBurn, SloVersion, SloWhatIf

From = Annotated[str, Query(alias="from")]
To = Annotated[str, Query(alias="to")]
Class = Annotated[str | None, Query(max_length=63)]


class SloVersionReader(Protocol):
    """The source of versions."""

    async def slo_versions(self, pool: PoolKey, span: Span) -> Page[SloVersion]:
        """Newest first. Raises NotFound for a pool that does not live."""


def slo_routes(guard: Guard, versions: SloVersionReader, reading: SloReading, clock: Callable[[], datetime]) -> APIRouter:
    """Everything under /v1/pools/{namespace}/{name}/slo."""
    routes = APIRouter(prefix="/v1/pools/{namespace}/{name}", tags=["slo"])
    viewer = guard.needs(AccessRole.VIEWER)
    Viewer = Annotated[Caller, Depends(viewer)]  # noqa: N806 - it is a type

    def slo_versions(namespace: str, name: str) -> Fetch:
        return lambda span: versions.slo_versions(PoolKey(namespace=namespace, name=name), span)

    listing(routes, "/slo", SloVersion, viewer, slo_versions)

    @routes.get("/slo/attainment", response_model=SloAttainment)
    async def get_slo_attainment(
        namespace: str,
        name: str,
        caller: Viewer,
        start: From = "now-1d",
        end: To = "now",
        version: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        priority_class: Class = None,
    ) -> Any:
        """How the objectives were kept, by version and priority class. A range that begins within the last 25 hours is
        widened to whole minutes, any other to whole hours.
        """
        pool = PoolKey(namespace=namespace, name=name)
        return answer(await reading.attainment(pool, start, end, version, priority_class, clock()))

    @routes.get("/slo/burn", response_model=SloBurn)
    async def get_slo_burn(namespace: str, name: str, caller: Viewer) -> Any:
        """How fast the error budget is used up, over seven windows of time, by priority class."""
        return answer(await reading.burn(PoolKey(namespace=namespace, name=name), clock()))

    @routes.get("/slo/what-if", response_model=SloWhatIf)
    async def get_slo_what_if(
        namespace: str,
        name: str,
        caller: Viewer,
        ttft: Annotated[str | None, Query(max_length=40)] = None,
        tpot: Annotated[str | None, Query(max_length=40)] = None,
        percentile: float | None = None,
        start: From = "now-1d",
        end: To = "now",
        priority_class: Class = None,
    ) -> Any:
        """What recorded requests would have met under other targets (`5s`, `80ms`), served as they were. Exact for
        targets at round numbers, else between two.
        """
        pool = PoolKey(namespace=namespace, name=name)
        return answer(await reading.what_if(pool, start, end, ttft, tpot, percentile, priority_class, clock()))

    return routes
