"""Stores each session migration and each re-route once, rolls them up (minutes from rows, hours from minutes), and
reads them for the public API: lists, flows between instances, newest moves.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Integer, Table, TextClause, cast, func, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MigrationRecord, MoveOutcome, ReRouteRecord
from fairlead.routing.explanations.explaining_moves import explain_move
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.paging import BUCKETS, SEARCHED, Chosen, Lists, RowsWithin, between, equals, narrowed
from fairlead_api.infra.records import Record, Writing, read
from fairlead_api.infra.spans import Sight, Span
from fairlead_api.moves.tables import RARE
from fairlead_client.resources.moves import MigrationFlow, MigrationMatrix, Move, MovesEffect, TimelineBucket
from fairlead_client.resources.pages import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFilter:
    """Filter of migrations or re-routes.

    `paid_off` False selects moves after which the first token arrived no sooner than predicted for staying.
    """

    pool: str | None = None
    source: str | None = None
    target: str | None = None
    trigger: BindingReason | None = None
    outcome: MoveOutcome | None = None
    session: str | None = None
    paid_off: bool | None = None
    start: datetime | None = None
    end: datetime | None = None


_MIGRATIONS = Writing(tables.migrations, MigrationRecord, "pool_id", "router", "request")
_REROUTES = Writing(tables.reroutes, ReRouteRecord, "pool_id", "router", "request")


async def save_migrations(connection: AsyncConnection, records: Sequence[MigrationRecord], router: str, ids: Mapping[PoolKey, int]) -> None:
    """Store session migrations. A migration that already exists stays unchanged."""
    await _save(connection, _MIGRATIONS, [record for record in records if record.pool in ids], router, ids)


async def save_reroutes(connection: AsyncConnection, records: Sequence[ReRouteRecord], router: str, ids: Mapping[PoolKey, int]) -> None:
    """Store re-routes. A re-route that already exists stays unchanged."""
    await _save(connection, _REROUTES, [record for record in records if record.pool in ids], router, ids)


async def _save(
    connection: AsyncConnection, moves: Writing[Record], records: Sequence[Record], router: str, ids: Mapping[PoolKey, int]
) -> None:
    await moves.add(connection, records, pool_id=lambda move: ids[move.pool], router=router, request=lambda move: move.request or None)


AT_ONCE = 500
"""Maximum number of minutes, over all pools, that one transaction rolls up."""
COLUMNS = ("migrations", "reroutes", "compared", "seconds_won")
_WON = "m.predicted_source_ttft_seconds - m.actual_ttft_seconds"


def _rows(pool: str, minute: str) -> str:
    """Return SQL for the sums over the moves of one minute, as the columns COLUMNS."""
    within = f"m.pool_id = {pool} AND m.at >= {minute} AND m.at < {minute} + interval '1 minute'"
    return (
        f"SELECT migrations, reroutes, compared, seconds_won FROM (SELECT count(*) AS migrations, count({_WON}) AS compared, "
        f"coalesce(sum({_WON}), 0) AS seconds_won FROM migrations m WHERE {within}) migrated, "
        f"(SELECT count(*) AS reroutes FROM reroutes m WHERE {within} AND m.trigger <> '{BindingReason.PREFIX_COPIED}') rerouted"
    )


def within(base: str) -> str:
    """Return a query for the moves of `:pools` from `:start` to `:end`, both whole minutes (`base` `1m`) or whole hours
    (`1h`).

    The query's rows have pool_id, a time `at` within the rollup's bucket, and COLUMNS, which the caller must sum. For a
    minute whose moves changed after its rollup, the query returns the rollup with a negative sign and adds the moves
    themselves.
    """
    rolled = ", ".join(f"r.{name}" for name in COLUMNS)
    negative = ", ".join(f"-r.{name}" for name in COLUMNS)
    return (
        "WITH changed AS MATERIALIZED (SELECT DISTINCT pool_id, minute FROM move_rollup_queue "
        "WHERE pool_id = ANY(:pools) AND minute >= :start AND minute < :end) "
        f"SELECT r.pool_id, r.bucket AS at, {rolled} FROM move_rollups_{base} r "
        "WHERE r.pool_id = ANY(:pools) AND r.bucket >= :start AND r.bucket < :end "
        f"UNION ALL SELECT c.pool_id, c.minute, {negative} FROM changed c, LATERAL "
        "(SELECT * FROM move_rollups_1m o WHERE o.pool_id = c.pool_id AND o.bucket = c.minute) r "
        f"UNION ALL SELECT c.pool_id, c.minute, {rolled} FROM changed c, LATERAL ({_rows('c.pool_id', 'c.minute')}) r"
    )


TAKE = text("""
WITH due AS (SELECT DISTINCT pool_id, minute FROM move_rollup_queue WHERE minute + interval '1 minute' <= :ended ORDER BY minute LIMIT :most)
DELETE FROM move_rollup_queue q USING due WHERE q.pool_id = due.pool_id AND q.minute = due.minute RETURNING q.pool_id, q.minute
""")
"""SQL that removes up to `:most` minutes that ended by `:ended` from the queue and returns them."""
_KEYS = "unnest(CAST(:pools AS integer[]), CAST(:buckets AS timestamptz[])) AS k (pool, bucket)"


def _upsert(target: str, source: str) -> str:
    replaced = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS)
    return (
        f"INSERT INTO {target} (pool_id, bucket, {', '.join(COLUMNS)}) SELECT k.pool, k.bucket, {', '.join(f'r.{name}' for name in COLUMNS)} "
        f"FROM {_KEYS}, LATERAL ({source}) r ON CONFLICT (pool_id, bucket) DO UPDATE SET {replaced}"
    )


_SUMS = ", ".join(f"sum({name}) AS {name}" for name in COLUMNS)
_TO_1M = text(_upsert("move_rollups_1m", _rows("k.pool", "k.bucket")))
_TO_1H = text(
    _upsert(
        "move_rollups_1h",
        f"SELECT {_SUMS} FROM move_rollups_1m m WHERE m.pool_id = k.pool AND m.bucket >= k.bucket AND m.bucket "
        "< k.bucket + interval '1 hour'",
    )
)


async def roll_up_moves(connection: AsyncConnection, ended: datetime) -> int:
    """Recompute the queued minutes that ended by `ended`, and the hours that contain them, in one transaction. Returns
    the number of minutes.

    The queue is emptied before the moves are read. A change that is committed in between is therefore counted, and its
    minute stays queued.
    """
    minutes = {(row.pool_id, row.minute) for row in await connection.execute(TAKE, {"ended": ended, "most": AT_ONCE})}
    for statement, values in computing(minutes):
        await connection.execute(statement, values)
    return len(minutes)


def computing(minutes: Iterable[tuple[int, datetime]]) -> Iterator[tuple[TextClause, dict[str, list[object]]]]:
    """Yield SQL statements, each with its values. They compute the rollups of these minutes (a pool's id and a time),
    and of the hours that contain them.
    """
    found = set(minutes)
    for statement, buckets in ((_TO_1M, found), (_TO_1H, {(pool, at - timedelta(minutes=at.minute)) for pool, at in found})):
        if buckets:
            ordered = sorted(buckets)
            yield statement, {"pools": [pool for pool, _ in ordered], "buckets": [at for _, at in ordered]}


AnyMove = TypeVar("AnyMove", bound=Move)

MATRIX_ROWS = 2 * SEARCHED
"""Maximum number of moves that one matrix reads: the newest of the requested range."""

FLOWS = 2500
"""Maximum number of pairs of instances that one matrix names."""

_TRIGGERS = frozenset(BindingReason)

_SUMMED = tuple(field.name for field in fields(MovesEffect))


def _effects(columns: Any) -> list["ColumnElement[Any]"]:
    """Return, for each field of MovesEffect, the SQL for the amount that one move adds to the field."""
    net = columns.predicted_source_ttft_seconds - columns.actual_ttft_seconds
    tests = {
        "paid_off": columns.paid_off.is_(True),
        "not_paid_off": columns.paid_off.is_(False),
        "unknown": columns.paid_off.is_(None),
        "compared": net.is_not(None),
    }
    return [
        *(cast(test, Integer).label(name) for name, test in tests.items()),
        net.label("seconds_won"),
        columns.tokens_moved.label("tokens_moved"),
        columns.tokens_recomputed.label("tokens_recomputed"),
    ]


class PostgresMoves(Generic[AnyMove]):
    """The database's moves of one kind, which are stored in one table.

    `kind` is the class of the items, `noun` the name for one item in messages, and `mover` the field that contains the
    moved session or request.
    """

    def __init__(self, database: Database, table: Table, kind: type[AnyMove], noun: str, mover: str) -> None:
        self._lists = Lists(database)
        self._table, self._kind, self._noun, self._mover = table, kind, noun, mover

    async def moves(self, wanted: MoveFilter, span: Span) -> Page[AnyMove]:
        async with self._lists.database.reading() as connection:
            chosen = self._chosen(wanted, await self._lists.pool_id(connection, wanted.pool))
            return await self._lists.page(connection, chosen, (self._table.c.at, self._table.c.id), self._build, span)

    async def move(self, move_id: str) -> AnyMove:
        """Return a move. Raises NotFound."""
        return await self._lists.one(select(self._table).where(self._table.c.id == move_id), self._noun, move_id, self._build)

    async def recent(self, pool: str | None, sight: Sight, since: datetime, limit: int) -> list[tuple[datetime, AnyMove]]:
        """Return moves recorded after `since`, oldest first, each with the time at which its report was stored."""
        return await self._lists.recent(self._table, since, self._build, pool, sight, limit)

    async def matrix(self, wanted: MoveFilter, now: datetime, sight: Sight = None) -> MigrationMatrix:
        end = wanted.end or now
        async with self._lists.database.reading() as connection:
            chosen = self._chosen(wanted, await self._lists.pool_id(connection, wanted.pool))
            query, also = await self._lists.within(connection, chosen, sight)
            searched = RowsWithin(query.order_by(self._table.c.at.desc()).limit(MATRIX_ROWS))
            seen, first = (await connection.execute(searched.select(func.count(), func.min(searched.c.at)))).one()
            complete = seen < MATRIX_ROWS
            start = (wanted.start if complete else None) or first or end - timedelta(hours=1)
            width = max((end - start) / BUCKETS, timedelta(seconds=1))
            number = func.floor(func.extract("epoch", searched.c.at - start) / width.total_seconds())
            named = (searched.c[name].label(name) for name in ("source", "target", "trigger"))
            columns = (*named, number.label("bucket"), *_effects(searched.c))
            moved = RowsWithin(searched.select(*columns).where(*(test(searched.c) for test in also)))
            found = moved.c
            sets = func.grouping_sets(tuple_(found.source, found.target), tuple_(found.bucket, found.trigger))
            sums = [func.sum(found[name]).label(name) for name in _SUMMED]
            keys = (found[name].label(name) for name in ("source", "target", "bucket", "trigger"))
            counted = await connection.execute(moved.select(*keys, func.count().label("amount"), *sums).group_by(sets))
            flows: list[MigrationFlow] = []
            effect: Counter[str] = Counter()
            won = 0.0
            buckets: dict[int, dict[BindingReason, int]] = {}
            by_trigger: Counter[BindingReason] = Counter()
            for row in counted:
                if row.source is not None:
                    flows.append(MigrationFlow(source=row.source, target=row.target, count=row.amount))
                    effect.update({name: int(getattr(row, name)) for name in _SUMMED if name != "seconds_won"})
                    won += row.seconds_won or 0.0
                elif row.trigger in _TRIGGERS:
                    buckets.setdefault(int(row.bucket), {})[BindingReason(row.trigger)] = row.amount
                    by_trigger[BindingReason(row.trigger)] += row.amount
        return MigrationMatrix(
            flows=sorted(flows, key=lambda flow: (-flow.count, flow.source, flow.target))[:FLOWS],
            by_trigger=dict(sorted(by_trigger.items())),
            timeline=[TimelineBucket(at=start + width * number, counts=buckets[number]) for number in sorted(buckets)],
            total=by_trigger.total(),
            effect=MovesEffect(**{name: effect[name] for name in _SUMMED if name != "seconds_won"}, seconds_won=won),
            complete=complete,
            counted_from=start,
        )

    def _chosen(self, wanted: MoveFilter, pool: int | None) -> Chosen:
        moves = self._table.c
        order = ("session", "source", "target", "outcome", "trigger")
        filters = [*((moves[name], getattr(wanted, name)) for name in order), (moves.pool_id, pool)]
        query, also = narrowed(between(select(self._table), moves.at, wanted.start, wanted.end), filters)
        if wanted.outcome not in {None, MoveOutcome.UNDERWAY, MoveOutcome.COMPLETED}:
            query = query.where(text(RARE))
        if wanted.paid_off is not None:
            also.append(equals("paid_off", wanted.paid_off))
        return query, also

    def _build(self, row: Any, pool: str) -> AnyMove:
        what = f"{self._mover.capitalize()} {getattr(row, self._mover)}"
        return read(self._kind, row, pool=pool, explanation=explain_move(row, what))
