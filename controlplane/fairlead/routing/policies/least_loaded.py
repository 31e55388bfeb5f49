"""Least loaded: the instance with the fewest uncached prompt tokens pending, whatever it holds."""

from collections.abc import Mapping, Sequence

from fairlead.routing.policies.candidates import least_pending, score_all
from fairlead.routing.protocols import Decision, DecisionReason, PoolView, QueuedMove, QueuedRequest, RoutingRequest
from fairlead.tables import RoutingTable


class LeastLoaded:
    """Ties go to the fewest tokens in running decodes, then to the instance chosen longest ago, then by id."""

    name = "least-loaded"
    binds = False
    rebalances = False

    def __init__(self) -> None:
        self._chosen_at: dict[str, int] = {}
        self._choices = 0

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        candidates = view.candidates()
        least = min([load.pending_prefill_tokens for load in candidates])
        tied = [load for load in candidates if load.pending_prefill_tokens == least]
        chosen_at = self._chosen_at
        best = (
            tied[0] if len(tied) == 1 else min(tied, key=lambda load: (load.decode_tokens, chosen_at.get(load.entry.id, 0), load.entry.id))
        )
        instance = best.entry.id
        self._choices += 1
        chosen_at[instance] = self._choices
        fallbacks = least_pending(candidates, (instance,))
        return Decision(
            instance=instance,
            reason=DecisionReason.LEAST_LOADED if len(candidates) > 1 else DecisionReason.ONLY_INSTANCE,
            fallbacks=fallbacks,
            candidates=score_all(request, view, (instance, *fallbacks[:1])),
        )

    def placements(self, request: RoutingRequest) -> tuple[str, ...]:
        return ()

    def rebalance(
        self, overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float
    ) -> Sequence[QueuedMove]:
        return ()

    def table_changed(self, table: RoutingTable) -> None:
        present = {entry.id for entry in table.instances}
        self._chosen_at = {instance: at for instance, at in self._chosen_at.items() if instance in present}
