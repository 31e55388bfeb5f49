"""What was observed of a pool's engines before, by an earlier process of this router or by others, as far as it is
still believed: it stands in for what this router has not measured itself.
"""

from __future__ import annotations

from dataclasses import replace

from fairlead.capabilities import UNKNOWN, Figure
from fairlead.reports.engines import EngineMemory
from fairlead.routing.knowledge.engine_memories import believed, joined
from fairlead.tables import RoutingTable


class RecalledEngines:
    """The newest of all that was recalled, of one instance. Every table given has the pool's instances, and its token
    is the one that is counted by now.
    """

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory: EngineMemory | None = None

    def take(self, memory: EngineMemory, table: RoutingTable, now: float) -> EngineMemory | None:
        """Remember each figure of it that is newer or better known than what is remembered; returns what now is."""
        self._memory = joined(self.of_instance(table, now), believed(memory, table, now))
        return self._memory

    def measured(self, memory: EngineMemory, bytes_per_token: Figure, parts: int, table: RoutingTable, now: float) -> EngineMemory | None:
        """Remember what is measured here of one of so many ranks of an instance; returns what is remembered now.

        So a router that has not been asked for an hour goes by what it would go by if it had been restarted.
        """
        known = replace(
            memory.known,
            prefill_tokens_per_second=_times(memory.known.prefill_tokens_per_second, parts),
            bytes_per_token=bytes_per_token,
        )
        return self.take(replace(memory, known=known), table, now)

    def of_instance(self, table: RoutingTable, now: float) -> EngineMemory | None:
        """What still holds for the engines of this table; None if nothing does."""
        self._memory = None if self._memory is None else believed(self._memory, table, now)
        return self._memory

    def of_target(self, parts: int, table: RoutingTable, now: float) -> EngineMemory | None:
        """The same of one of so many ranks of an instance, which has a part of its speed."""
        memory = self.of_instance(table, now)
        if memory is None:
            return None
        part = _times(memory.known.prefill_tokens_per_second, 1 / parts)
        return replace(memory, known=replace(memory.known, prefill_tokens_per_second=part))

    def bytes_per_token(self, table: RoutingTable, now: float) -> Figure:
        """Of prompt text; unknown where none is remembered."""
        memory = self.of_instance(table, now)
        return UNKNOWN if memory is None else memory.known.bytes_per_token


def _times(figure: Figure, times: float) -> Figure:
    return figure if figure.value is None or times == 1 else replace(figure, value=figure.value * times, spread=None)
