"""Which queue an instance gets: the discipline its pool's policy asks for."""

from collections.abc import Callable

from fairlead.routing.accounting import TrackedRequest
from fairlead.routing.deadline_queue import DeadlineQueue, LateRules
from fairlead.routing.parameters import QueueParameters
from fairlead.routing.protocols import InstanceLoad
from fairlead.routing.queues import InstanceQueue
from fairlead.tables import RoutingTable

Queue = InstanceQueue | DeadlineQueue


def build_queue(
    parameters: QueueParameters,
    table: RoutingTable,
    load: InstanceLoad,
    calm: Callable[[], bool],
    found_late: Callable[[TrackedRequest], None],
) -> Queue:
    """An empty queue for the instance of `load`; `calm` and `found_late` are for the `deadline` discipline (see `LateRules`)."""
    target = table.slo.ttft_seconds
    if parameters.queue_discipline == "deadline":
        rules = LateRules(share=parameters.late_share, calm=calm, found=found_late)
        return DeadlineQueue(load, target, table.engine.prefill_tokens_per_second, rules)
    return InstanceQueue(parameters.queue_discipline, parameters.queue_age_bound_seconds, target)
