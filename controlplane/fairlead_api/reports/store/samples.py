"""Stores with COPY those rows of a report that daily tables store unchanged, such as loads and decisions."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar, get_args, get_type_hints

from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports.batches import ROW_KINDS, Report
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import moment
from fairlead_api.infra.records import Writing

_GIVEN: Mapping[str, Callable[[Report], Mapping[str, Any]]] = {
    "loads": lambda report: {"sent_at": report.sent_at},
    "decisions": lambda _report: {
        "candidates": lambda decision: decision.weighing.candidates,
        "weighing": lambda decision: replace(decision.weighing, candidates=()),
        "shadows": lambda decision: decision.shadows or None,
    },
}
"""By field of Report: the columns that are not fields of the record, and the fields whose stored form differs, each
with its value.
"""


def _given(name: str, report: Report) -> Mapping[str, Any]:
    return _GIVEN[name](report) if name in _GIVEN else {}


_HINTS = get_type_hints(Report)
_NONE = Report(id="", router="", sent_at=0.0)
_WRITINGS: Mapping[str, Writing[Any]] = {
    name: Writing(tables.metadata.tables[kind.table], get_args(_HINTS[name])[0], "pool_id", "router", *_given(name, _NONE))
    for name, kind in ROW_KINDS.items()
    if kind.table
}
_ROLLED_UP = ("loads", "slo_samples")

_due = upsert(tables.rollup_queue)
# an update, as it locks the row: a rollup of the bucket waits for these samples, and cannot miss that they come
_DUE = _due.on_conflict_do_update(index_elements=["pool_id", "bucket", "router"], set_={"router": _due.excluded.router})

ROLLUP_SECONDS = 10
"""Length in seconds of the shortest bucket to which loads and SLO samples are rolled up."""

Row = TypeVar("Row")

_place: Callable[[Any], tuple[str, str]] = attrgetter("pool.namespace", "pool.name")
_second: Callable[[Any], tuple[str, str, int]] = attrgetter("pool.namespace", "pool.name", "second")
"""Functions that return a row's sort key: its pool, or its pool and second, as a tuple. Such tuples are compared many
times as fast as pools' names, which are dataclasses.
"""


async def save_samples(connection: AsyncConnection, report: Report, ids: Mapping[PoolKey, int], ignored: Counter[str]) -> None:
    """Store the samples of a report. Rows of unknown pools are only counted as ignored."""
    numbers = {(pool.namespace, pool.name): number for pool, number in ids.items()}
    sent: dict[str, Sequence[Any]] = {name: getattr(report, name) for name in _WRITINGS}
    sent["decisions"] = list({decision.id: decision for decision in report.decisions}.values())
    known = {name: _known(rows, numbers) for name, rows in sent.items()}
    lost = sum(len(getattr(report, name)) - len(rows) for name, rows in known.items())
    if lost:
        ignored["unknown-pool"] += lost
    router = report.router

    def number_of(row: Any) -> int:
        return numbers[_place(row)]

    for name, writing in _WRITINGS.items():
        await writing.copy(connection, known[name], pool_id=number_of, router=router, **_given(name, report))
    seconds = {_second(row) for name in _ROLLED_UP for row in known[name]}
    if seconds:
        buckets = {(numbers[namespace, name], second - second % ROLLUP_SECONDS) for namespace, name, second in seconds}
        rows_due = [{"pool_id": pool, "bucket": moment(bucket), "router": router} for pool, bucket in sorted(buckets)]
        await connection.execute(_DUE, rows_due)


def _known(rows: Sequence[Row], numbers: Mapping[tuple[str, str], int]) -> Sequence[Row]:
    """Return the rows that belong to a pool in `numbers`, which maps pools to their ids."""
    return rows if set(map(_place, rows)) <= numbers.keys() else [row for row in rows if _place(row) in numbers]
