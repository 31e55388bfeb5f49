"""The effect of scaling a pool on present sessions. What requests get is for the simulation to say. Pure."""

from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_client.resources.plans import PlanEffect


def scale_effect(pool: PoolUse, role: Role, before: int, after: int) -> PlanEffect:
    """The effect of scaling a role from `before` to `after` instances.

    The instances removed are those that the operator would choose: first those that do not serve yet, then those with
    the least bound sessions × cached tokens.
    """
    present = [use for use in pool.instances if use.role is role and use.state is not InstanceState.DRAINING]
    ranked = sorted(present, key=_worth)
    victims = ranked[: max(0, min(len(ranked), before - after))]
    affected = sum(use.bound_sessions for use in victims)
    homeless = after == 0 or len(victims) == len(present)
    return PlanEffect(
        instances_added=max(0, after - before),
        instances_removed=max(0, before - after),
        victims=[use.id for use in victims],
        sessions_moved=0 if homeless else affected,
        sessions_lost=affected if homeless else 0,
        cache_tokens_lost=sum(use.cache_tokens for use in victims),
        requests_in_flight=sum(use.in_flight for use in victims),
        notes=_not_ready(pool) if after > before else [],
        warnings=_warnings(pool, role, before, after, affected),
        heavy=(after == 0 and before > 0) or pool.is_heavy(affected),
    )


def _worth(use: InstanceUse) -> tuple[bool, int, int, str]:
    return use.state in ACCEPTING, use.bound_sessions * use.cache_tokens, use.in_flight, use.id


def _is_too_much(pool: PoolUse, role: Role, instances: int) -> bool:
    """Whether prompt tokens come faster than so many instances were seen to compute them."""
    if role is Role.DECODE or instances == 0 or pool.miss_tokens_per_second is None or pool.prefill_tokens_per_second is None:
        return False
    return pool.miss_tokens_per_second >= instances * pool.prefill_tokens_per_second


def _warnings(pool: PoolUse, role: Role, before: int, after: int, affected: int) -> list[str]:
    found, total = [], pool.sessions
    if after == 0 and before > 0:
        found.append("Every request will be refused until the pool is scaled up again.")
        if affected:
            found.append(f"{affected} of {total} sessions are lost with their cache: no instance is left to take them.")
    elif _is_too_much(pool, role, after):
        found.append("Prompt tokens arrive faster than so many instances were seen to compute them; the TTFT target would be missed.")
    if affected and after > 0:
        found.append(f"{affected} of {total} sessions move to other instances and lose their cache there.")
    return found


def _not_ready(pool: PoolUse) -> list[str]:
    waiting = sum(use.state in {InstanceState.PENDING, InstanceState.STARTING} for use in pool.instances)
    return [f"{waiting} {'instance is' if waiting == 1 else 'instances are'} not ready yet."] if waiting else []
