"""The live view policies choose by: loads, prefix index and bindings of this instant. The scheduler sets `now` before each use."""

from collections.abc import Mapping, Sequence
from math import inf

from fairlead.reports import Binding
from fairlead.routing.bindings import SessionBindings
from fairlead.routing.prefixes import PrefixIndex
from fairlead.routing.protocols import InstanceLoad, RoutingRequest
from fairlead.tables import RoutingTable


class LiveView:
    """A `PoolView` over the scheduler's own objects; candidates are cached until a circuit or the table changes."""

    def __init__(self, table: RoutingTable, loads: Mapping[str, InstanceLoad], prefixes: PrefixIndex, bindings: SessionBindings) -> None:
        self._loads = loads
        self._bindings = bindings
        self._candidates: tuple[InstanceLoad, ...] | None = None
        self._valid_until = 0.0
        self.prefixes = prefixes
        self.table = table
        self.now = 0.0

    def invalidate(self) -> None:
        """The table or a circuit changed."""
        self._candidates = None

    def candidates(self) -> Sequence[InstanceLoad]:
        if self._candidates is None or self.now >= self._valid_until:
            accepting = [load for load in self._loads.values() if load.entry.accepting]
            healthy = [load for load in accepting if load.broken_until <= self.now]
            self._candidates = tuple(sorted(healthy, key=lambda load: load.entry.id))
            self._valid_until = min((load.broken_until for load in accepting if load.broken_until > self.now), default=inf)
        return self._candidates

    def load(self, instance: str) -> InstanceLoad | None:
        return self._loads.get(instance)

    def hit_tokens(self, request: RoutingRequest, instance: str) -> int:
        blocks = self.prefixes.match(instance, request.blocks)
        return max(0, min(blocks * self.table.engine.block_tokens, request.prompt_tokens - 1))

    def hit_tokens_everywhere(self, request: RoutingRequest) -> Mapping[str, int]:
        block_tokens = self.table.engine.block_tokens
        most = request.prompt_tokens - 1
        if most < 1:
            return {}
        return {instance: min(blocks * block_tokens, most) for instance, blocks in self.prefixes.match_everywhere(request.blocks).items()}

    def predicted_ttft_seconds(self, request: RoutingRequest, instance: str) -> float:
        load = self._loads.get(instance)
        pending = 0 if load is None else load.pending_prefill_tokens
        miss = max(1, request.prompt_tokens - self.hit_tokens(request, instance))
        return (pending + miss) / self.table.engine.prefill_tokens_per_second

    def binding(self, session: str) -> Binding | None:
        return self._bindings.get(session)
