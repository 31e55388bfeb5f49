"""A pool of ideal instances on a virtual clock. It drives a scheduler with arrivals and serves its dispatches at the
prefill speed of the table, or at a different true speed.

An instance prefills one request at a time at that speed, and decodes without slowing down. Its real cache is an LRU of
blocks.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.knowledge.prefixes import PrefixIndex, block_hashes
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import RoutingTable


@dataclass
class PoolRun:
    """The result of a run: TTFT of each served request, refusals, and really cached and prompt tokens."""

    ttft: dict[str, float] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    placed: dict[str, str] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float:
        """Return the cached share of all prompt tokens (0-1)."""
        return self.cached_tokens / self.prompt_tokens

    def attainment(self, slo_seconds: float) -> float:
        """Return the share of all requests, including refused ones, with a TTFT below the SLO."""
        return sum(ttft < slo_seconds for ttft in self.ttft.values()) / (len(self.ttft) + len(self.refused))


class VirtualPool:
    """Runs one scheduler to the end of its requests."""

    def __init__(self, scheduler: PoolScheduler, decode_seconds: float = 2.0, speed: float | None = None) -> None:
        self.scheduler = scheduler
        self._speed = scheduler.table.engine.prefill_tokens_per_second if speed is None else speed
        self.result = PoolRun()
        self._decode_seconds = decode_seconds
        self._caches = PrefixIndex(scheduler.table.engine.kv_cache_tokens // scheduler.table.engine.block_tokens)
        self._free_at: dict[str, float] = {}
        self._events: list[tuple[float, int, str, str]] = []
        self._requests: dict[str, Dispatch] = {}
        self._sequence = 0

    def run(self, requests: Sequence[RoutingRequest], tables: Sequence[tuple[float, RoutingTable]] = ()) -> PoolRun:
        """Submit each request at its arrival and each table at its time; return the result when nothing is in
        flight.
        """
        arrivals = {request.id: request for request in requests}
        versions = {str(table.version): table for _, table in tables}
        for request in requests:
            self._at(request.arrived_at, "arrival", request.id)
        for at, table in tables:
            self._at(at, "table", str(table.version))
        open_ids = set(arrivals)
        tick_at = 0.0
        while self._events:
            now, _, kind, name = heappop(self._events)
            if kind == "arrival":
                self._see(self.scheduler.submit(arrivals[name], now), now)
            elif kind == "table":
                self._see(self.scheduler.update_table(versions[name], now), now)
            elif kind == "first":
                self._caches.insert(self._requests[name].instance, self._requests[name].request.blocks)
                self.result.ttft[name] = now - arrivals[name].arrived_at
                self._see(self.scheduler.first_token(name, now), now)
            elif kind == "done":
                open_ids.discard(name)
                self._see(self.scheduler.complete(name, now, 100, None), now)
            if now >= tick_at:
                tick_at = now + 0.05
                self._see(self.scheduler.tick(now), now)
            if self.scheduler.waiting() and not any(event[2] == "tick" for event in self._events[:3]):
                self._at(now + 0.05, "tick", "")
        assert len(self.result.ttft) + len(self.result.refused) == len(requests), "every request is served or refused"
        assert self.scheduler.discrepancies() == ()
        return self.result

    def _see(self, outcomes: Sequence[Dispatch | Refusal], now: float) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Refusal):
                self.result.refused.append(outcome)
                continue
            request, instance = outcome.request, outcome.instance
            self._requests[request.id] = outcome
            self.result.placed[request.id] = instance
            block_tokens = self.scheduler.table.engine.block_tokens
            cached = min(self._caches.match(instance, request.blocks) * block_tokens, request.prompt_tokens - 1)
            self.result.prompt_tokens += request.prompt_tokens
            self.result.cached_tokens += cached
            start = max(now, self._free_at.get(instance, 0.0))
            first = start + (request.prompt_tokens - cached) / self._speed
            self._free_at[instance] = first
            self._at(first, "first", request.id)
            self._at(first + self._decode_seconds, "done", request.id)

    def _at(self, time: float, kind: str, name: str) -> None:
        self._sequence += 1
        heappush(self._events, (time, self._sequence, kind, name))


def conversations(count: int, rate: float, seed: int, *, turns: int = 6, live: int = 60) -> list[RoutingRequest]:
    """Return requests of conversations that begin with the same system block and grow by 1-4 blocks of 512 tokens a
    turn.

    Arrivals are a Poisson process of `rate` requests per second.
    """
    source = random.Random(seed)
    histories: list[tuple[str, list[int]]] = []
    requests: list[RoutingRequest] = []
    now = 0.0
    for number in range(count):
        now += source.expovariate(rate)
        if len(histories) < live or source.random() < 1 / turns:
            histories.append((f"s{number}", [0, *(source.getrandbits(32) for _ in range(source.randint(4, 16)))]))
            if len(histories) > live:
                histories.pop(0)
            session, history = histories[-1]
        else:
            session, history = source.choice(histories)
            history.extend(source.getrandbits(32) for _ in range(source.randint(1, 4)))
        blocks = block_hashes(b"".join(label.to_bytes(4, "little") for label in history), 4)
        requests.append(
            RoutingRequest(
                id=f"r{number}",
                arrived_at=now,
                prompt_tokens=512 * len(blocks) + source.randint(0, 511),
                blocks=blocks,
                first_bytes_hash=0,
                session=session,
            )
        )
    return requests
