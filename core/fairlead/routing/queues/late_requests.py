"""Late requests of a pool: requests that wait in a queue of the `deadline` discipline and can no longer be in time. All
queues of the pool share this object.

Sending a late request keeps an instance busy for seconds, most often with a long prompt. In a pool with spare time that
harms no other request, and holding it back would be a hidden refusal; in an overloaded pool each late request makes
other requests miss their deadline. So late requests are sent while the pool is calm, by its load, or while little else
waits.

If several routers decide separately, each infers the pool's load and waits from its own requests, and all may find the
same instance free at once, so a pool that seems calm may have no time to spare. Late first tokens, however, are a
certain sign: while there are many, late requests are not sent.
"""

from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.queues.accounting import Accounting, TrackedRequest
from fairlead.tables import RoutingTable

WEIGHT = 0.02
"""The weight of one request in the smoothed shares of late requests."""
MORE = 0.02
"""Least difference between the share of late answers and the share of late first tokens at which rests are kept for
decodes.
"""
LATE_AMONG_OTHERS = 0.05
"""Share of late first tokens from which, among several routers, a router assumes that the pool has no time to spare."""


class LateRequests:
    """The late requests in the queues of one pool.

    `to_refuse` are the requests found late since the caller last read it, if early rejection is on.
    """

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting
        self.to_refuse: list[TrackedRequest] = []
        self._first_tokens = self._answers = 0.0

    @property
    def spare_answers(self) -> bool:
        """Whether more answers miss their TPOT target than first tokens are late: using the decodes' time for prefills
        would then gain nothing.
        """
        return self._answers > self._first_tokens + MORE

    def saw_first_token(self, *, late: bool) -> None:
        """Record the first token of a request that was not late when it was sent."""
        self._first_tokens += WEIGHT * (late - self._first_tokens)

    def saw_answer(self, *, late: bool) -> None:
        """Record whether a finished answer missed the TPOT target."""
        self._answers += WEIGHT * (late - self._answers)

    def found(self, tracked: TrackedRequest, *, refuse: bool) -> None:
        """Record a request that became late in its queue, or was late on arrival."""
        if not tracked.late:
            self.saw_first_token(late=True)
        self._accounting.find_late(tracked)
        if refuse:
            self.to_refuse.append(tracked)

    def may_go(self, parameters: QueueParameters, table: RoutingTable, instances: int, load: float, routers: int = 1) -> bool:
        """Return whether late requests may be sent at any time now: the pool has time for them by its `load`, little
        waits in all its `routers`, or nothing is queued. Among several routers, only while few first tokens are late.
        """
        if not table.routing.prefills_in_flight:
            return True
        if routers > 1 and self._first_tokens > LATE_AMONG_OTHERS:
            return False
        little = parameters.late_load * table.slo.ttft_seconds * instances
        return load < parameters.calm_load or routers * self._accounting.wait_seconds <= little
