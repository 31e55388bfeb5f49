"""Late requests of a pool: requests that wait in a queue of the `deadline` discipline and can no longer be in time. All
queues of the pool share one object of this module.

A late request keeps an instance busy for seconds, because it usually has a long prompt. In a pool with spare time this
does not harm other requests, and never sending the late request would be a hidden refusal. In an overloaded pool, each
late request makes other requests miss their deadline. So late requests are sent while the pool's load is low, or while
few other requests wait.

If several routers decide separately, each router estimates the pool's load and waits from its own requests, and all may
find the same instance free at the same time. So a pool whose load seems low may have no time to spare. A high share of
late first tokens, however, is a certain sign of overload. While the share is high, late requests are not sent.
"""

from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.queues.accounting import Accounting, TrackedRequest
from fairlead.tables import RoutingTable

WEIGHT = 0.02
"""Weight of one request in the smoothed shares of late first tokens and of late answers."""
MORE = 0.02
"""Minimum by which the share of late answers must exceed the share of late first tokens, so that rests for decodes are
always kept.
"""
LATE_AMONG_OTHERS = 0.05
"""Share (0-1) of late first tokens above which a router assumes that the pool has no time to spare. It applies only
with several routers.
"""


class LateRequests:
    """The late requests in the queues of one pool.

    `to_refuse` holds requests that became late after the caller last read it, if early rejection is on.
    """

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting
        self.to_refuse: list[TrackedRequest] = []
        self._first_tokens = self._answers = 0.0

    @property
    def spare_answers(self) -> bool:
        """Whether the share of answers that miss the TPOT target is clearly larger than the share of late first tokens.
        If so, no time is taken from decodes for prefills.
        """
        return self._answers > self._first_tokens + MORE

    def saw_first_token(self, *, late: bool) -> None:
        """Record whether a first token missed the TTFT target. The request must not have been late when it was sent."""
        self._first_tokens += WEIGHT * (late - self._first_tokens)

    def saw_answer(self, *, late: bool) -> None:
        """Record whether a finished answer missed the TPOT target."""
        self._answers += WEIGHT * (late - self._answers)

    def found(self, tracked: TrackedRequest, *, refuse: bool) -> None:
        """Record a request that became late in its queue or was late on arrival. `refuse` says whether the request may
        be refused because it is late. If no client waits for the request, it is never refused and does not count in the
        share of late first tokens.
        """
        if not tracked.late and not tracked.request.warms:
            self.saw_first_token(late=True)
        self._accounting.find_late(tracked)
        if refuse and not tracked.request.warms:
            self.to_refuse.append(tracked)

    def may_go(self, parameters: QueueParameters, table: RoutingTable, instances: int, load: float, routers: int = 1) -> bool:
        """Return whether late requests may be sent whenever an instance is free. True if the pool's `load` leaves time
        for them, if the waits in all `routers` together are short, or if the pool queues no requests. With several
        routers, it is False while many first tokens are late, unless the pool queues no requests.
        """
        if not table.routing.prefills_in_flight:
            return True
        if routers > 1 and self._first_tokens > LATE_AMONG_OTHERS:
            return False
        little = parameters.late_load * table.slo.ttft_seconds * instances
        return load < parameters.calm_load or routers * self._accounting.wait_seconds <= little
