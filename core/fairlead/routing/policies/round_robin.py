"""Round robin: every instance in turn, whatever it holds or has to do."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from fairlead.routing.choosing.candidates import FALLBACKS, nothing, weighed
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView, QueuedMove
from fairlead.routing.contracts.requests import QueuedRequest, RoutingRequest
from fairlead.tables import RoutingTable


class RoundRobin:
    """Walks the candidates in order of id. It remembers the last id chosen, so that instances coming and going do not restart the walk."""

    name = "round-robin"
    binds = False
    rebalances = False

    def __init__(self, seed: int) -> None:
        self._skip = seed
        self._last: str | None = None

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        candidates = view.candidates()
        count = len(candidates)
        index = (self._skip if self._last is None else bisect_right(candidates, self._last, key=_id)) % count
        chosen = candidates[index].entry.id
        self._last = chosen
        return Decision(
            instance=chosen,
            reason=DecisionReason.ROUND_ROBIN if count > 1 else DecisionReason.ONLY_INSTANCE,
            fallbacks=tuple(candidates[(index + step) % count].entry.id for step in range(1, min(count, FALLBACKS + 1))),
            weigh=weighed(request, view, "next-in-turn", (chosen,), nothing),
        )

    def placements(self, request: RoutingRequest) -> tuple[str, ...]:
        return ()

    def rebalance(
        self, overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float
    ) -> Sequence[QueuedMove]:
        return ()

    def table_changed(self, table: RoutingTable) -> None:
        """Nothing to rebuild: the walk goes by id."""


def _id(load: InstanceLoad) -> str:
    return load.entry.id
