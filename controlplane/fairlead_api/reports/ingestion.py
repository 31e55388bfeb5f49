"""Use case: stores routers' reports. Each report, identified by router and id, is stored at most once, and completely
or not at all.

Rows that cannot be stored are dropped and counted. If the whole report were refused because of these rows, its router
would resend it again and again.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead.reports.batches import ROW_KINDS, Report, ReportReceipt, RouterGone
from fairlead.tables import PoolKey
from fairlead_api.infra.times import check_time
from fairlead_api.reports.plausibility import CLOCK_TOLERANCE_SECONDS, MAX_NAME, Ages, clock_error, plausible

MOST_REPORTS = 5_000
"""Maximum number of reports in one POST request."""

_DAY = 86_400

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """The result of storing the reports of one POST request.

    `ignored` is the number of dropped rows by reason. `lost_moves` is, by pool, the number of session moves that were
    not stored because another change of the session came first.
    """

    receipts: tuple[ReportReceipt, ...]
    ignored: Counter[str] = field(default_factory=Counter)
    lost_moves: Counter[PoolKey] = field(default_factory=Counter)


class ReportStore(Protocol):
    """The port to the database for storing reports."""

    async def prepare(self, days: dict[str, set[date]]) -> None:
        """Make sure that rows of these days can be stored; `days` holds the days for each table."""

    async def ingest(self, reports: Sequence[Report]) -> Ingested:
        """Store those reports of one router that are new, in one transaction. The result's receipts are in the order of
        the reports.
        """

    async def forget_router(self, gone: RouterGone) -> None:
        """Mark a router as gone until it reports again."""


class Ingestion:
    """Use case: stores routers' reports."""

    def __init__(self, store: ReportStore, ages: Ages) -> None:
        self._store = store
        self._ages = ages

    async def take(self, reports: Sequence[Report], now: datetime) -> Ingested:
        """Store reports of one router. Only the first report contains the router's present state.

        Raises InvalidInput for reports with an impossible router or time, StoreUnavailable. Once this has returned, the
        reports cannot be lost.
        """
        check_envelopes(reports)
        ignored: Counter[str] = Counter()
        error = clock_error(reports[0], now.timestamp())
        if error:
            _log.warning(
                "a router's clock is wrong; the times in its reports are corrected",
                extra={"router": reports[0].router, "seconds": round(error, 1)},
            )
        kept: list[Report] = []
        for report in reports:
            shift = clock_error(report, now.timestamp())
            good, dropped = plausible(report, self._ages, now.timestamp(), shift)
            kept.append(replace(good, sent_at=good.sent_at + shift))
            ignored += dropped
        await self._store.prepare(
            {
                kind.table: _days(getattr(row, kind.time.value) for report in kept for row in getattr(report, name))
                for name, kind in ROW_KINDS.items()
                if kind.table
            }
        )
        done = await self._store.ingest(kept)
        receipts = tuple(replace(receipt, at=now.timestamp()) for receipt in done.receipts)
        return replace(done, receipts=receipts, ignored=done.ignored + ignored)

    async def forget_router(self, gone: RouterGone, now: datetime) -> None:
        """Mark a router that signed off as gone. Raises InvalidInput, StoreUnavailable."""
        _check_name("router", gone.router)
        check_time("at", gone.at)
        near = abs(now.timestamp() - gone.at) <= CLOCK_TOLERANCE_SECONDS
        await self._store.forget_router(gone if near else replace(gone, at=now.timestamp()))


def check_envelopes(reports: Sequence[Report]) -> None:
    """Check the reports' ids, routers and times. Pure.

    Raises InvalidInput for reports with an impossible router or time, and for reports from different routers or with
    equal ids.
    """
    if not 1 <= len(reports) <= MOST_REPORTS:
        raise InvalidInput("reports", len(reports), f"send 1 to {MOST_REPORTS} reports at once")
    for report in reports:
        _check_name("id", report.id)
        _check_name("router", report.router)
        check_time("sent_at", report.sent_at)
    others = {report.router for report in reports} - {reports[0].router}
    if others:
        raise InvalidInput("router", others.pop(), f"send only reports of one router at once ({reports[0].router!r})")
    names = [report.id for report in reports]
    if len(set(names)) < len(names):
        raise InvalidInput("id", next(name for name in names if names.count(name) > 1), "send each report once")


def _check_name(field_name: str, name: str) -> None:
    if not 1 <= len(name) <= MAX_NAME or "\0" in name:
        raise InvalidInput(field_name, name[:100], f"give 1 to {MAX_NAME} characters without NUL")


def _days(times: Iterable[float]) -> set[date]:
    """Return the UTC days that contain these Unix times in seconds. Fast for many times within few days."""
    return {datetime.fromtimestamp(day * _DAY, UTC).date() for day in {time // _DAY for time in times}}
