"""Cache affinity: one ring and the adaptive key, without regard to load. Prompts with the same prefix are sent to the
same instance. The disadvantage is hotspots.
"""

from itertools import islice

from fairlead.reports.bindings import Binding
from fairlead.reports.decisions import Weighing
from fairlead.reports.moves import MoveCause
from fairlead.routing.choosing.binding_reasons import RingAge
from fairlead.routing.choosing.candidates import FALLBACKS, nothing, weighed
from fairlead.routing.choosing.key_parameters import KeyParameters
from fairlead.routing.choosing.prefix_hotness import PrefixHotness
from fairlead.routing.contracts.catalogues import PolicyEntry, RingUse
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import DecisionRule, PolicyTerms
from fairlead.routing.knowledge.rings import HashRing
from fairlead.tables import RoutingTable


class CacheAffinity:
    """The policy `cache-affinity`: it chooses the key's owner on the hash ring or, if the owner takes no requests, the
    next candidate clockwise.

    Bindings only record where a session's KV cache is; they do not influence choices.
    """

    name = "cache-affinity"
    binds = True

    def __init__(self, parameters: KeyParameters) -> None:
        self._hotness = PrefixHotness(parameters.hotness())
        self._ring = HashRing(())
        self._ring_age = RingAge()

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        if self._ring_age.is_new:
            self._ring_age.settle(now)
        candidates = view.candidates()
        key = self._hotness.observe(request.blocks, request.first_bytes_hash, len(self._ring.instances))
        healthy = {load.entry.id for load in candidates} if len(candidates) < len(self._ring.instances) else None
        walk = (instance for instance in self._ring.walk(key) if healthy is None or instance in healthy)
        nearest = tuple(islice(walk, FALLBACKS + 1)) or tuple(load.entry.id for load in candidates[: FALLBACKS + 1])
        instance = nearest[0]
        owns = instance == self._ring.owner(key)
        reason, rule = (DecisionReason.PREFIX_AFFINITY, "ring-owner") if owns else (DecisionReason.FALLBACK, "ring-next")
        return Decision(
            instance=instance,
            reason=reason if len(candidates) > 1 else DecisionReason.ONLY_INSTANCE,
            fallbacks=nearest[1:],
            weigh=weighed(request, view, rule, nearest, nothing),
        )

    def cause_to_leave(self, request: RoutingRequest, home: Binding, weighed: Weighing, view: PoolView, now: float) -> MoveCause:
        """See `KeepsHomes.cause_to_leave`."""

        def is_other_key() -> bool:
            return any(self._ring.owner(key) == home.instance for key in self._hotness.other_keys(request.blocks, request.first_bytes_hash))

        return MoveCause(trigger=self._ring_age.reason(home, is_other_key))

    def placements(self, request: RoutingRequest) -> tuple[str, ...]:
        owner = self._ring.owner(self._hotness.key(request.blocks, request.first_bytes_hash))
        return () if owner is None else (owner,)

    def table_changed(self, table: RoutingTable) -> None:
        """Rebuild the ring from the accepting instances."""
        self._ring = HashRing.of(table.instances)
        self._ring_age.rebuilt(table.instances)


ENTRY = PolicyEntry(
    name=CacheAffinity.name,
    intent="Equal prefixes to one instance by consistent hashing, regardless of load.",
    build=lambda parameters, seed: CacheAffinity(parameters),
    parameters=KeyParameters,
    ring=RingUse.EVERY_REQUEST,
    terms=PolicyTerms(
        rules=(
            DecisionRule(code="ring-owner", because="it owns the prefix's place on the ring"),
            DecisionRule(
                code="ring-next", because="the owner of the prefix's place on the ring takes no requests, and it is the next clockwise"
            ),
        )
    ),
)
