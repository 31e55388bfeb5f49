"""Taking routers' reports: at most once by id, all of a report or nothing.

Bad rows (times no clock can show, names that are too long) are dropped and counted rather than refusing the report, because a router would
send it again for ever.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from fairlead.reports import Report, ReportReceipt, RouterGone

MAX_NAME = 1024
"""Longest session or request name stored, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """`ignored` counts dropped rows by reason."""

    receipt: ReportReceipt
    ignored: Counter[str]


class ReportStore(Protocol):
    """What ingestion needs of a database."""

    async def prepare(self, days: dict[str, set[date]]) -> None:
        """Makes sure that rows of these days can be stored, by table."""

    async def ingest(self, report: Report) -> Ingested:
        """Stores a report in one transaction, or finds the receipt of its first time."""

    async def forget_router(self, gone: RouterGone) -> None:
        """The router is gone until it reports anew."""


class Ingestion:
    """Use case: a report arrives. `oldest_days` is how long late rows are still worth storing."""

    def __init__(self, store: ReportStore, *, oldest_days: int) -> None:
        self._store = store
        self._oldest = timedelta(days=oldest_days)

    async def take(self, report: Report, now: datetime) -> Ingested:
        """Raises StoreUnavailable; after an answer nothing of the report can be lost."""
        kept, dropped = plausible(report, (now - self._oldest).timestamp(), (now + timedelta(hours=1)).timestamp())
        await self._store.prepare(
            {
                "load_samples": {_day(sample.second) for sample in kept.loads},
                "decisions": {_day(decision.at) for decision in kept.decisions},
                "rejections": {_day(rejection.second) for rejection in kept.rejections},
            }
        )
        done = await self._store.ingest(kept)
        return replace(done, ignored=done.ignored + dropped)

    async def forget_router(self, gone: RouterGone) -> None:
        await self._store.forget_router(gone)


def plausible(report: Report, oldest: float, newest: float) -> tuple[Report, Counter[str]]:
    """The report without rows that cannot be stored: times outside [oldest, newest] (Unix seconds), names over MAX_NAME or with a NUL."""
    dropped: Counter[str] = Counter()

    def fits(at: float, *names: str | None) -> bool:
        if not oldest <= at <= newest:
            dropped["time"] += 1
            return False
        if any(name is not None and (len(name) > MAX_NAME or "\0" in name) for name in names):
            dropped["name"] += 1
            return False
        return True

    kept = replace(
        report,
        bindings=tuple(b for b in report.bindings if fits(b.at, b.session, b.instance)),
        migrations=tuple(m for m in report.migrations if fits(m.at, m.id, m.session, m.request, m.source, m.target)),
        reroutes=tuple(m for m in report.reroutes if fits(m.at, m.id, m.session, m.request, m.source, m.target)),
        decisions=tuple(d for d in report.decisions if fits(d.at, d.id, d.session, d.request, d.chosen)),
        rejections=tuple(r for r in report.rejections if fits(r.second, r.sample_request)),
        loads=tuple(sample for sample in report.loads if fits(sample.second, sample.instance)),
    )
    return kept, dropped


def _day(seconds: float) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()
