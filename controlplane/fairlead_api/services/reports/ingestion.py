"""Taking routers' reports: each at most once by router and id, all of a report or nothing.

Rows that cannot be stored are dropped and counted rather than refusing the report, because a router
would send it again for ever.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead.reports import Report, ReportReceipt, RouterGone
from fairlead.tables import PoolKey
from fairlead_api.services.reports.plausibility import CLOCK_TOLERANCE_SECONDS, MAX_NAME, Ages, clock_error, plausible

LATEST = 1e11
"""Unix seconds that every clock and column here can hold (the year 5138)."""
MOST_REPORTS = 5_000
"""Reports taken in one post."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """`ignored` counts dropped rows by reason, `lost_moves` the moves of sessions that lost their race, by pool."""

    receipts: tuple[ReportReceipt, ...]
    ignored: Counter[str] = field(default_factory=Counter)
    lost_moves: Counter[PoolKey] = field(default_factory=Counter)


class ReportStore(Protocol):
    """What ingestion needs of a database."""

    async def prepare(self, days: dict[str, set[date]]) -> None:
        """Makes sure that rows of these days can be stored, by table."""

    async def ingest(self, reports: Sequence[Report]) -> Ingested:
        """Stores the reports of one router in one transaction, those it has not seen; the receipts are in their
        order.
        """

    async def forget_router(self, gone: RouterGone) -> None:
        """The router is gone until it reports anew."""


class Ingestion:
    """Use case: reports arrive."""

    def __init__(self, store: ReportStore, ages: Ages) -> None:
        self._store = store
        self._ages = ages

    async def take(self, reports: Sequence[Report], now: datetime) -> Ingested:
        """Stores reports of one router; the first carries its state of the moment.

        Raises InvalidInput for reports that name no router or time that can be, StoreUnavailable; after an answer
        nothing of them can be lost.
        """
        check_envelopes(reports)
        ignored: Counter[str] = Counter()
        shift = clock_error(reports[0], now.timestamp())
        if shift:
            _log.warning(
                "a router's clock is wrong, its times are put right", extra={"router": reports[0].router, "seconds": round(shift, 1)}
            )
        kept: list[Report] = []
        for report in reports:
            good, dropped = plausible(report, self._ages, now.timestamp(), shift)
            kept.append(replace(good, sent_at=good.sent_at + shift))
            ignored += dropped
        await self._store.prepare(
            {
                "load_samples": {_day(sample.second) for report in kept for sample in report.loads},
                "decisions": {_day(decision.at) for report in kept for decision in report.decisions},
                "rejections": {_day(rejection.second) for report in kept for rejection in report.rejections},
            }
        )
        done = await self._store.ingest(kept)
        return replace(done, ignored=done.ignored + ignored)

    async def forget_router(self, gone: RouterGone, now: datetime) -> None:
        """Raises InvalidInput, StoreUnavailable."""
        _check_name("router", gone.router)
        _check_time("at", gone.at)
        near = abs(now.timestamp() - gone.at) <= CLOCK_TOLERANCE_SECONDS
        await self._store.forget_router(gone if near else replace(gone, at=now.timestamp()))


def check_envelopes(reports: Sequence[Report]) -> None:
    """Raises InvalidInput for reports that name no router or time that can be, or are not those of one
    router, each once. Pure.
    """
    if not 1 <= len(reports) <= MOST_REPORTS:
        raise InvalidInput("reports", len(reports), f"send 1 to {MOST_REPORTS} reports at once")
    for report in reports:
        _check_name("id", report.id)
        _check_name("router", report.router)
        _check_time("sent_at", report.sent_at)
    others = {report.router for report in reports} - {reports[0].router}
    if others:
        raise InvalidInput("router", others.pop(), f"send only reports of one router at once ({reports[0].router!r})")
    names = [report.id for report in reports]
    if len(set(names)) < len(names):
        raise InvalidInput("id", next(name for name in names if names.count(name) > 1), "send each report once")


def _check_name(field_name: str, name: str) -> None:
    if not 1 <= len(name) <= MAX_NAME or "\0" in name:
        raise InvalidInput(field_name, name[:100], f"give 1 to {MAX_NAME} characters without NUL")


def _check_time(field_name: str, seconds: float) -> None:
    if not 0 <= seconds <= LATEST:
        raise InvalidInput(field_name, seconds, "give Unix seconds, such as 1700000000.0")


def _day(seconds: float) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()
