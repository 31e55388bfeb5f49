"""What a policy is that lets requests wait anywhere, moves none and keeps no bindings: most of them."""

from collections.abc import Mapping, Sequence

from fairlead.routing.contracts.policies import PoolView, QueuedMove
from fairlead.routing.contracts.requests import QueuedRequest, RoutingRequest
from fairlead.tables import RoutingTable


class FreeChoice:
    """The parts of `Policy` that only ring policies and migrating ones need otherwise."""

    binds = False
    rebalances = False

    def placements(self, request: RoutingRequest) -> tuple[str, ...]:
        """Anywhere."""
        return ()

    def rebalance(
        self, overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float
    ) -> Sequence[QueuedMove]:
        """No moves."""
        return ()

    def table_changed(self, table: RoutingTable) -> None:
        """Nothing to rebuild."""
