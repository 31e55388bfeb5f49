"""Loads, decisions and refusals of a report, by COPY."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from psycopg.types.json import Jsonb
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports import Report
from fairlead.tables import PoolKey
from fairlead_api.store import tables
from fairlead_api.store.database import driver, moment

_LOADS = (
    "COPY load_samples (pool_id, router, instance, second, sent_at, running, waiting, pending_prefill_tokens, in_flight, kv_usage, requests, "
    "completed, failed, cancelled, prompt_tokens, hit_tokens, output_tokens, ttft_seconds, tpot_seconds, ttft_within_slo, ttft_total) "
    "FROM STDIN (FORMAT BINARY)"
)
_LOAD_TYPES = [
    *("int4", "text", "text", "timestamptz", "timestamptz", "int8", "int8", "int8", "int8", "float4", "int8"),
    *("int8", "int8", "int8", "int8", "int8", "int8", "float4[]", "float4[]", "int8", "int8"),
]
_DECISIONS = (
    "COPY decisions (id, pool_id, request, session, at, router, policy, table_version, chosen, runner_up, reason, prompt_tokens, "
    "queued_seconds, ttft_seconds, sample_rate, candidates, weighing, served_by) FROM STDIN (FORMAT BINARY)"
)
_DECISION_TYPES = [
    *("text", "int4", "text", "text", "timestamptz", "text", "text", "int8", "text", "text", "text", "int8"),
    *("float8", "float8", "float8", "jsonb", "jsonb", "text"),
]
_REJECTIONS = (
    "COPY rejections (pool_id, router, second, reason, count, status, sample_request, sample_prompt_tokens, retry_after_seconds, "
    "predicted_ttft_seconds) FROM STDIN (FORMAT BINARY)"
)
_REJECTION_TYPES = ["int4", "text", "timestamptz", "text", "int8", "int4", "text", "int8", "float8", "float8"]

ROLLUP_SECONDS = 10


async def save_samples(connection: AsyncConnection, report: Report, ids: Mapping[PoolKey, int], ignored: Counter[str]) -> None:
    """Stores the loads, decisions and refusals of a report; those of unknown pools are counted."""
    loads = [
        (
            *(ids[s.pool], report.router, s.instance, moment(s.second), moment(report.sent_at)),
            *(s.running, s.waiting, s.pending_prefill_tokens, s.in_flight, s.kv_usage, s.requests, s.completed, s.failed, s.cancelled),
            *(
                s.prompt_tokens,
                s.hit_tokens,
                s.output_tokens,
                list(s.ttft_seconds),
                list(s.tpot_seconds),
                s.ttft_within_slo,
                s.ttft_total,
            ),
        )
        for s in report.loads
        if s.pool in ids
    ]
    decisions = [
        (
            *(d.id, ids[d.pool], d.request, d.session, moment(d.at), report.router, d.policy, d.table_version, d.chosen, d.runner_up),
            *(
                d.reason,
                d.prompt_tokens,
                d.queued_seconds,
                d.ttft_seconds,
                d.sample_rate,
                Jsonb(d.weighing.candidates, dumps=msgspec.json.encode),
                Jsonb(replace(d.weighing, candidates=()), dumps=msgspec.json.encode),
                d.served_by,
            ),
        )
        for d in _unique_decisions(report)
        if d.pool in ids
    ]
    rejections = [
        (
            *(ids[r.pool], report.router, moment(r.second), r.reason.value, r.count, r.status, r.sample_request),
            *(r.sample_prompt_tokens, r.retry_after_seconds, r.predicted_ttft_seconds),
        )
        for r in report.rejections
        if r.pool in ids
    ]
    lost = len(report.loads) + len(report.decisions) + len(report.rejections) - len(loads) - len(decisions) - len(rejections)
    if lost:
        ignored["unknown-pool"] += lost
    for statement, types, rows in (
        (_LOADS, _LOAD_TYPES, loads),
        (_DECISIONS, _DECISION_TYPES, decisions),
        (_REJECTIONS, _REJECTION_TYPES, rejections),
    ):
        if rows:
            await _copy_rows(connection, statement, types, rows)
    if loads:
        buckets = {(ids[s.pool], s.second - s.second % ROLLUP_SECONDS) for s in report.loads if s.pool in ids}
        rows_due = [{"pool_id": pool, "bucket": moment(bucket), "router": report.router} for pool, bucket in sorted(buckets)]
        await connection.execute(upsert(tables.rollup_queue).on_conflict_do_nothing(), rows_due)


def _unique_decisions(report: Report) -> list[Any]:
    return list({decision.id: decision for decision in report.decisions}.values())


async def _copy_rows(connection: AsyncConnection, statement: str, types: list[str], rows: Sequence[tuple[Any, ...]]) -> None:
    async with (await driver(connection)).cursor() as cursor, cursor.copy(statement.encode()) as copy:
        copy.set_types(types)
        for row in rows:
            await copy.write_row(row)
