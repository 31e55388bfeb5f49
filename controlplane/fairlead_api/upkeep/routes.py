"""Health, readiness and metrics; and the OpenAPI document, for callers with read access."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Response

from fairlead.reports.batches import ROW_KINDS
from fairlead_api.access.guards import Guard
from fairlead_api.autoscalers.figures import LatestFigures
from fairlead_api.features import Feature, Infra
from fairlead_api.http.routes import Routes
from fairlead_api.http.telemetry import Telemetry
from fairlead_api.infra.audit_log import PostgresAudit
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.pulse import Pulse
from fairlead_api.loads.store.samples import PostgresLoads
from fairlead_api.pools.scaling_figures import ScalingFigures
from fairlead_api.pools.store.reads import PostgresScalingFigures
from fairlead_api.settings import Retention
from fairlead_api.upkeep.jobs import Job, scheduled
from fairlead_api.upkeep.store import SWEEPS, PostgresUpkeep
from fairlead_api.upkeep.upkeep import Keep, Upkeep
from fairlead_client.resources.access import AccessRole


def health_routes(guard: Guard, document: Callable[[], dict[str, Any]], pulse: Pulse, metrics: Callable[[], tuple[bytes, str]]) -> Routes:
    """Return the routes of health and metrics. `document` returns the OpenAPI document; `metrics` returns the
    exposition and its content type.
    """
    routes = Routes()

    @routes.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """Responds if the process is alive."""
        return {"status": "ok"}

    @routes.get("/readyz", tags=["health"])
    async def readyz() -> dict[str, str]:
        """Returns the database's state.

        The response is immediate, because the database is checked continuously and not by this request. A read-only
        database counts as reachable, because reads still work.
        """
        pulse.require_heard()
        return {"status": "ready", "database": "read-only" if pulse.read_only else "answers"}

    @routes.get("/metrics", tags=["health"], response_class=Response)
    async def get_metrics(caller: Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]) -> Response:
        """Prometheus metrics of this process.

        The metrics name pools and show traffic, so a scraper needs a viewer's token.
        """
        content, kind = metrics()
        return Response(content, media_type=kind)

    @routes.get("/openapi.json", include_in_schema=False)
    async def openapi(caller: Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER, somewhere=True))]) -> dict[str, Any]:
        return document()

    return routes


def upkeep_of(infra: Infra, close_plans: Callable[[datetime], Awaitable[None]]) -> Upkeep:
    """Return the periodic jobs of this subject, each of which runs in one process at a time."""
    store = PostgresUpkeep(infra.background, infra.jobs, infra.partitions)
    return Upkeep(store, PostgresLoads(infra.background), keep(infra.settings.retention), close_plans)


def keep(retention: Retention) -> Keep:
    """Return the numbers of days for which rows are kept: by table for partitioned tables, by setting for others."""
    return Keep(
        partitioned={kind.table: getattr(retention, kind.kept) for kind in ROW_KINDS.values() if kind.table},
        plain={setting: getattr(retention, setting) for setting in SWEEPS},
    )


def feature(
    infra: Infra,
    guard: Guard,
    document: Callable[[], dict[str, Any]],
    upkeep: Upkeep,
    jobs: Mapping[str, tuple[Job, int]],
    latest: LatestFigures,
) -> Feature:
    """Return the feature of health and the background jobs. `upkeep` has the API's own periodic jobs; `jobs` has the
    jobs of other subjects, with their intervals in seconds. `document` returns the OpenAPI document; `latest` receives
    the figures for autoscalers.
    """
    head, figures = PostgresAudit(infra.reads).head, PostgresScalingFigures(infra.background).read
    return Feature(
        routes=(health_routes(guard, document, infra.pulse, infra.telemetry.exposition),),
        jobs=partial(
            scheduled,
            upkeep,
            jobs,
            head,
            infra.lost_commits.look,
            partial(_told, figures, latest, infra.telemetry),
            infra.telemetry,
            infra.clock,
        ),
    )


async def _told(read: Callable[[datetime], Awaitable[ScalingFigures]], latest: LatestFigures, telemetry: Telemetry, now: datetime) -> None:
    """Read the scaling figures, and pass them to the autoscalers' ports and to the metrics."""
    figures = await read(now)
    telemetry.tell_scaling(figures.wanted, figures.headroom, figures.task_headroom)
    latest.take(figures, now)
