"""The waiting requests that would be sent after a given request, at one instance or at many instances in one query."""

from collections.abc import Mapping, Sequence

import numpy as np

from fairlead.routing.contracts.requests import Overtaken, RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector
from fairlead.routing.queues.queueing import NOBODY, Queue
from fairlead.routing.queues.turns import Tenants


class OvertakenInQueues:
    """An `Overtaking` query for a request whose priority has this rank (0 = the highest). If `tenants` is given,
    tenants of one priority take turns. `lower` says whether requests of lower priority may wait.
    """

    def __init__(self, request: RoutingRequest, queues: Mapping[str, Queue], tenants: Tenants | None, rank: int, *, lower: bool) -> None:
        self._request = request
        self._queues = queues
        self._tenants = tenants
        self._rank = rank
        self._lower = lower

    def at(self, instance: str) -> Overtaken:
        queue = self._queues.get(instance)
        return NOBODY if queue is None else queue.overtaken_by(self._request)

    def microseconds(self, instances: Sequence[str]) -> FloatVector:
        found = np.zeros(len(instances))
        if self._tenants is not None:
            found += self._tenants.of_rank(self._rank).all_beyond(self._request.tenant, instances)
        if self._lower:
            found += np.array([one.microseconds for one in self._lower_at(instances)])
        return found

    def microseconds_in_time(self, instances: Sequence[str]) -> FloatVector:
        found = np.zeros(len(instances))
        if self._tenants is not None:
            found += self._tenants.of_rank(self._rank).able_beyond(self._request.tenant, instances)
        if self._lower:
            found += np.array([one.microseconds - one.late_microseconds for one in self._lower_at(instances)])
        return found

    def _lower_at(self, instances: Sequence[str]) -> list[Overtaken]:
        queues, request = self._queues, self._request
        return [NOBODY if (queue := queues.get(instance)) is None else queue.lower_than(request) for instance in instances]
