"""The router's tracer: makes spans of the requests whose decisions are kept.

A trace is exported exactly when its decision is kept and stored. A caller that samples its trace has the decision kept,
as by `x-fairlead-explain`, within the same right and the same limit; one that does not sample it gets no spans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fairlead.reports.moves import MigrationOutcome, with_transfer
from fairlead.routing.contracts.schedulers import SchedulerRecords
from fairlead_router.tracing.spans import Moved, Span, spans_of

MOST_MOVES = 4096
"""Moves that are remembered until the requests that carry them have ended; beyond it the oldest go."""


class Tracer:
    """`offer` takes the spans of one trace and must not wait."""

    def __init__(self, router: str, offer: Callable[[tuple[Span, ...]], None]) -> None:
        self._router = router
        self._offer = offer
        self._moves: dict[str, Moved] = {}
        """By id, oldest first."""

    def take(self, records: SchedulerRecords) -> None:
        """Export the traces of these records."""
        for move in (*records.migrations, *records.reroutes):
            self._moves[move.id] = move
        for outcome in (*records.migration_outcomes, *records.reroute_outcomes):
            if outcome.id in self._moves:
                self._moves[outcome.id] = _settled(self._moves[outcome.id], outcome)
        decisions = {one.id: one for one in records.decisions} if records.traced else {}
        for traced in records.traced:
            if traced.decision in decisions:
                self._offer(spans_of(traced, decisions[traced.decision], self._carried(traced.request.id), self._router))
        while len(self._moves) > MOST_MOVES:
            del self._moves[next(iter(self._moves))]

    def _carried(self, request_id: str) -> list[Moved]:
        found = [move for move in self._moves.values() if move.request == request_id]
        for move in found:
            del self._moves[move.id]
        return found


def _settled(move: Moved, outcome: MigrationOutcome) -> Moved:
    became = replace(move, actual_ttft_seconds=outcome.actual_ttft_seconds, outcome=outcome.outcome)
    return became if outcome.transfer is None else with_transfer(became, outcome.transfer)
