"""Stores the loads, decisions, refusals, arrivals, SLO samples and recorded requests of a report, by COPY."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports.arrivals import ArrivalSample
from fairlead.reports.batches import Report
from fairlead.reports.decisions import DecisionRecord
from fairlead.reports.loads import LoadSample
from fairlead.reports.objectives import SloSample
from fairlead.reports.rejections import RejectionRecord
from fairlead.reports.traffic import RecordedRequest
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import moment
from fairlead_api.infra.records import Writing

_LOADS = Writing(tables.load_samples, LoadSample, "pool_id", "router", "sent_at")
_ARRIVALS = Writing(tables.arrivals, ArrivalSample, "pool_id", "router")
_SLO_SAMPLES = Writing(tables.slo_samples, SloSample, "pool_id", "router")
_DECISIONS = Writing(tables.decisions, DecisionRecord, "pool_id", "router", "candidates", "weighing")
_REJECTIONS = Writing(tables.rejections, RejectionRecord, "pool_id", "router")
_TRAFFIC = Writing(tables.recorded_requests, RecordedRequest, "pool_id", "router")

_due = upsert(tables.rollup_queue)
# an update, as it locks the row: a rollup of the bucket waits for these samples, and cannot miss that they come
_DUE = _due.on_conflict_do_update(index_elements=["pool_id", "bucket", "router"], set_={"router": _due.excluded.router})

ROLLUP_SECONDS = 10

Row = TypeVar("Row")

_place: Callable[[Any], tuple[str, str]] = attrgetter("pool.namespace", "pool.name")
_second: Callable[[Any], tuple[str, str, int]] = attrgetter("pool.namespace", "pool.name", "second")
"""Pairs of words are compared many times as fast as the dataclass of a pool's name."""


async def save_samples(connection: AsyncConnection, report: Report, ids: Mapping[PoolKey, int], ignored: Counter[str]) -> None:
    """Stores the samples of a report; rows of unknown pools are only counted."""
    unique = list({decision.id: decision for decision in report.decisions}.values())
    numbers = {(pool.namespace, pool.name): number for pool, number in ids.items()}
    loads = _known(report.loads, numbers)
    decisions = _known(unique, numbers)
    rejections = _known(report.rejections, numbers)
    arrivals = _known(report.arrivals, numbers)
    traffic = _known(report.traffic, numbers)
    kept_slo = _known(report.slo_samples, numbers)
    sent = sum(
        len(rows) for rows in (report.loads, report.decisions, report.rejections, report.arrivals, report.traffic, report.slo_samples)
    )
    lost = sent - sum(len(rows) for rows in (loads, decisions, rejections, arrivals, traffic, kept_slo))
    if lost:
        ignored["unknown-pool"] += lost
    router = report.router

    def number_of(row: Any) -> int:
        return numbers[_place(row)]

    await _LOADS.copy(connection, loads, pool_id=number_of, router=router, sent_at=report.sent_at)
    await _DECISIONS.copy(
        connection,
        decisions,
        pool_id=number_of,
        router=router,
        candidates=lambda decision: decision.weighing.candidates,
        weighing=lambda decision: replace(decision.weighing, candidates=()),
    )
    await _REJECTIONS.copy(connection, rejections, pool_id=number_of, router=router)
    await _ARRIVALS.copy(connection, arrivals, pool_id=number_of, router=router)
    await _TRAFFIC.copy(connection, traffic, pool_id=number_of, router=router)
    await _SLO_SAMPLES.copy(connection, kept_slo, pool_id=number_of, router=router)
    if loads or kept_slo:
        seconds = {_second(row) for rows in (loads, kept_slo) for row in rows}
        buckets = {(numbers[namespace, name], second - second % ROLLUP_SECONDS) for namespace, name, second in seconds}
        rows_due = [{"pool_id": pool, "bucket": moment(bucket), "router": router} for pool, bucket in sorted(buckets)]
        await connection.execute(_DUE, rows_due)


def _known(rows: Sequence[Row], numbers: Mapping[tuple[str, str], int]) -> Sequence[Row]:
    """The rows whose pools have a number."""
    return rows if set(map(_place, rows)) <= numbers.keys() else [row for row in rows if _place(row) in numbers]
