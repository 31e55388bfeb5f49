"""Stores the loads, decisions, refusals, arrivals, SLO samples and recorded requests of a report, by COPY."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

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
from fairlead_api.store import tables
from fairlead_api.store.database import moment
from fairlead_api.store.records import Writing

_LOADS = Writing(tables.load_samples, LoadSample, "pool_id", "router", "sent_at")
_ARRIVALS = Writing(tables.arrivals, ArrivalSample, "pool_id", "router")
_SLO_SAMPLES = Writing(tables.slo_samples, SloSample, "pool_id", "router")
_DECISIONS = Writing(tables.decisions, DecisionRecord, "pool_id", "router", "candidates", "weighing")
_REJECTIONS = Writing(tables.rejections, RejectionRecord, "pool_id", "router")
_TRAFFIC = Writing(tables.recorded_requests, RecordedRequest, "pool_id", "router")

ROLLUP_SECONDS = 10


async def save_samples(connection: AsyncConnection, report: Report, ids: Mapping[PoolKey, int], ignored: Counter[str]) -> None:
    """Stores the samples of a report; rows of unknown pools are only counted."""
    unique = list({decision.id: decision for decision in report.decisions}.values())
    loads = [load for load in report.loads if load.pool in ids]
    decisions = [decision for decision in unique if decision.pool in ids]
    rejections = [rejection for rejection in report.rejections if rejection.pool in ids]
    arrivals = [arrival for arrival in report.arrivals if arrival.pool in ids]
    traffic = [request for request in report.traffic if request.pool in ids]
    kept_slo = [sample for sample in report.slo_samples if sample.pool in ids]
    sent = sum(
        len(rows) for rows in (report.loads, report.decisions, report.rejections, report.arrivals, report.traffic, report.slo_samples)
    )
    lost = sent - sum(len(rows) for rows in (loads, decisions, rejections, arrivals, traffic, kept_slo))
    if lost:
        ignored["unknown-pool"] += lost
    router = report.router
    await _LOADS.copy(connection, loads, pool_id=lambda load: ids[load.pool], router=router, sent_at=report.sent_at)
    await _DECISIONS.copy(
        connection,
        decisions,
        pool_id=lambda decision: ids[decision.pool],
        router=router,
        candidates=lambda decision: decision.weighing.candidates,
        weighing=lambda decision: replace(decision.weighing, candidates=()),
    )
    await _REJECTIONS.copy(connection, rejections, pool_id=lambda rejection: ids[rejection.pool], router=router)
    await _ARRIVALS.copy(connection, arrivals, pool_id=lambda arrival: ids[arrival.pool], router=router)
    await _TRAFFIC.copy(connection, traffic, pool_id=lambda request: ids[request.pool], router=router)
    await _SLO_SAMPLES.copy(connection, kept_slo, pool_id=lambda sample: ids[sample.pool], router=router)
    if loads or kept_slo:
        seconds = {(row.pool, row.second) for row in loads} | {(row.pool, row.second) for row in kept_slo}
        buckets = {(ids[pool], second - second % ROLLUP_SECONDS) for pool, second in seconds}
        rows_due = [{"pool_id": pool, "bucket": moment(bucket), "router": router} for pool, bucket in sorted(buckets)]
        await connection.execute(upsert(tables.rollup_queue).on_conflict_do_nothing(), rows_due)
