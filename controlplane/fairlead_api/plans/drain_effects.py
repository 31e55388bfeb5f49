"""Estimates the effect of draining one instance on a person's request, and of taking that back. Pure."""

from fairlead.instances import InstanceState
from fairlead_api.plans.cordon_effects import find
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_client.resources.plans import PlanEffect


def drain_effect(pool: PoolUse, instance: str, *, replaced: bool = True) -> PlanEffect:
    """The sessions that move, and the capacity that is left until the successor serves, or for good if it is not
    `replaced`. Raises NotFound.
    """
    one = find(pool, instance)
    if one.state is InstanceState.DRAINING:
        return PlanEffect(notes=[f"{instance} drains already."])
    left = [use for use in pool.instances if use.state is InstanceState.SERVING and use.role is one.role and use is not one]
    number = "1 instance of role {} serves" if len(left) == 1 else f"{len(left)} instances of role {{}} serve"
    words = f"{number.format(one.role)} until its successor does; the number of instances stays."
    if not replaced:
        return _emptied(pool, one, number.format(one.role), alone=not left)
    if not left:
        words = "No other instance of its role serves, so its successor comes first and the drain begins when that serves."
    return PlanEffect(
        victims=[instance],
        sessions_moved=one.bound_sessions,
        cache_tokens_lost=one.cache_tokens,
        requests_in_flight=one.in_flight,
        notes=[words],
        heavy=pool.is_heavy(one.bound_sessions),
    )


def _emptied(pool: PoolUse, one: InstanceUse, words: str, *, alone: bool) -> PlanEffect:
    """An engine that nobody here ends: it is emptied, stays so, and can be taken back."""
    return PlanEffect(
        sessions_moved=0 if alone else one.bound_sessions,
        sessions_lost=one.bound_sessions if alone else 0,
        cache_tokens_lost=one.cache_tokens,
        requests_in_flight=one.in_flight,
        notes=[] if alone else [f"{words} while it is drained. It goes on running, and takes requests again when the drain is taken back."],
        warnings=["No other engine serves: every new request will be refused until the drain is taken back."] if alone else [],
        heavy=alone or pool.is_heavy(one.bound_sessions),
    )


def undrain_effect(pool: PoolUse, instance: str, *, replaced: bool = True) -> PlanEffect:
    """Its sessions have moved and do not come back by themselves. Raises NotFound."""
    one = find(pool, instance)
    if one.state is not InstanceState.DRAINING:
        return PlanEffect(notes=[f"{instance} does not drain yet and goes on as it is."])
    if not replaced:
        return PlanEffect(notes=["It takes requests again; sessions that moved stay where they are."])
    return PlanEffect(notes=["It takes requests again, unless its successor serves already; sessions that moved stay where they are."])
