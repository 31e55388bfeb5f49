"""Endpoints by which routers report (role system-router)."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from fairlead.reports.batches import Report, ReportReceipt, RouterGone
from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard, understood
from fairlead_api.features import Feature, Infra
from fairlead_api.http.bodies import described
from fairlead_api.infra.callers import Caller
from fairlead_api.reports.bodies import decode_reports
from fairlead_api.reports.ingestion import Ingestion
from fairlead_api.reports.plausibility import Ages
from fairlead_api.reports.store.reports import PostgresReports
from fairlead_api.settings import Retention
from fairlead_client import internal_paths
from fairlead_client.resources.access import AccessRole


def report_routes(
    guard: Guard,
    ingestion: Ingestion,
    on_taken: Callable[[Counter[str], Counter[PoolKey]], None],
    clock: Callable[[], datetime],
) -> APIRouter:
    """The endpoints of reports at `fairlead_client.internal_paths`."""
    routes = APIRouter(tags=["internal"], dependencies=[Depends(understood)])
    Router = Annotated[Caller, Depends(guard.needs(AccessRole.SYSTEM_ROUTER))]  # noqa: N806 - it is a type

    @routes.post(internal_paths.REPORTS, response_model=ReportReceipt | list[ReportReceipt], openapi_extra=described(Report, several=True))
    async def post_reports(request: Request, caller: Router) -> Response:
        """Batches of one router, each stored once however often it is sent.

        The body is one batch, or a list of batches of which the first carries the router's state. The answer is a
        receipt, or a list of receipts in the same order.
        """
        reports, several, unreadable = decode_reports(await request.body())
        for router in {report.router for report in reports}:
            await guard.require_router(request, caller, router)
        done = await ingestion.take(reports, clock())
        on_taken(done.ignored + unreadable, done.lost_moves)
        return Response(msgspec.json.encode(done.receipts if several else done.receipts[0]), media_type="application/json")

    @routes.post(internal_paths.ROUTER_GONE, status_code=204)
    async def post_gone(gone: RouterGone, request: Request, caller: Router) -> None:
        """A router's last message before it stops."""
        await guard.require_router(request, caller, gone.router)
        await ingestion.forget_router(gone, clock())

    return routes


def report_ages(retention: Retention) -> Ages:
    """Largest age at which a row is still stored: the age at which retention would delete it."""
    day = 86_400.0
    return Ages(
        decisions=day * retention.decisions_days,
        rejections=day * retention.rejections_days,
        loads=day * retention.load_samples_days,
        key_use=day * retention.rollups_1m_days,
        traffic=day * retention.traffic_days,
    )


def feature(infra: Infra, guard: Guard) -> Feature:
    """Reports of routers."""
    ingestion = Ingestion(PostgresReports(infra.reports, infra.partitions), report_ages(infra.settings.retention))
    return Feature(routes=(report_routes(guard, ingestion, infra.telemetry.count_report, infra.clock),))
