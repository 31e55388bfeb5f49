"""Builders and a scripted view for routing tests: a test sets only the fields of tables, requests and loads that it is
about.
"""

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.moves import MoveCause
from fairlead.reports.units import Unit
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import FetchSpeed, KeepsHomes, Policy, modelled_fetching
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.vectors import FloatVector, IntVector, PoolVectors, misses
from fairlead.routing.knowledge.prefill_speeds import ENOUGH_PREFILLS
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import (
    EarlyRejectionFacts,
    EngineFacts,
    InstanceEntry,
    ModelledFacts,
    PoolKey,
    PriorityClass,
    RoutingFacts,
    RoutingTable,
    SessionFacts,
    SloFacts,
)

POOL = PoolKey(namespace="default", name="chat")


def entry(name: str, state: InstanceState = InstanceState.SERVING, **changes: Any) -> InstanceEntry:
    """Return the table's entry of an instance; it serves by default."""
    return InstanceEntry(id=name, address=f"{name}:8000", state=state, **changes)


def entries(count: int) -> tuple[InstanceEntry, ...]:
    """Return the entries of `count` serving instances i00, i01, …"""
    return tuple(entry(f"i{index:02d}") for index in range(count))


def table(
    instances: Sequence[InstanceEntry] | int,
    *,
    policy: str = "round-robin",
    parameters: dict[str, Any] | None = None,
    version: int = 1,
    window: int = 1,
    speed: float = 6250.0,
    rejection: EarlyRejectionFacts | None = None,
    slo: SloFacts | None = None,
    session: SessionFacts | None = None,
    kv_cache_tokens: int = 1_198_372,
    block_tokens: int = 512,
    classes: Sequence[PriorityClass] = (),
    **modelled: Any,
) -> RoutingTable:
    """Return a routing table of the pool default/chat; `modelled` are further facts of its engines.

    Its engines prefill 6250 tokens/s, which is 0.00016 s per token, so 31,250 tokens fit the SLO of 5 s.
    """
    engine = EngineFacts(
        type="simulated",
        port=8000,
        prefill_tokens_per_second=speed,
        kv_cache_tokens=kv_cache_tokens,
        block_tokens=block_tokens,
        block_bytes=4 * block_tokens,
        modelled=ModelledFacts(**modelled),
    )
    return RoutingTable(
        pool=POOL,
        uid="u1",
        version=version,
        generation=1,
        model="m",
        engine=engine,
        routing=RoutingFacts(policy=policy, parameters=parameters or {}, prefills_in_flight=window),
        session=session or SessionFacts(),
        slo=slo or SloFacts(),
        early_rejection=rejection or EarlyRejectionFacts(),
        priority_classes=tuple(classes),
        instances=entries(instances) if isinstance(instances, int) else tuple(instances),
    )


def request(
    name: str, tokens: int = 1024, *, blocks: tuple[int, ...] = (), session: str | None = None, at: float = 0.0, streamed: bool = True
) -> RoutingRequest:
    """Return a request. Without blocks, its routing key is derived from its name."""
    first = blocks[0] if blocks else sum(ord(letter) << (8 * (index % 7)) for index, letter in enumerate(name))
    return RoutingRequest(
        id=name, arrived_at=at, prompt_tokens=tokens, blocks=blocks, first_bytes_hash=first, session=session, streamed=streamed
    )


def having_seen(scheduler: PoolScheduler, speed: float | None = None) -> PoolScheduler:
    """Return the scheduler after it has measured the prefill speed of its instances: `speed`, by default the
    table's.
    """
    times, seconds = scheduler._state.prefill_times, 4000 / (speed or scheduler.table.engine.prefill_tokens_per_second)
    for _ in range(ENOUGH_PREFILLS):
        times.observe("seen-before", 4000, 0, seconds, inf)  # never too long ago
    return scheduler


def dispatches(outcomes: Sequence[Dispatch | Refusal]) -> list[Dispatch]:
    """Return the dispatches among the outcomes."""
    return [outcome for outcome in outcomes if isinstance(outcome, Dispatch)]


def refusals(outcomes: Sequence[Dispatch | Refusal]) -> list[Refusal]:
    """Return the refusals among the outcomes."""
    return [outcome for outcome in outcomes if isinstance(outcome, Refusal)]


class ScriptedView:
    """A PoolView whose loads, hits and bindings a test writes. `hits` maps (request, instance) to tokens."""

    def __init__(
        self,
        of: RoutingTable,
        loads: Mapping[str, InstanceLoad],
        hits: Mapping[tuple[str, str], int] | None = None,
        bindings: Mapping[str, Binding] | None = None,
        now: float = 0.0,
        drained: Collection[str] = (),
    ) -> None:
        self.table = of
        self.drained = drained
        self.loads = dict(loads)
        self.hits = dict(hits or {})
        self.bindings = dict(bindings or {})
        self.now = now
        self.load_of_pool = 0.0
        self.told_block_tokens = 0
        self.kept: FloatVector | None = None
        """For each candidate, the cached tokens that are likely to be used again; None if unknown."""
        self.loading: dict[str, float] = {}
        """For each instance, the seconds that it needs to load the blocks that it holds outside its GPU."""

    @property
    def is_tiered(self) -> bool:
        return bool(self.loading)

    def loading_vector(self, request: RoutingRequest) -> FloatVector | None:
        return np.array([self.loading.get(load.entry.id, 0.0) for load in self.candidates()]) if self.loading else None

    def tier_terms(self, request: RoutingRequest, instance: str) -> dict[str, float]:
        return {"load_seconds": self.loading[instance]} if instance in self.loading else {}

    def pool_load(self) -> float:
        return self.load_of_pool

    def fetching(self, request: RoutingRequest) -> FetchSpeed | None:
        return modelled_fetching(self.table.engine.modelled)

    def candidates(self) -> Sequence[InstanceLoad]:
        return [self.loads[name] for name in sorted(self.loads) if self.loads[name].is_candidate(self.now)]

    def decode_candidates(self) -> Sequence[InstanceLoad]:
        able = [self.loads[name] for name in sorted(self.loads) if self.loads[name].takes_decodes(self.now)]
        return [load for load in able if load.entry.role is Role.DECODE] or able

    def overtaken_seconds(self, request: RoutingRequest) -> FloatVector | None:
        return None

    def load(self, instance: str) -> InstanceLoad | None:
        return self.loads.get(instance)

    def has_drained(self, instance: str) -> bool:
        return instance in self.drained

    def vectors(self) -> PoolVectors:
        return PoolVectors.of(self.candidates(), self.table.engine.kv_cache_tokens)

    def hit_vector(self, asked: RoutingRequest) -> IntVector:
        hits = self.hit_tokens_everywhere(asked)
        return np.array([hits.get(load.entry.id, 0) for load in self.candidates()], dtype=np.int64)

    def ttft_vector(self, asked: RoutingRequest, hits: IntVector) -> FloatVector:
        vectors = self.vectors()
        seconds = (vectors.pending + misses(asked.prompt_tokens, hits)) / self.table.engine.prefill_tokens_per_second
        return seconds + self._loads(asked) - vectors.done_seconds(self.now)

    def _loads(self, asked: RoutingRequest) -> FloatVector | float:
        loading = self.loading_vector(asked)
        return 0.0 if loading is None else loading

    def prefill_vector(self, asked: RoutingRequest, hits: IntVector) -> FloatVector:
        return misses(asked.prompt_tokens, hits) / self.table.engine.prefill_tokens_per_second + self._loads(asked)

    def prefill_seconds(self, asked: RoutingRequest, hit_tokens: int) -> float:
        return max(1, asked.prompt_tokens - hit_tokens) / self.table.engine.prefill_tokens_per_second

    @property
    def prefill_speed(self) -> float:
        return self.table.engine.prefill_tokens_per_second

    def tokens_within(self, seconds: float) -> float:
        return seconds * self.prefill_speed

    def block_tokens(self, request: RoutingRequest) -> int:
        return (self.told_block_tokens if request.engine_blocks else 0) or self.table.engine.block_tokens

    def decode_seconds(self, context_tokens: float, requests: float) -> float:
        return self.table.engine.modelled.decode_seconds(context_tokens, requests)

    def step_seconds(self, load: InstanceLoad) -> float:
        return self.decode_seconds(load.decode_tokens, load.decoding)

    def leanings(self, request: RoutingRequest, most_held: int) -> FloatVector | None:
        return None

    def kept_tokens(self) -> FloatVector | None:
        return self.kept

    def hit_tokens(self, asked: RoutingRequest, instance: str) -> int:
        return max(0, min(self.hits.get((asked.id, instance), 0), asked.prompt_tokens - 1))

    def hit_tokens_everywhere(self, asked: RoutingRequest) -> Mapping[str, int]:
        return {name: hit for name in self.loads if (hit := self.hit_tokens(asked, name))}

    def predicted_ttft_seconds(self, asked: RoutingRequest, instance: str) -> float:
        miss = max(1, asked.prompt_tokens - self.hit_tokens(asked, instance))
        load = self.loads[instance]
        return (load.pending_prefill_tokens + miss) / self.table.engine.prefill_tokens_per_second - load.done_seconds(self.now)

    def binding(self, session: str) -> Binding | None:
        return self.bindings.get(session)


def view_over(loads: Sequence[InstanceLoad], hits: Mapping[str, int] | None = None, **table_facts: Any) -> ScriptedView:
    """Return a view of these loads for the request `r`; `hits` are the request's cached tokens by instance."""
    of = table([load.entry for load in loads], **table_facts)
    return ScriptedView(of, {load.entry.id: load for load in loads}, {("r", name): tokens for name, tokens in (hits or {}).items()})


def load_of(name: str, *, requests: int = 0, pending: int = 0, **counters: Any) -> InstanceLoad:
    """Return the load of an instance with `requests` decoding requests and `pending` prompt tokens to prefill."""
    return InstanceLoad(entry=entry(name), decoding=requests, pending_prefill_tokens=pending, **counters)


def left(policy: Policy, asked: RoutingRequest, view: ScriptedView, now: float = 0.0) -> MoveCause | None:
    """Return the reason for which the policy sends the request away from its session's home; None if it chooses the
    home.
    """
    decision = policy.choose(asked, view, now)
    home = view.binding(decision.session or asked.session or "")
    assert home is not None
    assert isinstance(policy, KeepsHomes)
    return None if home.instance == decision.instance else policy.cause_to_leave(asked, home, decision.weigh(), view, now)


def cause(trigger: str, crossed: float | None = None, limit: float | None = None, unit: str | None = None) -> MoveCause:
    """Return a move's cause from plain strings."""
    return MoveCause(trigger=BindingReason(trigger), crossed=crossed, threshold=limit, unit=None if unit is None else Unit(unit))
