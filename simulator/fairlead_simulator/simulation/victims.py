"""Which instance goes first when a simulated pool shrinks: the operator's own choice, from what its router knows."""

from collections.abc import Collection, Sequence

from fairlead.draining import by_cost
from fairlead.pool_states import InstanceObservation, PoolObservations
from fairlead.routing.scheduling.scheduler import PoolScheduler


def cheapest_first(scheduler: PoolScheduler, sessions: Collection[str], names: Sequence[str]) -> list[str]:
    """`names` by what their drains would cost, given the sessions the router may know."""
    contexts: dict[str, list[int]] = {}
    for session in sessions:
        binding = scheduler.binding(session)
        if binding is not None and binding.instance is not None:
            contexts.setdefault(binding.instance, []).append(binding.context_tokens)
    observed = PoolObservations(
        table_version=scheduler.table.version,
        table_acknowledged=True,
        live_routers=1,
        ttft_attainment=None,
        requests_per_second=0.0,
        instances=tuple(
            InstanceObservation(
                id=one.instance,
                in_flight=one.in_flight,
                bound_sessions=len(contexts.get(one.instance, ())),
                cache_tokens=sum(contexts.get(one.instance, ())),
                acknowledged=True,
            )
            for one in scheduler.in_flight()
        ),
    )
    return [name for _, name in by_cost(names, observed, scheduler.prefill_speed)]
