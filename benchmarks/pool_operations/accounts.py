"""The cost of each operation for the users of its pool, from their own measurements and the stored record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from benchmarks.pool_operations.loaded_pools import LoadedPool
from benchmarks.pool_operations.operations import Loss, Operation
from benchmarks.pool_operations.work import Work

from fairlead_simulator.replay.outcomes import ReplayVerdict, RequestOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRate:
    """Three numbers of prompt tokens of some requests: all tokens, the cached tokens, and the tokens that an endless
    shared cache would have held.
    """

    prompt_tokens: int
    cached_tokens: int
    ideal_tokens: int

    @property
    def share(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def of_ideal(self) -> float:
        return self.cached_tokens / self.ideal_tokens if self.ideal_tokens else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of an operation. Counts cover the time from its beginning until the pool's next operation begins."""

    operation: Operation
    requests: int
    failed: tuple[RequestOutcome, ...]
    refused: int
    moved: Counter[str]
    """Number of moves of sessions, by the cause of the move. A session that moved several times counts several times.
    """
    bounced: int
    """Number of sessions that returned to an instance that they had left."""
    before: HitRate
    """The hit rate of a window before the operation."""
    after: HitRate
    """The hit rate of a window from the operation's begin on, which includes the misses that it causes."""

    @property
    def kept(self) -> float:
        """The hit rate after the operation, divided by the hit rate before it; 0 if the hit rate before it was 0."""
        return self.after.share / self.before.share if self.before.share else 0.0

    @property
    def kept_of_ideal(self) -> float:
        """The share of the ideal hit rate after the operation, divided by the share before it; 0 if the share before it
        was 0. Differences between the prompts of the two windows do not affect it.
        """
        return self.after.of_ideal / self.before.of_ideal if self.before.of_ideal else 0.0


def costs_of(pool: LoadedPool, work: Work, operations: Sequence[Operation], window: float) -> list[Cost]:
    """Return the costs of all operations on the pool, in order."""
    own = [operation for operation in operations if operation.pool == pool.name]
    moves = pool.sandbox.everything("/v1/migrations", pool=f"default/{pool.name}")
    ends = [*(operation.begun for operation in own[1:]), float("inf")][: len(own)]
    return [_cost(pool.served, work, operation, end, moves, window) for operation, end in zip(own, ends, strict=True)]


def _cost(
    served: Sequence[RequestOutcome], work: Work, operation: Operation, end: float, moves: Iterable[dict[str, Any]], window: float
) -> Cost:
    began = operation.unix - operation.begun
    inside = [move for move in moves if operation.begun <= _unix(move["at"]) - began < end]
    ended = [one for one in served if one.ended_seconds is not None and operation.begun <= one.ended_seconds < end]
    return Cost(
        operation=operation,
        requests=sum(operation.begun <= one.due_seconds < end for one in served),
        failed=tuple(one for one in ended if one.verdict is ReplayVerdict.FAILED),
        refused=sum(one.verdict is ReplayVerdict.REJECTED for one in ended),
        moved=Counter(move["trigger"] for move in inside),
        bounced=_bounced(inside),
        before=hit_rate(served, work, operation.begun - window, operation.begun),
        after=hit_rate(served, work, operation.begun, operation.begun + window),
    )


def hit_rate(served: Iterable[RequestOutcome], work: Work, begin: float, end: float) -> HitRate:
    """Return the hit rate of the served requests that were due in [begin, end).

    Cached tokens beyond those of an endless cache do not count, because an answer that continues at another instance
    can find its own prompt cached there.
    """
    found = [one for one in served if begin <= one.due_seconds < end and one.verdict is ReplayVerdict.SERVED]
    return HitRate(
        prompt_tokens=sum(one.prompt_tokens or 0 for one in found),
        cached_tokens=sum(min(one.cached_tokens or 0, work.ideal[one.index]) for one in found),
        ideal_tokens=sum(work.ideal[one.index] for one in found),
    )


def lost_answers(failed: Iterable[RequestOutcome], loss: Loss | None) -> tuple[list[RequestOutcome], list[RequestOutcome]]:
    """Return the failed requests in two lists. The first has the requests whose answers broke off because their
    instance was lost. The second has all others.

    A request without any byte of its answer is in the second list, because it could have been retried.
    """
    cut: list[RequestOutcome] = []
    others: list[RequestOutcome] = []
    for one in failed:
        instance = one.decode or one.instance
        in_flight = loss is not None and instance in loss.instances and one.due_seconds + one.lag_seconds <= loss.seconds
        (cut if in_flight and one.status == 200 else others).append(one)
    return cut, others


def _bounced(moves: Iterable[dict[str, Any]]) -> int:
    left: dict[str, set[str]] = {}
    back: set[str] = set()
    for move in sorted(moves, key=lambda move: str(move["at"])):
        left.setdefault(move["session"], set()).add(move["source"])
        if move["target"] in left[move["session"]]:
            back.add(move["session"])
    return len(back)


def _unix(stamp: str) -> float:
    return datetime.fromisoformat(stamp).astimezone(UTC).timestamp()


def by_window(served: Sequence[RequestOutcome], work: Work, window: float) -> list[tuple[float, HitRate]]:
    """Return the begin and the hit rate of each window of the whole run."""
    last = max((one.due_seconds for one in served), default=0.0)
    edges = [window * number for number in range(int(last / window) + 2)]
    return [(begin, hit_rate(served, work, begin, end)) for begin, end in pairwise(edges)]
