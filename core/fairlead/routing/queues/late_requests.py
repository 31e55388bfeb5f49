"""Late requests of a pool: those that wait in some queue of the `deadline` discipline and can no longer be in time.
What its queues know together.

Sending a late request keeps an instance busy for seconds, most often with a long prompt. On a pool with time to spare
that harms nobody, and holding it back would be a refusal in disguise; beyond saturation every one of them costs others
their deadline. So late requests go while little else waits, or while hardly anybody becomes late in a queue. What had
no chance from the start says nothing of the load and does not count as lost.
"""

from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.queues.accounting import Accounting, TrackedRequest
from fairlead.tables import RoutingTable

MEMORY = 0.003
"""Weight of one request in the share of the lost: it is taken over the last 300 or so."""


class LateRequests:
    """Watches the queues of one pool.

    `to_refuse` are those found late since the caller looked last, when early rejection is on.
    """

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting
        self.lost_share = 0.0
        """Of recent requests that could be in time when they came, the share that became late in a queue."""
        self.to_refuse: list[TrackedRequest] = []

    def found(self, tracked: TrackedRequest, now: float, *, refuse: bool) -> None:
        """A queued request has become late, or is as it comes."""
        self._accounting.find_late(tracked)
        if now > tracked.waiting_since:
            self.lost_share += MEMORY * (1 - self.lost_share)
        if refuse:
            self.to_refuse.append(tracked)

    def sent_in_time(self) -> None:
        """A request that can be in time has left its queue for its instance."""
        self.lost_share -= MEMORY * self.lost_share

    def may_go(self, parameters: QueueParameters, table: RoutingTable, instances: int) -> bool:
        """Whether late requests may be sent at any time now: little waits, few are lost, or there
        are no queues to wait in.
        """
        little = parameters.late_load * table.slo.ttft_seconds * instances
        few = self.lost_share <= parameters.late_lost
        return few or self._accounting.wait_seconds <= little or not table.routing.prefills_in_flight
