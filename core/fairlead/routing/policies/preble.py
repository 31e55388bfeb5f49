"""Preble: chooses the instance that holds the most of the prompt, if that is more than half. Otherwise chooses the
instance with the lowest sum of recent work, evictions and the prefill of this prompt.

An instance's work is its work of the last minutes. Prefixes are nodes of a tree; each node has its prefill time and the
instances that computed it. From time to time, nodes of the busiest instance are assigned to the least busy instance.
The blocks that each instance holds come from the view.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector, lowest, misses
from fairlead.routing.contracts.weighing import TOTAL, DecisionRule, Limit, PolicyTerms, Term, Unit
from fairlead.schemas.shapes import number, whole
from fairlead.tables import RoutingTable

MOVES_AT_ONCE = 100
"""Maximum number of nodes moved during one request. The request waits for these moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrebleParameters(QueueParameters):
    """Parameters of `preble`."""

    window_seconds: float = number("Seconds for which work counts as recent.", 180.0, minimum=1.0, maximum=86_400.0)
    decode_tokens: int = whole("Assumed output tokens of a running request.", 45, maximum=100_000)
    decode_seconds: float = number("Seconds charged per output token of a running request.", 0.15, minimum=0.0, maximum=60.0)
    rebalance_ratio: float = number(
        "Prefixes move while the busiest instance has more than this many times the work of the least busy.", 1.5, minimum=1.01
    )
    rebalance_every: int = whole("Requests per instance between two rebalancing checks; 0 = never.", 50, maximum=1_000_000)


@dataclass(slots=True, kw_only=True)
class Node:
    """A prefix of recent requests: the tokens that it adds to its parent prefix, and the instances that computed it.

    Times are in microseconds.
    """

    key: int
    new_tokens: int
    context_tokens: int
    count: int = 0
    misses: int = 0
    microseconds: int = 0
    """Prefill time of the tokens that this node adds to its parent."""
    instances: set[str] = field(default_factory=set)
    charged: dict[str, int] = field(default_factory=dict)
    """The work last charged to each instance for this node."""
    moved_to: set[str] = field(default_factory=set)


class Preble:
    """The policy `preble`. Ties go to the lowest id."""

    name = "preble"

    def __init__(self, parameters: PrebleParameters) -> None:
        self._parameters = parameters
        self._nodes: dict[int, Node] = {}
        self._window: deque[tuple[float, int, bool]] = deque()
        self._work: dict[str, int] = {}
        self._cached: dict[str, OrderedDict[int, int]] = {}
        """Each instance's nodes and their tokens, least recently used first, as an LRU cache would hold them."""
        self._held: dict[str, int] = {}
        self._since_rebalance = 0
        self._moves_left = 0
        """Number of moves that the present rebalancing may still make. The rebalancing ends after as many moves as
        there are nodes, even if the load is not balanced then.
        """

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        self._forget(now)
        hits = view.hit_vector(request)
        loads = view.vectors().loads
        longest = int(hits.max())
        key = request.blocks[-1] if request.blocks else request.first_bytes_hash
        parts = self._costs(request, hits, view)
        costs: FloatVector = parts["work_seconds"] + parts["decode_seconds"] + parts["eviction_seconds"] + parts["prefill_seconds"]
        if 2 * longest > request.prompt_tokens:
            given = self._given(key, loads)
            holders = given or [int(index) for index in np.flatnonzero(hits == longest)]
            order = sorted(holders, key=lambda index: (costs[index], index))
            order += [index for index in lowest(costs, FALLBACKS + 1) if index not in holders]
            reason, rule = DecisionReason.PREFIX_AFFINITY, "prefix-given" if given else "prefix-followed"
        else:
            order, reason, rule = lowest(costs, FALLBACKS + 1), DecisionReason.PREFIX_EXPLORED, "prefix-explored"
        chosen = loads[order[0]].entry.id
        self._remember(key, request, longest, int(hits[order[0]]), chosen, view, now)
        self._rebalance(view, now)
        return ordered_decision(
            request,
            view,
            order,
            hits,
            costs,
            reason,
            rule,
            terms=lambda index: {name: float(part[index]) for name, part in parts.items()},
            limits={"longest_tokens": float(longest)},
        )

    def table_changed(self, table: RoutingTable) -> None:
        """Forget instances that are gone."""
        present = {entry.id for entry in table.instances}
        for node in self._nodes.values():
            node.instances &= present
            node.moved_to &= present
            self._charge(node)
        for instance in self._work.keys() - present:
            del self._work[instance]
        for instance in self._cached.keys() - present:
            del self._cached[instance], self._held[instance]

    def _costs(self, request: RoutingRequest, hits: IntVector, view: PoolView) -> dict[str, FloatVector]:
        """Return the parts of the cost per instance, in seconds: recent work, running and expected decodes, evictions,
        and this request's own prefill.
        """
        vectors = view.vectors()
        decode = self._parameters.decode_tokens * self._parameters.decode_seconds
        work = np.array([self._work.get(load.entry.id, 0) for load in vectors.loads]) / 1e6
        tokens = misses(request.prompt_tokens, hits)
        capacity = view.table.engine.kv_cache_tokens
        held = np.array([self._held.get(load.entry.id, 0) for load in vectors.loads])
        evicted = np.zeros(len(held))
        for index in np.flatnonzero(held + tokens > capacity).tolist():
            evicted[index] = self._eviction_seconds(vectors.loads[index].entry.id, int(tokens[index]), capacity)
        return {
            "work_seconds": work,
            "decode_seconds": np.multiply(vectors.requests, decode, dtype=np.float64),
            "eviction_seconds": evicted,
            "prefill_seconds": tokens / view.prefill_speed,
        }

    def _eviction_seconds(self, instance: str, tokens: int, capacity: int) -> float:
        """Return the prefill time in seconds of the nodes that an LRU cache would evict to make room for this many
        tokens. Each node is weighted by its share of recent requests.
        """
        excess = self._held.get(instance, 0) + tokens - capacity
        if excess <= 0 or not self._window:
            return 0.0
        microseconds = 0.0
        for key, size in self._cached[instance].items() if instance in self._cached else ():
            node = self._nodes.get(key)
            if node is not None:
                microseconds += node.microseconds * node.count / len(self._window)
            excess -= size
            if excess <= 0:
                break
        return microseconds / 1e6

    def _given(self, key: int, loads: Sequence[InstanceLoad]) -> list[int]:
        """Return the indexes of the instances to which rebalancing has assigned the prefix; empty if there are none."""
        node = self._nodes.get(key)
        return [] if node is None else [index for index, load in enumerate(loads) if load.entry.id in node.moved_to]

    def _remember(self, key: int, request: RoutingRequest, longest: int, hit: int, instance: str, view: PoolView, now: float) -> None:
        node = self._nodes.get(key)
        if node is None:
            new = max(1, request.prompt_tokens - longest)
            node = self._nodes[key] = Node(key=key, new_tokens=new, context_tokens=request.prompt_tokens - new)
            node.microseconds = int(1e6 * new / view.prefill_speed)
        missed = hit < node.context_tokens + node.new_tokens - view.table.engine.block_tokens
        node.count += 1
        node.misses += missed
        node.instances.add(instance)
        self._window.append((now, key, missed))
        self._charge(node)
        cached = self._cached.setdefault(instance, OrderedDict())
        self._held[instance] = self._held.get(instance, 0) + node.new_tokens - cached.pop(key, 0)
        cached[key] = node.new_tokens
        while self._held[instance] > view.table.engine.kv_cache_tokens and len(cached) > 1:
            self._held[instance] -= cached.popitem(last=False)[1]

    def _forget(self, now: float) -> None:
        """Drop the requests that are older than the time window."""
        while self._window and now - self._window[0][0] > self._parameters.window_seconds:
            _, key, missed = self._window.popleft()
            node = self._nodes[key]
            node.count -= 1
            node.misses -= missed
            if not node.count:
                node.instances.clear()
                del self._nodes[key]
            self._charge(node)

    def _charge(self, node: Node) -> None:
        """Divide the prefill time of all the node's misses equally among the node's instances, and add it to their
        work. Subtract the node's earlier charge from their work.
        """
        for instance, microseconds in node.charged.items():
            self._work[instance] = self._work.get(instance, 0) - microseconds
        part = node.misses * node.microseconds // len(node.instances) if node.instances else 0
        node.charged = dict.fromkeys(node.instances, part)
        for instance in node.instances:
            self._work[instance] = self._work.get(instance, 0) + part

    def _rebalance(self, view: PoolView, now: float) -> None:
        """Assign the smallest important nodes of the busiest instance to the least busy instance, a few with each
        request. If the busiest instance has only one such node and endangers the TTFT target, the node is replicated.
        """
        loads = view.candidates()
        self._since_rebalance += 1
        every = self._parameters.rebalance_every * len(loads)
        if every and self._since_rebalance >= every:
            self._since_rebalance, self._moves_left = 0, len(self._nodes)
        if not self._moves_left or len(loads) < 2:
            return
        names = [load.entry.id for load in loads]
        movable = self._important(names)
        moves = min(MOVES_AT_ONCE, self._moves_left)
        self._moves_left -= moves
        for _ in range(moves):
            busiest = max(names, key=lambda name: (self._work.get(name, 0), name))
            idlest = min(names, key=lambda name: (self._work.get(name, 0), name))
            balanced = self._work.get(busiest, 0) <= self._parameters.rebalance_ratio * self._work.get(idlest, 0)
            smallest = [] if balanced else self._smallest(movable[busiest], busiest, idlest)
            if not smallest or (len(smallest) == 1 and not self._endangers(busiest, view)):
                self._moves_left = 0
                return
            node = smallest[0]
            node.moved_to = {idlest}
            if len(smallest) == 1:
                node.moved_to.add(busiest)
            else:
                node.instances.discard(busiest)
            node.instances.add(idlest)
            self._charge(node)
            for name in node.instances & movable.keys():
                heappush(movable[name], (node.charged[name], node.key))

    def _endangers(self, instance: str, view: PoolView) -> bool:
        """Return whether the work waiting at the instance takes longer than the TTFT target allows."""
        load = view.load(instance)
        return load is not None and load.pending_prefill_tokens > view.tokens_within(view.table.slo.ttft_seconds)

    def _important(self, names: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
        """Return, for each instance, a heap of the nodes that may move to another instance, as pairs of the node's
        charge and key.
        """
        found: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
        for node in self._nodes.values():
            if node.count > 1 and node.misses and node.new_tokens > node.context_tokens:
                for name in node.instances & found.keys():
                    found[name].append((node.charged.get(name, 0), node.key))
        for heap in found.values():
            heapify(heap)
        return found

    def _smallest(self, heap: list[tuple[int, int]], busiest: str, idlest: str) -> list[Node]:
        """Return the two smallest nodes of the heap that the least busy instance does not have yet; a single node or
        none if there are no more. The nodes stay in the heap.
        """
        looked_at: list[tuple[int, int]] = []
        found: list[Node] = []
        while heap and len(found) < 2:
            charge, key = heappop(heap)
            node = self._nodes[key]
            if charge != node.charged.get(busiest) or (charge, key) in looked_at[-1:]:
                continue  # it moved since, or is charged otherwise, or was there before
            looked_at.append((charge, key))
            if idlest not in node.instances:
                found.append(node)
        for entry in looked_at:
            heappush(heap, entry)
        return found


ENTRY = PolicyEntry(
    name=Preble.name,
    intent="Follow a prefix that is most of the prompt; else the lowest sum of recent work, evictions and prefill.",
    build=lambda parameters, seed: Preble(parameters),
    parameters=PrebleParameters,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="cost", unit=Unit.SECONDS),
        parts=("work_seconds", "decode_seconds", "eviction_seconds", "prefill_seconds"),
        terms=(
            Term(name="work_seconds", words="recent work", unit=Unit.SECONDS),
            Term(name="decode_seconds", words="decodes", unit=Unit.SECONDS),
            Term(name="eviction_seconds", words="what would be evicted", unit=Unit.SECONDS),
            Term(name="prefill_seconds", words="prefill", unit=Unit.SECONDS),
        ),
        limits=(Limit(name="longest_tokens", words="the largest part of the prompt that an instance holds", unit=Unit.TOKENS),),
        rules=(
            DecisionRule(
                code="prefix-followed",
                because="it held most of the prompt, and of the instances that did, it cost the least",
                order=("hit_tokens", TOTAL),
            ),
            DecisionRule(code="prefix-given", because="rebalancing gave it the prompt's prefix"),
            DecisionRule(
                code="prefix-explored", because="no instance held half of the prompt, and its cost was the lowest", order=(TOTAL,)
            ),
        ),
    ),
)
