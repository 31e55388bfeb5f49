"""Which queue an instance gets: the discipline its pool's policy asks for."""

from fairlead.routing.deadline_queue import DeadlineQueue, LateRules
from fairlead.routing.parameters import QueueParameters
from fairlead.routing.protocols import InstanceLoad
from fairlead.routing.queues import InstanceQueue
from fairlead.tables import RoutingTable

Queue = InstanceQueue | DeadlineQueue


def build_queue(parameters: QueueParameters, table: RoutingTable, load: InstanceLoad, late: LateRules) -> Queue:
    """An empty queue for the instance of `load`; the rules for late requests are for the `deadline` discipline."""
    target = table.slo.ttft_seconds
    if parameters.queue_discipline == "deadline":
        return DeadlineQueue(load, target, table.engine.prefill_tokens_per_second, late)
    return InstanceQueue(parameters.queue_discipline, parameters.queue_age_bound_seconds, target)
