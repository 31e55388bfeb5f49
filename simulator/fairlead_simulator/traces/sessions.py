"""Which rows of a trace belong to one session.

Traces carry no session ids, but their block ids tell: rows of one conversation share their leading blocks. Prefixes
that very many rows branch off from (a system prompt, a tool's instructions) are shared by everyone and say nothing; the
first block after them is the session's.
"""

from collections.abc import Iterable
from itertools import pairwise

from fairlead_simulator.traces.rows import TraceRow

_BRANCHES_OF_A_SHARED_PREFIX = 32


class SessionIndex:
    """Names the session of each row of one trace."""

    def __init__(self, shared_ends: frozenset[int], shared: frozenset[int]) -> None:
        self._shared_ends = shared_ends
        self.shared = shared
        """Ids of all blocks that belong to prefixes shared by many sessions."""

    @staticmethod
    def of(rows: Iterable[TraceRow]) -> "SessionIndex":
        """Read through the rows once; memory grows with the number of distinct blocks."""
        first_next: dict[int, int] = {}
        branches: dict[int, set[int]] = {}
        before: dict[int, int] = {}
        for row in rows:
            ids = row.hash_ids
            for block, following in pairwise(ids):
                known = first_next.setdefault(block, following)
                before.setdefault(following, block)
                if known != following:
                    branches.setdefault(block, {known}).add(following)
        ends = frozenset(block for block, nexts in branches.items() if len(nexts) >= _BRANCHES_OF_A_SHARED_PREFIX)
        shared: set[int] = set()
        for end in ends:
            ancestor: int | None = end
            while ancestor is not None and ancestor not in shared:
                shared.add(ancestor)
                ancestor = before.get(ancestor)
        return SessionIndex(ends, frozenset(shared))

    def key(self, row: TraceRow) -> int:
        """The id of the first block that no other session has, or of the last block when every block is shared."""
        ids = row.hash_ids
        for position in range(len(ids) - 2, -1, -1):
            if ids[position] in self._shared_ends:
                return ids[position + 1]
        return ids[0] if ids[0] not in self.shared else ids[-1]
