"""The live view on which policies base their choices: the present loads, prefix index and bindings.

The scheduler sets `now` before each use.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf

import numpy as np

from fairlead.instances import Role
from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.sources import NOTHING_SLOW, SLOW, TierCounts
from fairlead.reports.bindings import Binding
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import FetchSpeed, modelled_fetching
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.rests import among_others
from fairlead.routing.contracts.vectors import FloatVector, IntVector, Overtaking, PoolVectors, misses
from fairlead.routing.knowledge.bindings import SessionBindings
from fairlead.routing.knowledge.estimators import DecodeTimes, PrefillTimes
from fairlead.routing.knowledge.kept_contexts import KeptContexts
from fairlead.routing.knowledge.load_times import LoadTimes
from fairlead.routing.knowledge.parts import OF_ANOTHER, home_key, home_of, part_of, seed_of
from fairlead.routing.knowledge.pool_load import OfferedPrefills, decode_share
from fairlead.routing.knowledge.prefixes import PrefixIndex
from fairlead.routing.knowledge.told_prompts import ToldPrompts
from fairlead.routing.knowledge.transfer_times import TransferTimes
from fairlead.slot_masks import SlotPlaces
from fairlead.tables import RoutingTable
from fairlead.targets import instance_of


class LiveView:
    """A `PoolView` over the scheduler's own objects. Candidates and their vectors are cached until a circuit or the
    table changes.
    """

    def __init__(
        self,
        table: RoutingTable,
        loads: Mapping[str, InstanceLoad],
        prefixes: PrefixIndex,
        caches: EngineCaches,
        bindings: SessionBindings,
        changed: set[str],
        prefill_times: PrefillTimes,
        decode_times: DecodeTimes,
        transfer_times: TransferTimes,
        load_times: LoadTimes,
        drained: Collection[str] = (),
        within: Collection[str] | None = None,
    ) -> None:
        self._loads = loads
        self._within = within
        self._bindings = bindings
        self._drained = drained
        self._changed = changed
        """Instances whose counters changed after the vectors were last read. The set is emptied when the vectors are
        read.
        """
        self._candidates: tuple[InstanceLoad, ...] | None = None
        self._decode_candidates: tuple[InstanceLoad, ...] = ()
        self._valid_until = 0.0
        self._vectors: PoolVectors | None = None
        self._ids: tuple[str, ...] = ()
        self._places: dict[str, int] = {}
        self._places_of_slots = SlotPlaces(np.zeros(0, dtype=np.int64))
        self._slots_version = -1
        self.prefixes = prefixes
        self.caches = caches
        self.prefill_times = prefill_times
        self.decode_times = decode_times
        self.transfer_times = transfer_times
        self.load_times = load_times
        self.is_tiered = False
        """See `PoolView.is_tiered`. The value is updated whenever hits are looked up; a look-up precedes each
        prediction.
        """
        self.stored: PrefixIndex | None = None
        """The prefixes in the store that all engines read. This router knows them because their prompts were computed.
        None without such a store. If KV events report the store's blocks, the events are used instead.
        """
        self.kept: KeptContexts | None = None
        """The contexts of sessions in the caches; None unless the policy counts their eviction as a cost."""
        self.offered = OfferedPrefills()
        self.routers = 1
        """Number of live routers, including this router, that send to these instances. `told_routers` of them report
        their requests in flight. Each of the remaining routers is assumed to have as many requests in flight as this
        router.
        """
        self.told_routers = 0
        """Number of other routers that report their requests in flight. For these routers, the reported requests are
        counted (`InstanceLoad.others`).
        """
        self.told = ToldPrompts(prefixes.capacity_blocks)
        """The prompts that other routers reported, with the instances at which these routers placed them."""
        self._router = ""
        self._names: tuple[str, ...] = ()
        self._leanings: FloatVector | None = None
        self._seeds: list[int] | None = None
        self.overtaking: Callable[[RoutingRequest], Overtaking | None] | None = None
        """A function that returns a query for the waiting work that would be sent after a request; None in a pool with
        neither priority classes nor fairness.
        """
        self.table = table
        self.now = 0.0

    def within(self, instances: Collection[str]) -> "LiveView":
        """Return a view of the same pool in which only these instances can be candidates."""
        view = LiveView(
            self.table,
            self._loads,
            self.prefixes,
            self.caches,
            self._bindings,
            set(),
            self.prefill_times,
            self.decode_times,
            self.transfer_times,
            self.load_times,
            self._drained,
            instances,
        )
        view.offered, view.routers, view.overtaking, view.now = self.offered, self.routers, self.overtaking, self.now
        view.told_routers, view.told, view._router, view._names = self.told_routers, self.told, self._router, self._names
        view.stored, view.kept = self.stored, self.kept
        return view

    def invalidate(self) -> None:
        """Discard cached results, because the table, a circuit or the progress of an engine changed."""
        self._candidates = None

    def divide(self, router: str, names: Sequence[str]) -> None:
        """Divide the instances among the routers in `names`, so that each router prefers its own part. These routers
        exchange load reports. `names` includes `router`; it is empty when no other router is known.
        """
        if (router, tuple(names)) != (self._router, self._names):
            self._router, self._names = router, tuple(names)
            self._leanings = None

    @property
    def assumed_routers(self) -> int:
        """Number of routers that are assumed to have as many requests in flight as this router: this router, and all
        routers that do not report their requests.
        """
        return max(1, self.routers - self.told_routers)

    def candidates(self) -> Sequence[InstanceLoad]:
        if self._candidates is None or self.now >= self._valid_until:
            self._find_candidates()
            assert self._candidates is not None
        return self._candidates

    def decode_candidates(self) -> Sequence[InstanceLoad]:
        if self._candidates is None or self.now >= self._valid_until:
            self._find_candidates()
        return self._decode_candidates

    def load(self, instance: str) -> InstanceLoad | None:
        return self._loads.get(instance)

    def has_drained(self, instance: str) -> bool:
        return instance in self._drained

    def hit_tokens(self, request: RoutingRequest, instance: str, *, shared: bool = True) -> int:
        """See `PoolView.hit_tokens`. If `shared` is False, blocks that only the shared store holds do not count."""
        if shared and self.stored is not None:
            return max(self.hit_tokens(request, instance, shared=False), self._shared_tokens(request))
        if not (request.blocks or self.caches.heard):
            return 0
        blocks = self.prefixes.match(instance, request.blocks)
        if self.told:
            blocks = max(blocks, self.told.match(request.blocks).get(instance, 0))
        remembered = max(0, min(blocks * (request.block_tokens or self.table.engine.block_tokens), request.prompt_tokens - 1))
        return self.caches.hit_tokens(request, instance, remembered)

    def hit_tokens_everywhere(self, request: RoutingRequest) -> Mapping[str, int]:
        self.is_tiered = self.caches.index.is_tiered
        if not (request.blocks or self.caches.heard):
            return {}
        block_tokens = request.block_tokens or self.table.engine.block_tokens
        most = request.prompt_tokens - 1
        if most < 1:
            return {}
        if self.stored is not None and (shared := self._shared_tokens(request)):
            return {instance: max(shared, self.hit_tokens(request, instance, shared=False)) for instance in self._loads}
        held = self.prefixes.match_everywhere(request.blocks)
        if self.told:
            for instance, blocks in self.told.match(request.blocks).items():
                held[instance] = max(blocks, held.get(instance, 0))
        found = {instance: min(blocks * block_tokens, most) for instance, blocks in held.items()}
        if not self.caches.heard or not request.engine_blocks:
            return found
        return {instance: tokens for instance, tokens in self.caches.hits_everywhere(request, found).items() if tokens}

    def _shared_tokens(self, request: RoutingRequest) -> int:
        """Return the number of leading prompt tokens that are in the store that all engines read."""
        told = self.caches.shared_tokens(request)
        if told is not None:
            return told
        assert self.stored is not None
        blocks = self.stored.match("", request.blocks)
        if self.told:
            blocks = max(blocks, *self.told.match(request.blocks).values(), 0)
        return max(0, min(blocks * (request.block_tokens or self.table.engine.block_tokens), request.prompt_tokens - 1))

    def slow_tokens(self, request: RoutingRequest, instance: str) -> TierCounts:
        """Return, for each cache tier outside the GPU, the tokens of the prompt that the instance would have to load
        from it.
        """
        host, disk, remote = self.caches.slow_tokens(request, instance)
        if self.stored is not None:
            remote += max(0, self._shared_tokens(request) - self.hit_tokens(request, instance, shared=False))
        return host, disk, remote

    def loading_vector(self, request: RoutingRequest) -> FloatVector | None:
        if not self.caches.index.is_tiered:
            return None
        self.vectors()
        seconds, times = np.zeros(len(self._ids)), self.load_times.seconds
        for place, tokens in self.caches.slow_rows(request, self._ids):
            seconds[place] = times(tokens)
        if self.stored is not None and (shared := self._shared_tokens(request)):
            per_token = times((0, 0, 1))
            seconds += per_token * np.maximum(0, shared - self.hit_vector(request, shared=False))
        return seconds

    def tier_terms(self, request: RoutingRequest, instance: str) -> dict[str, float]:
        tokens = self.slow_tokens(request, instance) if self.caches.index.is_tiered else NOTHING_SLOW
        if tokens == NOTHING_SLOW:
            return {}
        found = {f"{tier.value}_tokens": float(count) for tier, count in zip(SLOW, tokens, strict=True) if count}
        return found | ({"load_seconds": self.load_times.seconds(tokens)} if self.load_times.knows(tokens) else {})

    def predicted_ttft_seconds(self, request: RoutingRequest, instance: str) -> float:
        load = self._loads.get(instance)
        hit = self.hit_tokens(request, instance)
        done = 0.0 if load is None else load.done_seconds(self.now)
        if self.caches.index.is_tiered:
            done -= self.load_times.seconds(self.slow_tokens(request, instance))
        overtaking = self._overtaking(request)
        if overtaking is not None:
            done += overtaking.at(instance).microseconds / 1e6
        if self.prefill_times.fitted:
            ahead = 0.0 if load is None else load.pending_prefill_microseconds / 1e6
            if load is not None and load.others is not None:
                ahead += load.others.pending_prefill_microseconds / 1e6
            return ahead + self.prefill_times.seconds(request.prompt_tokens, hit) - done
        pending = 0 if load is None else load.pending_prefill_tokens + (0 if load.others is None else load.others.pending_prefill_tokens)
        return (pending + max(1, request.prompt_tokens - hit)) / self.prefill_times.speed - done

    @property
    def prefill_speed(self) -> float:
        return self.prefill_times.speed

    def tokens_within(self, seconds: float) -> float:
        observed = self.prefill_times.observed_speed
        return inf if observed is None else seconds * observed

    def block_tokens(self, request: RoutingRequest) -> int:
        told = self.caches.block_tokens if self.caches.heard and request.engine_blocks else 0
        return told or request.block_tokens or self.table.engine.block_tokens

    def decode_seconds(self, context_tokens: float, requests: float) -> float:
        return self.decode_times.seconds(self.routers * context_tokens, self.routers * requests)

    def decode_share(self, load: InstanceLoad) -> float:
        """Return the share of the instance's time that its decodes need to meet the TPOT target."""
        if not load.decoding and (load.others is None or not load.others.decoding):
            return 0.0
        return decode_share(self.step_seconds(load), self.table.slo.tpot_seconds)

    def share_left_alone(self, load: InstanceLoad) -> float:
        """Return the share of an instance's time that this router's prefills must leave free for decodes and for other
        routers' prefills.
        """
        share = self.decode_share(load)
        return share if load.others is None else among_others(share, load.others.prefill_share)

    def step_seconds(self, load: InstanceLoad) -> float:
        """Return the predicted seconds of a decode step with all requests that decode on the instance; 0 while decode
        times are unknown.
        """
        tokens, requests = self.assumed_routers * load.decode_tokens, self.assumed_routers * load.decoding
        if load.others is not None:
            tokens, requests = tokens + load.others.decode_tokens, requests + load.others.decoding
        return self.decode_times.seconds(tokens, requests)

    def leanings(self, request: RoutingRequest, most_held: int) -> FloatVector | None:
        """Return seconds to add to the cost of each of `candidates()`. They keep routers that decide separately from
        choosing the same instances (`knowledge.parts`). None while one router decides for all. `most_held` is the
        largest number of the prompt's tokens that an instance is known to hold.
        """
        if self.routers == 1:
            return None
        self.vectors()
        target = self.table.slo.ttft_seconds
        if self.told_routers:
            if self._leanings is None:
                part = part_of(self._router, self._names, [entry.id for entry in self.table.instances if entry.accepting])
                self._leanings = np.array([0.0 if instance_of(one) in part else OF_ANOTHER * target for one in self._ids])
            return self._leanings
        key = home_key(request, most_held)
        if key is None:
            return None
        if self._seeds is None:
            self._seeds = [seed_of(one) for one in self._ids]
        hashed, gain = key
        leanings = np.full(len(self._ids), gain * target)
        leanings[home_of(hashed, self._seeds)] = 0.0
        return leanings

    def kept_tokens(self) -> FloatVector | None:
        if self.kept is None:
            return None
        self.vectors()
        return self.kept.tokens_at(self._ids, self.now)

    def pool_load(self) -> float:
        vectors = self.vectors()
        count = max(1, len(vectors.loads))
        return self.routers * self.offered.per_second(self.now) / count + vectors.decode_shares() / count

    def vectors(self) -> PoolVectors:
        candidates = self.candidates()
        if self._vectors is None or self._vectors.loads is not candidates:
            self._vectors = PoolVectors.of(candidates, self.table.engine.kv_cache_tokens, self.decode_share)
            self._ids = tuple(load.entry.id for load in candidates)
            self._places = {load.entry.id: index for index, load in enumerate(candidates)}
            self._slots_version = -1
            self._leanings = self._seeds = None
        elif self._changed:
            for instance in self._changed:
                index = self._places.get(instance)
                if index is not None:
                    self._vectors.refresh(index)
        self._changed.clear()
        return self._vectors

    def hit_vector(self, request: RoutingRequest, *, shared: bool = True) -> IntVector:
        """See `PoolView.hit_vector`. If `shared` is False, blocks that only the shared store holds do not count."""
        if shared and self.stored is not None:
            return np.maximum(self.hit_vector(request, shared=False), self._shared_tokens(request))
        self.is_tiered = self.caches.index.is_tiered
        self.vectors()
        prefixes = self.prefixes
        if self._slots_version != prefixes.slots_version:
            self._place_slots()
        block_tokens, most = request.block_tokens or self.table.engine.block_tokens, max(0, request.prompt_tokens - 1)
        rows = [(mask, min(depth * block_tokens, most)) for mask, depth in prefixes.match_masks(request.blocks)]
        remembered = np.zeros(len(self._ids) + 1, dtype=np.int64)  # the last entry takes what instances hold that are not candidates
        self._places_of_slots.write(remembered, rows)
        if self.told:
            for instance, blocks in self.told.match(request.blocks).items():
                place = self._places.get(instance)
                if place is not None:
                    remembered[place] = max(remembered[place], min(blocks * block_tokens, most))
        return self.caches.hit_vector(request, self._ids, remembered[:-1])

    def ttft_vector(self, request: RoutingRequest, hits: IntVector) -> FloatVector:
        vectors = self.vectors()
        done = vectors.done_seconds(self.now)
        overtaking = self._overtaking(request)
        if overtaking is not None:
            done += overtaking.microseconds(self._ids) / 1e6
        if self.caches.index.is_tiered and (loading := self.loading_vector(request)) is not None:
            done -= loading
        if self.prefill_times.fitted:
            return vectors.pending_microseconds / 1e6 + self.prefill_times.seconds_vector(request.prompt_tokens, hits) - done
        return (vectors.pending + misses(request.prompt_tokens, hits)) / self.prefill_times.speed - done

    def overtaken_seconds(self, request: RoutingRequest) -> FloatVector | None:
        overtaking = self._overtaking(request)
        if overtaking is None:
            return None
        self.vectors()
        return overtaking.microseconds_in_time(self._ids) / 1e6

    def prefill_vector(self, request: RoutingRequest, hits: IntVector) -> FloatVector:
        seconds = self.prefill_times.seconds_vector(request.prompt_tokens, hits)
        if self.caches.index.is_tiered and (loading := self.loading_vector(request)) is not None:
            return seconds + loading
        return seconds

    def fetching(self, request: RoutingRequest) -> FetchSpeed | None:
        handed_on = self.table.engine.kv_transfer
        if handed_on is None or handed_on.is_store or not request.movable:
            return modelled_fetching(self.table.engine.modelled)
        rate, latency = self.transfer_times.common(1 / self.prefill_speed, handed_on.tokens_per_second)
        return FetchSpeed(size=1.0, rate=rate, latency_seconds=latency)

    def prefill_seconds(self, request: RoutingRequest, hit_tokens: int) -> float:
        return self.prefill_times.seconds(request.prompt_tokens, hit_tokens)

    def binding(self, session: str) -> Binding | None:
        return self._bindings.get(session)

    def _overtaking(self, request: RoutingRequest) -> Overtaking | None:
        return None if self.overtaking is None else self.overtaking(request)

    def _find_candidates(self) -> None:
        accepting = sorted((load for load in self._loads.values() if load.entry.accepting), key=lambda load: load.entry.id)
        _spare(accepting, self.now)
        healthy = [load for load in accepting if load.may_be_sent(self.now)]
        decoding = tuple(load for load in healthy if load.entry.role is Role.DECODE)
        both = tuple(load for load in healthy if load.entry.role is Role.BOTH)
        self._decode_candidates = decoding or both
        for load in accepting:
            load.lacks_decode = load.entry.role is Role.PREFILL and not any(
                load.entry.pairs_with(other.entry) for other in self._decode_candidates
            )
        self._candidates = tuple(load for load in healthy if load.is_candidate(self.now))
        if self._within is not None:
            self._keep_within(self._within, accepting)
        self._valid_until = min((load.broken_until for load in accepting if load.broken_until > self.now), default=inf)

    def _keep_within(self, within: Collection[str], accepting: Sequence[InstanceLoad]) -> None:
        """If no instance of `within` is a candidate, make all accepting instances of `within` candidates."""
        members = [load for load in accepting if _is_member(load, within)]
        able = [load for load in members if load.entry.role is not Role.DECODE and not load.lacks_decode]
        decodes = [load for load in members if load.entry.role is not Role.PREFILL]
        assert self._candidates is not None
        self._candidates = tuple(load for load in self._candidates if _is_member(load, within)) or tuple(able)
        self._decode_candidates = tuple(load for load in self._decode_candidates if _is_member(load, within)) or tuple(decodes)

    def _place_slots(self) -> None:
        slots = self.prefixes.slots()
        nowhere = len(self._places)
        places = np.full(max(slots.values(), default=-1) + 1, nowhere, dtype=np.int64)
        for instance, slot in slots.items():
            places[slot] = self._places.get(instance, nowhere)
        self._places_of_slots = SlotPlaces(places)
        self._slots_version = self.prefixes.slots_version


def _is_member(load: InstanceLoad, within: Collection[str]) -> bool:
    return load.entry.id in within or instance_of(load.entry.id) in within


def _spare(accepting: Sequence[InstanceLoad], now: float) -> None:
    """Make instances candidates in spite of their open circuits, if the circuits of all suitable instances are open.
    Decode instances can replace prefill instances; prefill instances cannot replace decode instances.
    """
    nobody_decodes = all(load.is_shut(now) for load in accepting if load.entry.role is not Role.PREFILL)
    nobody = nobody_decodes and all(load.is_shut(now) for load in accepting)
    for load in accepting:
        load.is_spared = load.is_shut(now) and (nobody if load.entry.role is Role.PREFILL else nobody_decodes)
