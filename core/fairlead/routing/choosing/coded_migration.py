"""Batch migration as in DualMap's published code. Nearly every rule differs from the rule in the paper.

An instance is overloaded when more uncached tokens than a threshold are pending on it, or when its oldest queued
request has waited too long. From an overloaded instance with at least two queued requests, the request whose TTFT
improves most moves to the other instance of its pair. If that instance is overloaded, or the move would overload it,
the request moves to a neighbour outside the pair. The run ends when the tokens above the threshold have left, or when
no move improves a TTFT. The run does not check whether a request meets the SLO, neither at its target nor where it
waits now. TTFTs follow the code's queue order: most cached tokens first, then arrival.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveCause
from fairlead.reports.units import Unit
from fairlead.routing.contracts.policies import PoolView, QueuedMove
from fairlead.routing.contracts.requests import QueuedRequest, RoutingRequest

Place = tuple[int, float, str]
"""A sort key of a queue: cached tokens (negated), arrival time, id. A request's key is its position in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedRules:
    """Rules of a migration run. An instance is overloaded if more than `threshold_tokens` are pending, or if its oldest
    request has waited `longest_wait_seconds`. At most `max_examined` queued requests are examined per instance.
    """

    threshold_tokens: float
    longest_wait_seconds: float = 3.0
    max_examined: int = 256


Pair = Callable[[RoutingRequest], Sequence[str]]
"""The two instances that a request's key leads to."""


def coded_moves(
    queues: Mapping[str, Sequence[QueuedRequest]], pair: Pair, view: PoolView, now: float, rules: CodedRules
) -> list[QueuedMove]:
    """Return the moves to make, in order. `queues` maps instances to their queued requests; an instance that is missing
    has an empty queue.
    """
    run = _Run(queues, pair, view, now, rules)
    for instance in queues:
        run.relieve(instance)
    return run.moves


@dataclass(slots=True)
class _Line:
    """A queue in sending order. For each entry, `sums` has the tokens of this entry and all entries before it."""

    entries: list[tuple[Place, QueuedRequest, int]]
    sums: list[int]

    @classmethod
    def of(cls, entries: list[tuple[Place, QueuedRequest, int]]) -> "_Line":
        return cls(entries, list(accumulate(miss for _, _, miss in entries)))

    def ahead(self, place: Place) -> int:
        """Return the tokens of the requests that would be sent before a request with this sort key."""
        index = bisect_left(self.entries, place, key=lambda entry: entry[0])
        return self.sums[index - 1] if index else 0


@dataclass(frozen=True, slots=True)
class _Move:
    """A possible move of the request at `index` of its queue to `target`. TTFTs in seconds."""

    index: int
    target: str
    miss_there: int
    place: Place
    ttft_here: float
    ttft_there: float


class _Run:
    def __init__(self, queues: Mapping[str, Sequence[QueuedRequest]], pair: Pair, view: PoolView, now: float, rules: CodedRules) -> None:
        self.moves: list[QueuedMove] = []
        self._pair = pair
        self._view = view
        self._now = now
        self._rules = rules
        self._speed = view.prefill_speed
        self._names = [load.entry.id for load in view.candidates()]
        self._loads = {load.entry.id: load for load in view.candidates()}
        self._pending = {name: load.pending_prefill_tokens for name, load in self._loads.items()}
        self._queues = queues
        self._lines: dict[str, _Line] = {}

    def relieve(self, source: str) -> None:
        if source not in self._loads or len(self._line(source).entries) < 2 or not self._is_overloaded(source, 0):
            return
        excess, moved, cause = self._pending[source] - self._rules.threshold_tokens, 0, self._cause(source)
        while excess <= 0 or moved < excess:
            best = min(self._possible(source), key=lambda move: (move.ttft_there - move.ttft_here, move.place), default=None)
            if best is None or best.ttft_there >= best.ttft_here:
                return
            moved += self._make(best, source, cause)

    def _possible(self, source: str) -> Iterator["_Move"]:
        """Yield the possible move of each examined request of the queue. A move is possible if its target would not be
        overloaded.
        """
        line, load = self._line(source), self._loads[source]
        for index, (_, queued, _) in enumerate(line.entries[: self._rules.max_examined]):
            found = self._target(queued.request, source)
            if found is None:
                continue
            target, miss, place = found
            ahead_there = self._loads[target].dispatched_prefill_tokens + self._line(target).ahead(place)
            ahead_here = load.dispatched_prefill_tokens + line.sums[index]
            yield _Move(index, target, miss, place, ahead_here / self._speed, (ahead_there + miss) / self._speed)

    def _make(self, move: "_Move", source: str, cause: MoveCause) -> int:
        """Apply the move to this run's copy of the counters, and record the move with its cause. Return the number of
        uncached tokens that left the source.
        """
        entries = self._line(source).entries
        _, queued, miss_here = entries[move.index]
        self._lines[source] = _Line.of([*entries[: move.index], *entries[move.index + 1 :]])
        there = [*self._line(move.target).entries, (move.place, queued, move.miss_there)]
        self._lines[move.target] = _Line.of(sorted(there, key=lambda entry: entry[0]))
        self._pending[source] -= miss_here
        self._pending[move.target] += move.miss_there
        self.moves.append(
            QueuedMove(
                request=queued.request.id,
                source=source,
                target=move.target,
                cause=cause,
                source_ttft_seconds=move.ttft_here,
                target_ttft_seconds=move.ttft_there,
            )
        )
        return miss_here

    def _cause(self, source: str) -> MoveCause:
        """Return the reason why requests must leave the queue: the pending tokens of the instance exceed the threshold,
        or otherwise its oldest request has waited too long.
        """
        pending, threshold = float(self._pending[source]), self._rules.threshold_tokens
        if pending > threshold:
            return MoveCause(trigger=BindingReason.HOTSPOT, crossed=pending, threshold=threshold, unit=Unit.TOKENS)
        oldest = min((queued.request.arrived_at for _, queued, _ in self._line(source).entries), default=self._now)
        return MoveCause(
            trigger=BindingReason.HOTSPOT, crossed=self._now - oldest, threshold=self._rules.longest_wait_seconds, unit=Unit.SECONDS
        )

    def _target(self, request: RoutingRequest, source: str) -> tuple[str, int, Place] | None:
        """Return the instance to which the request may move, the number of the request's tokens that are not cached
        there, and the request's sort key in the queue there; None if no instance may take the request.
        """
        other = next((name for name in self._pair(request) if name != source), source)
        after = self._names[(self._names.index(source) + 1) % len(self._names)]
        if after in (source, other) and other in self._loads:
            after = self._names[(self._names.index(other) + 1) % len(self._names)]
        for name in dict.fromkeys((other, after)):
            if name == source or name not in self._loads:
                continue
            hit = self._view.hit_tokens(request, name)
            miss = max(1, request.prompt_tokens - hit)
            if not self._is_overloaded(name, miss):
                return name, miss, (-hit, request.arrived_at, request.id)
        return None

    def _is_overloaded(self, name: str, more: int) -> bool:
        if self._pending[name] + more > self._rules.threshold_tokens:
            return True
        entries = self._line(name).entries
        oldest = min((queued.request.arrived_at for _, queued, _ in entries), default=self._now)
        return self._now - oldest >= self._rules.longest_wait_seconds

    def _line(self, name: str) -> _Line:
        if name not in self._lines:
            queue = self._queues.get(name, ())
            entries = [
                (
                    (queued.miss_tokens - queued.request.prompt_tokens, queued.request.arrived_at, queued.request.id),
                    queued,
                    queued.miss_tokens,
                )
                for queued in queue
            ]
            self._lines[name] = _Line.of(sorted(entries, key=lambda entry: entry[0]))
        return self._lines[name]
