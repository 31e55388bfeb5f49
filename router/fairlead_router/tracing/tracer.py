"""The router's tracer: makes spans of the requests whose routing decisions are kept.

A trace is exported if and only if the request's decision is kept and stored. A caller that samples its trace has the
decision kept, with the same permission and limit as for `x-fairlead-explain`. A caller that does not sample its trace
gets no spans.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from fairlead.reports.moves import MigrationOutcome, MigrationRecord, ReRouteRecord, with_transfer
from fairlead.routing.contracts.schedulers import SchedulerRecords
from fairlead_router.tracing.spans import Moved, Span, spans_of

logger = logging.getLogger(__name__)

M = TypeVar("M", MigrationRecord, ReRouteRecord)

MOST_MOVES = 4096
"""Maximum number of moves of each kind (see `_Moves`) that are remembered until their requests have ended. Beyond it,
the oldest moves are dropped.
"""


class Tracer:
    """Makes the spans of traces, and passes the spans of each trace to `offer`, which must not wait."""

    def __init__(self, router: str, offer: Callable[[tuple[Span, ...]], None]) -> None:
        self._router = router
        self._offer = offer
        self._migrations = _Moves[MigrationRecord]()
        self._reroutes = _Moves[ReRouteRecord]()

    def take(self, records: SchedulerRecords) -> None:
        """Export the traces of these records. Never raises an exception, because the records must still be reported."""
        try:
            self._take(records)
        except Exception:
            logger.exception("traces could not be made")

    def _take(self, records: SchedulerRecords) -> None:
        self._migrations.add(records.migrations, records.migration_outcomes)
        self._reroutes.add(records.reroutes, records.reroute_outcomes)
        decisions = {one.id: one for one in records.decisions} if records.traced else {}
        for traced in records.traced:
            if traced.decision in decisions:
                request = traced.request.id
                moves: list[Moved] = [*self._migrations.carried(request), *self._reroutes.carried(request)]
                self._offer(spans_of(traced, decisions[traced.decision], moves, self._router))
        self._migrations.bound()
        self._reroutes.bound()


class _Moves(Generic[M]):
    """Moves of one kind (migrations or re-routes) by id, oldest first, whose requests may still be in progress."""

    def __init__(self) -> None:
        self._records: dict[str, M] = {}

    def add(self, records: Iterable[M], outcomes: Iterable[MigrationOutcome]) -> None:
        """Remember new moves, and add outcomes to the moves that are remembered."""
        self._records |= {move.id: move for move in records}
        for outcome in outcomes:
            if outcome.id in self._records:
                self._records[outcome.id] = _settled(self._records[outcome.id], outcome)

    def carried(self, request: str) -> list[M]:
        """Remove and return the moves that happened with this request."""
        found = [move for move in self._records.values() if move.request == request]
        for move in found:
            del self._records[move.id]
        return found

    def bound(self) -> None:
        """Drop the oldest moves beyond the maximum."""
        while len(self._records) > MOST_MOVES:
            del self._records[next(iter(self._records))]


def _settled(move: M, outcome: MigrationOutcome) -> M:
    became = replace(move, actual_ttft_seconds=outcome.actual_ttft_seconds, outcome=outcome.outcome)
    return became if outcome.transfer is None else with_transfer(became, outcome.transfer)
