"""Infers which requests of a trace belong to the same session, if the trace does not say so.

Two facts help. A client sends the whole history of a conversation with each turn, so the next turn contains the whole
previous prompt. And the client waits for each answer, so two requests of a session never overlap in time. Therefore a
request continues a session

- if it contains the latest prompt of the session, or repeats it exactly (a retry);
- or if it contains the prompt before the latest one, provided that this prompt was itself a later turn (a message was
  edited or answered again).

Two conditions must be met, too: the session's latest answer can be complete by then, and the contained part is more
than a prefix with which several sessions begin, such as a system prompt. Every other request begins a new session. Such
requests are, for example, a conversation that was cut to fit the context, a sub-agent, or a parallel branch.

Prompts are identified by their whole blocks. If a first prompt shares all its blocks with other prompts, it cannot be
distinguished from the beginning of another conversation. The first session with such a prompt may get a turn of another
session; later sessions with this prompt get no further turns.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from fairlead_simulator.traces.rows import TraceRow

FASTEST_MS_PER_TOKEN = 1.0
"""Milliseconds per token of the fastest answer that is considered possible: 1,000 tokens a second for one request."""
_SEVERAL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The sessions of a trace. `names` has the name of each row's session, in the order of the rows."""

    names: tuple[str, ...]
    named: int
    """Number of different sessions that are named in the rows."""
    inferred: int
    unnamed_requests: int
    """Number of requests that name no session. The inferred sessions consist of these requests."""
    largest: int
    """Number of requests in the largest session."""
    shared: frozenset[int]
    """Ids of the whole blocks that belong to several sessions, such as the blocks of a common system prompt."""

    @property
    def words(self) -> str:
        """The numbers of sessions in words, such as `3 named, 41 inferred for 60 requests that name none; …`."""
        known = [f"{self.named:,} named"] if self.named else []
        if self.inferred:
            known.append(f"{self.inferred:,} inferred for {self.unnamed_requests:,} requests that name none")
        return f"{', '.join(known) or 'none'}; the largest has {self.largest:,} {'request' if self.largest == 1 else 'requests'}"

    def document(self) -> dict[str, int]:
        """Return the numbers of sessions as a document for JSON."""
        return {name: getattr(self, name) for name in ("named", "inferred", "unnamed_requests", "largest")}


def find_sessions(rows: Sequence[TraceRow]) -> Sessions:
    """Return the sessions of the rows, which must be in order of time. Rows without a session get an inferred
    session.
    """
    finder = SessionFinder()
    numbers = [finder.add(row) for row in rows]
    shared = frozenset(block for block, owner in finder.owners.items() if owner == _SEVERAL)
    names: dict[int, str] = {}
    taken = {row.session for row in rows if row.session is not None}
    for number, row in zip(numbers, rows, strict=True):
        if number not in names:
            names[number] = row.session if row.session is not None else _free_name(row, shared, taken)
    unnamed = [number for number, row in zip(numbers, rows, strict=True) if row.session is None]
    inferred = len(set(unnamed))
    return Sessions(
        names=tuple(names[number] for number in numbers),
        named=len(names) - inferred,
        inferred=inferred,
        unnamed_requests=len(unnamed),
        largest=max(Counter(numbers).values(), default=0),
        shared=shared,
    )


def _free_name(row: TraceRow, shared: frozenset[int], taken: set[str]) -> str:
    """Return an unused name for the session that begins with this row, and add the name to `taken`. The name is made
    from the row's first block that is not shared.
    """
    own = f"t{next((block for block in row.hash_ids if block not in shared), row.hash_ids[-1])}"
    name = next(one for one in (own if place == 1 else f"{own}-{place}" for place in count(1)) if one not in taken)
    taken.add(name)
    return name


class _Session:
    """The data that `SessionFinder` keeps about one session."""

    __slots__ = ("free_at", "turns")

    def __init__(self) -> None:
        self.free_at = 0.0
        """The earliest time at which the session's latest answer can be complete, in milliseconds."""
        self.turns = 0


class SessionFinder:
    """Assigns each row to a session; the rows must be added in order of time.

    The time for a row grows with the number of its blocks, and with the logarithm of the number of sessions that sent
    the same prompt.
    """

    def __init__(self) -> None:
        self.owners: dict[int, int] = {}
        """Id of a whole block → number of the session to which the block belongs; -1 if it belongs to several
        sessions.
        """
        self._sessions: list[_Session] = []
        self._named: dict[str, int] = {}
        self._ends: dict[int, tuple[int, int]] = {}
        """Id of a block that belongs to one session → (number of a turn from 0 on, prompt tokens of this turn). It is
        the session's latest turn whose last whole block is this block.
        """
        self._latest: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
        """Prompt, as (its last block id, its tokens) → a heap of the sessions that sent it. An entry of the heap is
        (milliseconds from which the session can continue, number of the session, number of the turn).
        """

    def add(self, row: TraceRow) -> int:
        """Return the number of the row's session. Sessions are numbered from 0 on, in the order in which they begin."""
        blocks = row.hash_ids[: row.full_blocks]
        if row.session is not None:
            return self._add_named(row.session, blocks)
        number = self._repeated(row)
        if number is None:
            number = self._continued(row, blocks)
        if number is None:
            number = self._begun()
            self._share(blocks[self._branch(row, blocks) :], number)
        else:
            for block in blocks:
                self.owners.setdefault(block, number)
        self._take(row, blocks, number)
        return number

    def _add_named(self, name: str, blocks: Sequence[int]) -> int:
        number = self._named.get(name)
        if number is None:
            number = self._named[name] = self._begun()
        self._share(blocks, number)
        return number

    def _begun(self) -> int:
        self._sessions.append(_Session())
        return len(self._sessions) - 1

    def _repeated(self, row: TraceRow) -> int | None:
        """Return the number of a session whose latest prompt equals this prompt and whose latest answer can be
        complete; None if there is no such session.
        """
        senders = self._latest.get((row.hash_ids[-1], row.input_length))
        while senders and senders[0][0] <= row.timestamp_ms:
            _, number, turn = senders[0]
            if turn == self._sessions[number].turns - 1:
                return number
            heappop(senders)  # it has gone on since
        return None

    def _continued(self, row: TraceRow, blocks: Sequence[int]) -> int | None:
        """Return the number of the session that the row continues; None if there is no such session. A row continues a
        session if its prompt begins with the session's latest prompt, or with the prompt before, and if the session's
        latest answer can be complete.
        """
        for block in reversed(blocks):
            owner, end = self.owners.get(block), self._ends.get(block)
            if owner == _SEVERAL:
                return None  # and so is all that comes before
            if owner is None or end is None or row.input_length <= end[1]:
                continue
            session, turn = self._sessions[owner], end[0]
            behind = session.turns - 1 - turn
            is_next = behind == 0 or (behind == 1 and turn > 0)
            return owner if is_next and session.free_at <= row.timestamp_ms else None
        return None

    def _branch(self, row: TraceRow, blocks: Sequence[int]) -> int:
        """Return the number of leading blocks that a new session shares with an earlier session from which it branches
        off; 0 if it branches off from none. These blocks keep belonging to the earlier session.

        The new session branches off if its first prompt repeats an earlier prompt, or if it contains a second or later
        turn of another session. A shared first turn is not enough, because it could be only a system prompt.
        """
        if (row.hash_ids[-1], row.input_length) in self._latest:
            return len(blocks)
        for place in range(len(blocks), 0, -1):
            turn, tokens = self._ends.get(blocks[place - 1], (0, 0))
            if turn > 0 and row.input_length > tokens:
                return place
        return 0

    def _share(self, blocks: Sequence[int], number: int) -> None:
        """Assign each of the blocks to the session `number` if it belongs to no session yet. Mark the blocks that
        belong to another session as belonging to several sessions.
        """
        owners = self.owners
        for block in blocks:
            if owners.setdefault(block, number) != number:
                owners[block] = _SEVERAL

    def _take(self, row: TraceRow, blocks: Sequence[int], number: int) -> None:
        session = self._sessions[number]
        if blocks and self.owners[blocks[-1]] == number:
            self._ends[blocks[-1]] = (session.turns, row.input_length)
        session.free_at = row.timestamp_ms + max(1, row.output_length) * FASTEST_MS_PER_TOKEN
        heappush(self._latest.setdefault((row.hash_ids[-1], row.input_length), []), (session.free_at, number, session.turns))
        session.turns += 1
