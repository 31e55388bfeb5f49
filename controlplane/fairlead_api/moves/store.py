"""Session migrations and re-routes as the public API shows them: lists, flows between instances, newest moves."""

from collections import Counter
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Integer, Table, cast, func, select, text, tuple_

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveOutcome
from fairlead.routing.explanations.explaining_moves import explain_move
from fairlead_api.infra.database import Database
from fairlead_api.infra.filters import MoveFilter
from fairlead_api.infra.lists import BUCKETS, Chosen, Lists, between, equals, narrowed
from fairlead_api.infra.paging import SEARCHED
from fairlead_api.infra.records import read
from fairlead_api.infra.rows_within import RowsWithin
from fairlead_api.infra.spans import Sight, Span
from fairlead_api.moves.tables import RARE
from fairlead_client.resources.moves import MigrationFlow, MigrationMatrix, Move, MovesEffect, TimelineBucket
from fairlead_client.resources.pages import Page

AnyMove = TypeVar("AnyMove", bound=Move)

MATRIX_ROWS = 2 * SEARCHED
"""Most moves that one matrix reads, the newest of its range."""

FLOWS = 2500
"""Most pairs of instances that one matrix names."""

_TRIGGERS = frozenset(BindingReason)

_SUMMED = tuple(field.name for field in fields(MovesEffect))


def _effects(columns: Any) -> list["ColumnElement[Any]"]:
    """What a move counts for in each field of MovesEffect."""
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
    """Implements `moves.routes.MoveReader` for one table.

    `kind` is the class of its rows, `noun` the word for one of them, and `mover` the field that names what moved.
    """

    def __init__(self, database: Database, table: Table, kind: type[AnyMove], noun: str, mover: str) -> None:
        self._lists = Lists(database)
        self._table, self._kind, self._noun, self._mover = table, kind, noun, mover

    async def moves(self, wanted: MoveFilter, span: Span) -> Page[AnyMove]:
        async with self._lists.database.reading() as connection:
            chosen = self._chosen(wanted, await self._lists.pool_id(connection, wanted.pool))
            return await self._lists.page(connection, chosen, (self._table.c.at, self._table.c.id), self._build, span)

    async def move(self, move_id: str) -> AnyMove:
        return await self._lists.one(select(self._table).where(self._table.c.id == move_id), self._noun, move_id, self._build)

    async def recent(self, pool: str | None, sight: Sight, since: datetime, limit: int) -> list[tuple[datetime, AnyMove]]:
        """Moves recorded since, oldest first, with the time of recording (when a report brought them)."""
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
