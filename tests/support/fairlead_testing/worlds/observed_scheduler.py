"""A scheduler that logs its calls and answers, to prove that a second scheduler gives the same answers to the same
calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.reports.moves import CacheTransfer
from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import RoutingTable

Answer = Dispatch | Refusal


@dataclass(frozen=True, slots=True)
class Observation:
    """A call of a scheduler's method with its arguments and its answer."""

    method: str
    arguments: tuple[Any, ...]
    answer: tuple[Answer, ...]


class ObservedScheduler(SharedScheduler):
    """A scheduler that keeps every call of a simulation, with its answer, in `log`."""

    log: list[Observation]

    def submit(self, request: RoutingRequest, now: float) -> tuple[Answer, ...]:
        return self._kept("submit", (request, now), super().submit(request, now))

    def tick(self, now: float) -> tuple[Answer, ...]:
        return self._kept("tick", (now,), super().tick(now))

    def first_token(self, request_id: str, now: float) -> tuple[Answer, ...]:
        return self._kept("first_token", (request_id, now), super().first_token(request_id, now))

    def complete(self, request_id: str, now: float, output_tokens: int, cached_tokens: int | None) -> tuple[Answer, ...]:
        answer = super().complete(request_id, now, output_tokens, cached_tokens)
        return self._kept("complete", (request_id, now, output_tokens, cached_tokens), answer)

    def retry(self, request_id: str, now: float, failed_instance: str, *, reached: bool = True, to: str | None = None) -> Answer:
        answer = super().retry(request_id, now, failed_instance, reached=reached, to=to)
        self._kept("retry", (request_id, now, failed_instance), (answer,))
        return answer

    def fail(self, request_id: str, now: float) -> tuple[Answer, ...]:
        return self._kept("fail", (request_id, now), super().fail(request_id, now))

    def instance_failed(self, instance: str, now: float, fault: Fault = Fault.UNREACHED, request_id: str | None = None) -> None:
        super().instance_failed(instance, now, fault, request_id)
        self._kept("instance_failed", (instance, now, fault, request_id), ())

    def observe_engine(self, target: str, kv_usage: float | None, now: float, waiting: int | None = None) -> None:
        super().observe_engine(target, kv_usage, now, waiting)
        self._kept("observe_engine", (target, kv_usage, now, waiting), ())

    def transferred(self, request_id: str, now: float, transfer: CacheTransfer | None = None) -> None:
        super().transferred(request_id, now, transfer)
        self._kept("transferred", (request_id, now, transfer), ())

    def generated(self, request_id: str, now: float, output_tokens: int) -> None:
        super().generated(request_id, now, output_tokens)
        self._kept("generated", (request_id, now, output_tokens), ())

    def update_table(self, table: RoutingTable, now: float) -> tuple[Answer, ...]:
        return self._kept("update_table", (table, now), super().update_table(table, now))

    def _kept(self, method: str, arguments: tuple[Any, ...], answer: tuple[Answer, ...]) -> tuple[Answer, ...]:
        self.log.append(Observation(method, arguments, answer))
        return answer


def observed_scheduler(table: RoutingTable, router_id: str, seed: int) -> ObservedScheduler:
    """Return a scheduler of `table` with an empty log."""
    scheduler = ObservedScheduler(table, router_id, seed, sample_rate=0.0)
    scheduler.log = []
    return scheduler


def replay_observations(log: Sequence[Observation], scheduler: PoolScheduler) -> int | None:
    """Make the logged calls of another scheduler. Return the position of the first different answer, or None if all
    agree.
    """
    for position, observation in enumerate(log):
        answer = getattr(scheduler, observation.method)(*observation.arguments)
        found = answer if isinstance(answer, tuple) else () if answer is None else (answer,)
        if found != observation.answer:
            return position
    return None
