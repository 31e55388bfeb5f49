"""What the scheduler is told and what it answered, as a log: to prove that a second scheduler decides alike from the same observations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.routing.protocols import Dispatch, Refusal, RoutingRequest
from fairlead.routing.scheduler import PoolScheduler
from fairlead.tables import RoutingTable

Outcome = Dispatch | Refusal


@dataclass(frozen=True, slots=True)
class Observation:
    """One call of a scheduler's method with its arguments, and what it answered."""

    method: str
    arguments: tuple[Any, ...]
    answer: tuple[Outcome, ...]


class ObservedScheduler:
    """The part of a `PoolScheduler` a simulation drives, with every call kept in `log` when `keep` is set."""

    __slots__ = ("_keep", "log", "scheduler")

    def __init__(self, scheduler: PoolScheduler, keep: bool = False) -> None:
        self.scheduler = scheduler
        self._keep = keep
        self.log: list[Observation] = []

    def submit(self, request: RoutingRequest, now: float) -> tuple[Outcome, ...]:
        return self._kept("submit", (request, now), self.scheduler.submit(request, now))

    def tick(self, now: float) -> tuple[Outcome, ...]:
        return self._kept("tick", (now,), self.scheduler.tick(now))

    def first_token(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        return self._kept("first_token", (request_id, now), self.scheduler.first_token(request_id, now))

    def complete(self, request_id: str, now: float, output_tokens: int, cached_tokens: int | None) -> tuple[Outcome, ...]:
        answer = self.scheduler.complete(request_id, now, output_tokens, cached_tokens)
        return self._kept("complete", (request_id, now, output_tokens, cached_tokens), answer)

    def retry(self, request_id: str, now: float, failed_instance: str) -> tuple[Outcome, ...]:
        return self._kept("retry", (request_id, now, failed_instance), (self.scheduler.retry(request_id, now, failed_instance),))

    def fail(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        return self._kept("fail", (request_id, now), self.scheduler.fail(request_id, now))

    def instance_failed(self, instance: str, now: float) -> None:
        self.scheduler.instance_failed(instance, now)
        self._kept("instance_failed", (instance, now), ())

    def observe_engine(self, instance: str, kv_usage: float | None, now: float) -> None:
        self.scheduler.observe_engine(instance, kv_usage, now)
        self._kept("observe_engine", (instance, kv_usage, now), ())

    def transferred(self, request_id: str, now: float) -> None:
        self.scheduler.transferred(request_id, now)
        self._kept("transferred", (request_id, now), ())

    def update_table(self, table: RoutingTable, now: float) -> tuple[Outcome, ...]:
        return self._kept("update_table", (table, now), self.scheduler.update_table(table, now))

    def _kept(self, method: str, arguments: tuple[Any, ...], answer: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        if self._keep:
            self.log.append(Observation(method, arguments, answer))
        return answer


def replay_observations(log: Sequence[Observation], scheduler: PoolScheduler) -> int | None:
    """Tell another scheduler the same; returns the position of the first call answered differently, None when all agree."""
    for position, observation in enumerate(log):
        answer = getattr(scheduler, observation.method)(*observation.arguments)
        found = answer if isinstance(answer, tuple) else () if answer is None else (answer,)
        if found != observation.answer:
            return position
    return None
