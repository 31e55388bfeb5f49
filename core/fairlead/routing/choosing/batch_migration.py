"""DualMap's batch migration: plans which queued requests of overloaded instances move to the other instance of their
pair (sections 1.5 and 1.6 of the paper).

One run plans on copies of the counters, so that each move takes the earlier moves of the run into account. A request
moves at most once per run and only within its pair. It moves only to an instance on which it is predicted to meet the
SLO. Requests leave a queue only while some request that stays there is predicted to miss the SLO.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveCause
from fairlead.reports.units import Unit
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView, QueuedMove
from fairlead.routing.contracts.requests import QueuedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRules:
    """Rules of a migration run. `slo_seconds` is the TTFT SLO. An instance without a first token for
    `bottleneck_seconds` counts as delayed by its decodes (infinite = never). At most `max_examined` queued requests are
    examined per instance.
    """

    slo_seconds: float
    bottleneck_seconds: float = inf
    max_examined: int = 256


def plan_moves(
    overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float, rules: MigrationRules
) -> tuple[QueuedMove, ...]:
    """Return the moves to make, in order.

    `queues` holds each instance's requests in the order in which they will be sent. A queue is examined only if a move
    from it could help.
    """
    run = _Run(view, now, rules)
    if run.can_move_any():
        for instance in overloaded:
            run.relieve(instance, queues)
    return tuple(run.moves)


def decode_delay_seconds(load: InstanceLoad, now: float, bottleneck_seconds: float, speed: float) -> float:
    """Return the seconds to add to each TTFT prediction of an instance whose prefills are delayed by decodes; 0 without
    a delay.

    The delay is the time since the instance's last first token or, if that was later, since the instance last got work.
    It counts only if the instance has queued work. It must also exceed both the bottleneck time and the predicted time
    of the prefills in flight.
    """
    if bottleneck_seconds == inf:
        return 0.0
    if not load.waiting or load.prefilling_since is None:
        return 0.0
    since = load.prefilling_since if load.last_first_token_at is None else max(load.last_first_token_at, load.prefilling_since)
    interval = now - since
    expected = load.dispatched_prefill_tokens / speed
    return interval if interval > max(bottleneck_seconds, expected) else 0.0


class _Run:
    def __init__(self, view: PoolView, now: float, rules: MigrationRules) -> None:
        self.moves: list[QueuedMove] = []
        self._view = view
        self._now = now
        self._rules = rules
        self._speed = view.prefill_speed
        self._arrived: dict[str, int] = {}
        """Net change of each instance's pending tokens by the moves planned so far: tokens moved there minus tokens
        moved away.
        """
        self._relieved: set[str] = set()
        self._moved: set[str] = set()

    def can_move_any(self) -> bool:
        """Return whether some instance is predicted to compute at least one further token within the SLO. If there is
        no such instance, the run examines no queue.
        """
        least = min([load.pending_prefill_tokens for load in self._view.candidates()], default=None)
        return least is not None and self._seconds(least + 1) < self._rules.slo_seconds

    def relieve(self, instance: str, queues: Mapping[str, Sequence[QueuedRequest]]) -> None:
        load = self._view.load(instance)
        if load is None:
            return
        delay = self._delay(load)
        if delay + self._seconds(load.pending_prefill_tokens) < self._rules.slo_seconds:
            return  # all that waits there is in time
        again = instance in self._relieved
        self._relieved.add(instance)
        queue = queues.get(instance, ())[: self._rules.max_examined]
        if again:
            queue = [queued for queued in queue if queued.request.id not in self._moved]
        tokens = load.dispatched_prefill_tokens + sum([queued.miss_tokens for queued in queue])
        if not queue or not self._too_late(delay, tokens):
            return
        movable = self._movable(queue, load, delay)
        left = len(queue)
        while left and self._too_late(delay, tokens):
            best = self._best(movable, delay)
            if best is None:
                return
            moved = movable.pop(best)
            tokens -= moved.queued.miss_tokens
            for behind in movable[best:]:
                behind.ahead -= moved.queued.miss_tokens
            left -= 1
            self._make(moved, instance, delay, delay + self._seconds(tokens + moved.queued.miss_tokens))

    def _movable(self, queue: Sequence[QueuedRequest], load: InstanceLoad, delay: float) -> list["_Movable"]:
        """Return the queued requests, in queue order, that would meet the SLO on the other instance of their pair and
        get their first token there earlier.

        A move shortens only this instance's queue and adds pending work only to the other instance. So no further
        request can become movable during the run.
        """
        targets: dict[str, tuple[InstanceLoad, float, float] | None] = {}
        movable: list[_Movable] = []
        ahead = load.dispatched_prefill_tokens
        for queued in queue:
            ahead += queued.miss_tokens
            name = queued.alternate
            if name is None:
                continue
            if name not in targets:
                targets[name] = self._target(name, queued.instance)
            target = targets[name]
            if target is None:
                continue
            there, delay_there, soonest = target
            if delay + self._seconds(ahead) - soonest > 0:
                miss = max(1, queued.request.prompt_tokens - self._view.hit_tokens(queued.request, name))
                movable.append(_Movable(queued, ahead, there, delay_there, miss))
        return movable

    def _target(self, name: str, source: str) -> tuple[InstanceLoad, float, float] | None:
        """Return the instance `name`, its decode delay, and the TTFT predicted there for a request of one token. None
        if even such a request would miss the SLO there, or if the instance accepts no requests.
        """
        load = self._view.load(name)
        if name == source or load is None or not load.is_candidate(self._now):
            return None
        delay = self._delay(load)
        soonest = delay + self._seconds(self._pending(load) + 1)
        return (load, delay, soonest) if soonest < self._rules.slo_seconds else None

    def _best(self, movable: Sequence["_Movable"], delay: float) -> int | None:
        """Return the index of the move with the largest benefit. Ties go to the earliest arrival, then to the lowest
        index. None if there are no moves.
        """
        best: int | None = None
        best_rank = (0.0, 0.0)
        for place, one in enumerate(movable):
            ttft_there = self._ttft_there(one)
            benefit = delay + self._seconds(one.ahead) - ttft_there
            if benefit <= 0 or ttft_there >= self._rules.slo_seconds:
                continue
            rank = (-benefit, one.queued.request.arrived_at)
            if best is None or rank < best_rank:
                best, best_rank = place, rank
        return best

    def _make(self, moved: "_Movable", source: str, delay: float, too_late: float) -> None:
        target, request = moved.there.entry.id, moved.queued.request.id
        self.moves.append(
            QueuedMove(
                request=request,
                source=moved.queued.instance,
                target=target,
                cause=MoveCause(trigger=BindingReason.HOTSPOT, crossed=too_late, threshold=self._rules.slo_seconds, unit=Unit.SECONDS),
                source_ttft_seconds=delay + self._seconds(moved.ahead),
                target_ttft_seconds=self._ttft_there(moved),
            )
        )
        self._moved.add(request)
        self._arrived[source] = self._arrived.get(source, 0) - moved.queued.miss_tokens
        self._arrived[target] = self._arrived.get(target, 0) + moved.miss_there

    def _too_late(self, delay: float, tokens: int) -> bool:
        return delay + self._seconds(tokens) >= self._rules.slo_seconds

    def _ttft_there(self, one: "_Movable") -> float:
        return one.delay_there + self._seconds(self._pending(one.there) + one.miss_there)

    def _pending(self, load: InstanceLoad) -> int:
        return load.pending_prefill_tokens + self._arrived.get(load.entry.id, 0)

    def _delay(self, load: InstanceLoad) -> float:
        return decode_delay_seconds(load, self._now, self._rules.bottleneck_seconds, self._speed)

    def _seconds(self, tokens: int) -> float:
        return tokens / self._speed


@dataclass(slots=True)
class _Movable:
    """A queued request that may be moved. `ahead` is the number of tokens that its present instance must compute before
    the request's first token, including the tokens of the request.
    """

    queued: QueuedRequest
    ahead: int
    there: InstanceLoad
    delay_there: float
    miss_there: int
