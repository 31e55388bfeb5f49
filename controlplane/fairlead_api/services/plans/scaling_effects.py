"""Estimates the effect of scaling a pool from present sessions and traffic. Pure."""

import math

from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead_api.services.plans.evidence import InstanceUse, PoolUse
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
    predicted = None if role is Role.DECODE else attainment(pool, after)
    return PlanEffect(
        instances_added=max(0, after - before),
        instances_removed=max(0, before - after),
        victims=[use.id for use in victims],
        sessions_moved=0 if homeless else affected,
        sessions_lost=affected if homeless else 0,
        cache_tokens_lost=sum(use.cache_tokens for use in victims),
        predicted_attainment=predicted,
        prediction_basis=None if predicted is None else prediction_basis(pool),
        requests_in_flight=sum(use.in_flight for use in victims),
        notes=_not_ready(pool) if after > before else [],
        warnings=_warnings(pool, before, after, affected, predicted),
        heavy=(after == 0 and before > 0) or pool.is_heavy(affected),
    )


def prediction_basis(pool: PoolUse) -> str:
    """The numbers behind a prediction, in words."""
    return (
        f"from the last 5 minutes: {pool.requests_per_second:.1f} requests/s with {pool.miss_tokens_per_second:,.0f} prompt tokens/s not "
        f"cached, {pool.facts.engine.prefill_tokens_per_second:,.0f} tokens/s of prefill per instance; waiting for prefill only, traffic as it is"
    )


def _worth(use: InstanceUse) -> tuple[bool, int, int, str]:
    return use.state in ACCEPTING, use.bound_sessions * use.cache_tokens, use.in_flight, use.id


def attainment(pool: PoolUse, instances: int) -> float | None:
    """Share of requests whose wait for prefill stays within the TTFT target; None without traffic.

    Each instance is modelled as a queue with constant service time (M/D/1, tail exp(-2(1-u)/u x wait/service)).
    """
    if not pool.requests_per_second or pool.miss_tokens_per_second is None:
        return None
    if instances == 0:
        return 0.0
    busy = pool.miss_tokens_per_second / (instances * pool.facts.engine.prefill_tokens_per_second)
    if busy >= 1:
        return 0.0
    service = pool.miss_tokens_per_second / pool.requests_per_second / pool.facts.engine.prefill_tokens_per_second
    room = pool.facts.slo.ttft_seconds - service
    if busy == 0 or service == 0:
        return 1.0
    return 0.0 if room <= 0 else 1 - busy * math.exp(-2 * (1 - busy) / busy * room / service)


def _warnings(pool: PoolUse, before: int, after: int, affected: int, predicted: float | None) -> list[str]:
    found, total = [], pool.sessions
    if after == 0 and before > 0:
        found.append("Every request will be refused until the pool is scaled up again.")
        if affected:
            found.append(f"{affected} of {total} sessions are lost with their cache: no instance is left to take them.")
    elif predicted == 0.0:
        found.append("Prompt tokens arrive faster than the remaining instances can prefill them; the TTFT target would be missed.")
    elif predicted is not None and pool.attainment is not None and predicted < pool.attainment - 0.05:
        found.append(f"TTFT attainment is expected to fall from {pool.attainment:.0%} to about {predicted:.0%}.")
    if affected and after > 0:
        found.append(f"{affected} of {total} sessions move to other instances and lose their cache there.")
    return found


def _not_ready(pool: PoolUse) -> list[str]:
    waiting = sum(use.state in {InstanceState.PENDING, InstanceState.STARTING} for use in pool.instances)
    return [f"{waiting} {'instance is' if waiting == 1 else 'instances are'} not ready yet."] if waiting else []
