"""Endpoints to which routers send reports (role system-router), and the decoding of their bodies: one Report, or a list
of Reports.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
from fastapi import Depends, Request, Response

from fairlead.errors import InvalidInput
from fairlead.reports.batches import ROW_KINDS, AskAddress, Report, ReportReceipt, RouterGone
from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard, understood
from fairlead_api.features import Feature, Infra
from fairlead_api.http.bodies import MalformedBody, described
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.reports.ingestion import Ingestion
from fairlead_api.reports.plausibility import CLOCK_TOLERANCE_SECONDS, Ages
from fairlead_api.reports.store.reports import PostgresReports
from fairlead_api.settings import ROLLED_UP, Retention
from fairlead_client import internal_paths
from fairlead_client.resources.access import AccessRole
from fairlead_process.json_documents import DEEPEST, decode_json, nests_deeper

_HINTS = get_type_hints(Report)
_SINGLE = {"id", "router", "sent_at", "asked_at"}
_ROWS = {field.name: get_args(_HINTS[field.name])[0] for field in fields(Report) if field.name not in _SINGLE}
_Loose: Any = msgspec.defstruct(
    "_Loose",
    [
        ("id", str),
        ("router", str),
        ("sent_at", float),
        ("asked_at", msgspec.Raw | None, None),
        *((name, list[msgspec.Raw], msgspec.field(default_factory=list)) for name in _ROWS),
    ],
)
_whole: "msgspec.json.Decoder[Report | list[Report]]" = msgspec.json.Decoder(Report | list[Report])
_loose: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder(_Loose | list[_Loose])
_address: "msgspec.json.Decoder[AskAddress | None]" = msgspec.json.Decoder(AskAddress | None)
_row: "dict[str, msgspec.json.Decoder[Any]]" = {name: msgspec.json.Decoder(kind) for name, kind in _ROWS.items()}


def decode_reports(content: bytes) -> tuple[list[Report], bool, Counter[str]]:
    """Return the reports in a body, whether the body was a list, and the number of malformed rows that were left out,
    by reason.

    Raises MalformedBody for a body that is not JSON, InvalidInput for a report without id, router or time.
    """
    if nests_deeper(content):
        raise InvalidInput("body", None, f"nest values at most {DEEPEST} levels deep")
    try:
        found = decode_json(content, _whole)
    except msgspec.DecodeError:  # ValidationError included
        return _row_by_row(content)
    return (found, True, Counter()) if isinstance(found, list) else ([found], False, Counter())


def _row_by_row(content: bytes) -> tuple[list[Report], bool, Counter[str]]:
    try:
        found = decode_json(content, _loose)
    except msgspec.ValidationError as error:
        message, _, path = str(error).rpartition(" - at `$")
        raise InvalidInput(path.rstrip("`").lstrip(".") or "body", None, message or str(error)) from error
    except msgspec.DecodeError as error:
        raise MalformedBody(str(error)) from error
    ignored: Counter[str] = Counter()
    reports: list[Report] = []
    for loose in found if isinstance(found, list) else [found]:
        rows: dict[str, tuple[Any, ...]] = {}
        for name, decoder in _row.items():
            good: list[Any] = []
            for raw in getattr(loose, name):
                try:
                    good.append(decoder.decode(raw))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    ignored["unreadable"] += 1
            rows[name] = tuple(good)
        try:
            asked_at = None if loose.asked_at is None else _address.decode(loose.asked_at)
        except (msgspec.DecodeError, UnicodeDecodeError):
            asked_at = None
            ignored["unreadable"] += 1
        made: dict[str, Any] = {**rows, "asked_at": asked_at}
        reports.append(Report(id=loose.id, router=loose.router, sent_at=loose.sent_at, **made))
    return reports, isinstance(found, list), ignored


def report_routes(
    guard: Guard,
    ingestion: Ingestion,
    on_taken: Callable[[Counter[str], Counter[PoolKey]], None],
    clock: Callable[[], datetime],
) -> Routes:
    """Return the endpoints that receive reports; `fairlead_client.internal_paths` has their paths."""
    routes = Routes(tags=["internal"], dependencies=[Depends(understood)])
    Router = Annotated[Caller, Depends(guard.needs(AccessRole.SYSTEM_ROUTER))]  # noqa: N806 - it is a type

    @routes.post(internal_paths.REPORTS, response_model=ReportReceipt | list[ReportReceipt], openapi_extra=described(Report, several=True))
    async def post_reports(request: Request, caller: Router) -> Response:
        """Stores reports of one router, each once, however often it is sent.

        The body is one report, or a list of reports of which the first contains the router's present state. The
        response is a receipt, or a list of receipts in the same order.
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


WHOLE_HOURS = 7_200.0
"""Seconds by which the maximum age of a new sample is shorter than the retention of its rollups. When an old sample
arrives, the rollups of its whole hour are computed again from finer rows, and retention must not have deleted some of
these.
"""


def report_ages(retention: Retention) -> Ages:
    """Return, for each field of Report, the maximum age in seconds at which its rows are still stored. It is the age at
    which retention deletes such rows; for rows that are rolled up, it is `WHOLE_HOURS` less.

    The maximum age is always below the age at which retention deletes the ids of reports, because a report whose id was
    deleted would be counted again.
    """
    kept = {name: (kind.kept, 86_400.0 * getattr(retention, kind.kept)) for name, kind in ROW_KINDS.items() if kind.kept}
    known = 86_400.0 * retention.reports_days - CLOCK_TOLERANCE_SECONDS
    return {name: min(known, seconds - (WHOLE_HOURS if setting == ROLLED_UP[0] else 0.0)) for name, (setting, seconds) in kept.items()}


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature that stores routers' reports."""
    ingestion = Ingestion(PostgresReports(infra.reports, infra.partitions), report_ages(infra.settings.retention))
    return Feature(routes=(report_routes(guard, ingestion, infra.telemetry.count_report, infra.clock),))
