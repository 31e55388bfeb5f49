"""DualMap's batch migration: which queued requests of overloaded instances go to the other instance of their pair (sections 1.5 and 1.6).

One run plans on copies of the counters, so that each move sees the ones before it. A request moves at most once per run, only within its pair, only
to where it is predicted to meet the SLO, and only while some request left behind is predicted to miss it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.routing.protocols import InstanceLoad, PoolView, QueuedMove, QueuedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRules:
    """TTFT SLO; how long without a first token is a decode bottleneck; how many queued requests of an instance are examined."""

    slo_seconds: float
    bottleneck_seconds: float = 3.0
    max_examined: int = 256


def plan_moves(
    overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float, rules: MigrationRules
) -> tuple[QueuedMove, ...]:
    """Moves to make, in order. `queues` hold requests in the order they will be sent."""
    run = _Run(view, now, rules)
    for instance in overloaded:
        run.relieve(instance, queues.get(instance, ()))
    return tuple(run.moves)


def decode_delay_seconds(load: InstanceLoad, now: float, bottleneck_seconds: float, speed: float) -> float:
    """Time to add to every TTFT prediction of an instance whose prefills are held up by decodes, else 0.

    That is the time since its last first token (or since it got work, if later), when it has queued work and the time exceeds both the bottleneck
    time and what the prefills in flight should take.
    """
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
        self._speed = view.table.engine.prefill_tokens_per_second
        self._arrived: dict[str, int] = {}
        """Tokens planned to arrive at each instance in this run, and (negative) to leave it."""
        self._moved: set[str] = set()

    def relieve(self, instance: str, queue: Sequence[QueuedRequest]) -> None:
        load = self._view.load(instance)
        if load is None:
            return
        delay = decode_delay_seconds(load, self._now, self._rules.bottleneck_seconds, self._speed)
        left = [queued for queued in queue[: self._rules.max_examined] if queued.request.id not in self._moved]
        if not self._too_late(left, load, delay):
            return
        targets = {queued.request.id: self._target(queued) for queued in left}
        while self._too_late(left, load, delay):
            move = self._best_move(left, load, delay, targets)
            if move is None:
                return
            self.moves.append(move)
            self._moved.add(move.request)
            index = next(index for index, queued in enumerate(left) if queued.request.id == move.request)
            queued = left.pop(index)
            target = targets[move.request]
            assert target is not None
            self._arrived[instance] = self._arrived.get(instance, 0) - queued.miss_tokens
            self._arrived[move.target] = self._arrived.get(move.target, 0) + target[1]

    def _too_late(self, left: Sequence[QueuedRequest], load: InstanceLoad, delay: float) -> bool:
        if not left:
            return False
        tokens = load.dispatched_prefill_tokens + sum(queued.miss_tokens for queued in left)
        return delay + tokens / self._speed >= self._rules.slo_seconds

    def _target(self, queued: QueuedRequest) -> tuple[InstanceLoad, int] | None:
        """The other instance of the pair, if it can take requests, and the request's uncached tokens there."""
        if queued.alternate is None or queued.alternate == queued.instance:
            return None
        load = self._view.load(queued.alternate)
        if load is None or not load.is_candidate(self._now):
            return None
        return load, max(1, queued.request.prompt_tokens - self._view.hit_tokens(queued.request, queued.alternate))

    def _best_move(
        self,
        left: Sequence[QueuedRequest],
        load: InstanceLoad,
        delay: float,
        targets: Mapping[str, tuple[InstanceLoad, int] | None],
    ) -> QueuedMove | None:
        ahead = load.dispatched_prefill_tokens
        best: QueuedMove | None = None
        best_rank: tuple[float, float] | None = None
        delays: dict[str, float] = {}
        for queued in left:
            ahead += queued.miss_tokens
            target = targets[queued.request.id]
            if target is None:
                continue
            there, miss = target
            name = there.entry.id
            if name not in delays:
                delays[name] = decode_delay_seconds(there, self._now, self._rules.bottleneck_seconds, self._speed)
            source_ttft = delay + ahead / self._speed
            pending = there.pending_prefill_tokens + self._arrived.get(name, 0)
            target_ttft = delays[name] + (pending + miss) / self._speed
            benefit = source_ttft - target_ttft
            if benefit <= 0 or target_ttft >= self._rules.slo_seconds:
                continue
            rank = (-benefit, queued.request.arrived_at)
            if best_rank is None or rank < best_rank:
                best_rank = rank
                best = QueuedMove(
                    request=queued.request.id,
                    source=queued.instance,
                    target=name,
                    source_ttft_seconds=source_ttft,
                    target_ttft_seconds=target_ttft,
                )
        return best
