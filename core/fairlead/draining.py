"""Chooses the instance to remove, and decides when a drain has ended and the instance may be deleted."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from fairlead.pool_states import InstanceObservation, PoolObservations


def acknowledged(observations: PoolObservations | None, instance: str) -> bool:
    """Return whether every live router knows the state last reported for the instance.

    True without live routers, because then no router can send requests. False if the API does not respond, because then
    it is unknown.
    """
    if observations is None:
        return False
    if observations.live_routers == 0:
        return True
    return any(item.id == instance and item.acknowledged for item in observations.instances)


def is_drained(observations: PoolObservations | None, instance: str) -> bool:
    """Return whether a draining instance is empty: no router may still choose it, and no router has a request there."""
    if not acknowledged(observations, instance):
        return False
    in_flight = 0
    if observations is not None and observations.live_routers > 0:
        in_flight = sum(item.in_flight for item in observations.instances if item.id == instance)
    return in_flight == 0


def without_hasty_silence(observations: PoolObservations, draining: Collection[str]) -> PoolObservations:
    """Return the observations to plan with. They differ from the given observations only if the control API has just
    begun to respond.

    At that time, some routers may route requests without having reported to the control API yet. So if no router counts
    as live, draining instances count as not acknowledged by the routers.
    """
    if observations.live_routers > 0:
        return observations
    instances = tuple(replace(item, acknowledged=item.id not in draining) for item in observations.instances)
    return replace(observations, live_routers=1, instances=instances)


def without_hasty_idleness(observations: PoolObservations) -> PoolObservations:
    """Return the observations to plan with when the control API has just begun to respond. A router that has not
    reported yet may have had requests all the time, so the pool's idle time is treated as unknown.
    """
    if observations.demand is None:
        return observations
    return replace(observations, demand=replace(observations.demand, idle_seconds=None))


def drain_cost(observation: InstanceObservation | None, prefill_tokens_per_second: float) -> float:
    """Return the cost of removing an instance, in disturbed requests: bound sessions × cache value + requests in
    flight.

    A session's cache value is 1 (the session has to move) plus the seconds of prefill that its cached tokens save.
    """
    if observation is None:
        return 0.0
    if observation.bound_sessions == 0:
        return float(observation.in_flight)
    cache_value = 1.0 + observation.cache_tokens / observation.bound_sessions / prefill_tokens_per_second
    return observation.bound_sessions * cache_value + observation.in_flight


def by_cost(instances: Iterable[str], observations: PoolObservations, prefill_tokens_per_second: float) -> list[tuple[float, str]]:
    """Return the instances with their cost of removal, cheapest first.

    Equal costs are ordered by id, which is unrelated to age. Ordering by age would be worse: the newest instance may be
    needed capacity, and the oldest has the fullest cache.
    """
    known: Mapping[str, InstanceObservation] = {item.id: item for item in observations.instances}
    return sorted((drain_cost(known.get(instance), prefill_tokens_per_second), instance) for instance in instances)
