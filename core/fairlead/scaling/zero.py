"""Scaling to zero instances and from zero, in mode SLO: all roles of a pool together, or none.

A pool goes to zero if for `zero.idle_after_seconds` no router has had a request for it, in flight or held. It is
started again when a router holds a request. The first number is the number of instances that prefill the held requests
within `recovery_seconds`, at least one. It is computed with the best known speed (`fairlead.capabilities`), because no
instance runs that could be measured. More requests arrive until the first instance serves, which takes the measured
start time. So further instances may be added for the requests that will be held by then, if requests keep arriving at
the rate since the start. If a figure is unknown, a running pool stays up and a pool at zero stays at zero.
"""

from collections.abc import Mapping
from dataclasses import replace

from fairlead.capabilities import UNKNOWN, Figure
from fairlead.instances import Role
from fairlead.scaling.bounds import BoundsInForce
from fairlead.scaling.memory import Recommended, RoleMemory, ScalingMemory, Woken, with_step
from fairlead.scaling.recommendations import Cause, Controller, Recommendation, Verdict
from fairlead.scaling.signals import PoolDemand
from fairlead.scaling.sizing import Capacity, whole_instances
from fairlead.scaling.specs import ScalingMode, ScalingSpec
from fairlead.scaling.stabilization import steps_kept_seconds


def is_at_zero(roles: Mapping[Role, RoleMemory]) -> bool:
    """Return whether the pool has no instance because scaling decided so."""
    return all(role.replicas == 0 for role in roles.values())


def was_at_zero(memory: ScalingMemory, declared: Mapping[Role, int]) -> bool:
    """Return whether the last round left the pool without an instance and the declaration has not changed since."""
    return {role.role: role.declared for role in memory.roles} == declared and is_at_zero({role.role: role for role in memory.roles})


def may_be_zero(roles_may: bool, bounds: Mapping[Role, BoundsInForce]) -> bool:
    """Return whether the roles' own minimum and all open windows allow zero instances."""
    return roles_may and not any(one.lower > 0 and one.lower_by is not None for one in bounds.values())


def stepped(
    roles: Mapping[Role, RoleMemory],
    bounds: Mapping[Role, BoundsInForce],
    demand: PoolDemand | None,
    spec: ScalingSpec,
    capacity: Capacity,
    now: float,
    *,
    may_sleep: bool,
) -> tuple[dict[Role, RoleMemory], list[Recommendation]] | None:
    """Return the roles' memories of a pool that is at zero or goes to zero, and the recommendations to report; None for
    any other pool.
    """
    if spec.mode is ScalingMode.FIXED:
        return None
    if is_at_zero(roles):
        if demand is None or not demand.held_requests or not all(one.upper for one in bounds.values()):
            return dict(roles), []
        tokens = demand.held_prompt_tokens
        numbers = {role: bounds[role].clamp(_for_held(role, tokens, spec, capacity)) for role in roles}
        woken = {role: replace(one, woken=Woken(at=now, held_prompt_tokens=tokens)) for role, one in roles.items()}
        return _all_to(numbers, woken, bounds, demand, Cause.HELD, spec, now, capacity.prefill_speed)
    if demand is not None and spec.mode is ScalingMode.SLO and demand.held_requests and not demand.in_flight:
        return _while_starting(roles, bounds, demand, spec, capacity, now)
    if not may_sleep or demand is None or not _is_idle(demand, spec):
        return None
    return _all_to(dict.fromkeys(roles, 0), roles, bounds, demand, Cause.IDLE, spec, now)


def _is_idle(demand: PoolDemand, spec: ScalingSpec) -> bool:
    unused = not demand.held_requests and not demand.in_flight
    return unused and demand.idle_seconds is not None and demand.idle_seconds >= spec.zero.idle_after_seconds


def _while_starting(
    roles: Mapping[Role, RoleMemory],
    bounds: Mapping[Role, BoundsInForce],
    demand: PoolDemand,
    spec: ScalingSpec,
    capacity: Capacity,
    now: float,
) -> tuple[dict[Role, RoleMemory], list[Recommendation]] | None:
    """Return the roles' memories with instances added for the requests that arrive until the first instances serve.
    None if no further instances are needed, or if figures are unknown.
    """
    start = capacity.start_seconds.observed
    expected = {role: _expected(one, demand, start, now) for role, one in roles.items()}
    numbers = {
        role: number
        for role, tokens in expected.items()
        if tokens is not None and (number := bounds[role].clamp(_for_held(role, tokens, spec, capacity))) > roles[role].replicas
    }
    if not numbers:
        return None
    most = max(tokens for tokens in expected.values() if tokens is not None)
    return _all_to(numbers, roles, bounds, demand, Cause.HELD, spec, now, capacity.prefill_speed, capacity.start_seconds, most)


def _expected(role: RoleMemory, demand: PoolDemand, start_seconds: float | None, now: float) -> int | None:
    """Return the prompt tokens that will be held when the first instance serves; None unless an instance is starting
    and has not exceeded the usual start time.
    """
    if start_seconds is None or role.woken is None or not 0 < (passed := now - role.woken.at) < start_seconds:
        return None
    came = max(0, demand.held_prompt_tokens - role.woken.held_prompt_tokens)
    return round(demand.held_prompt_tokens + came / passed * (start_seconds - passed))


def _for_held(role: Role, held_prompt_tokens: int, spec: ScalingSpec, capacity: Capacity) -> int:
    """Return the first number of instances. The needed number of decode instances becomes known only once there are
    outputs.
    """
    if role is Role.DECODE:
        return 1
    speed = capacity.prefill_speed.value
    if speed is None:
        return 1
    needed = whole_instances(held_prompt_tokens / speed / spec.recovery_seconds)
    return max(1, min(needed, spec.scale_up.instances))


def _all_to(
    numbers: Mapping[Role, int],
    roles: Mapping[Role, RoleMemory],
    bounds: Mapping[Role, BoundsInForce],
    demand: PoolDemand,
    cause: Cause,
    spec: ScalingSpec,
    now: float,
    speed: Figure = UNKNOWN,
    start: Figure = UNKNOWN,
    expected_prompt_tokens: int | None = None,
) -> tuple[dict[Role, RoleMemory], list[Recommendation]]:
    after, told = dict(roles), []
    for role, number in numbers.items():
        one = roles[role]
        recommendation = Recommendation(
            controller=Controller.SCALING,
            role=role,
            current=one.replicas,
            recommended=number,
            replicas=number,
            verdict=Verdict.APPLIED if spec.mode is ScalingMode.SLO else Verdict.ADVISED,
            cause=cause,
            hold=None,
            bounds=bounds[role],
            demand=demand,
            speed=speed,
            start=start,
            expected_prompt_tokens=expected_prompt_tokens,
        )
        if recommendation.line != one.told:
            told.append(recommendation)
        after[role] = replace(one, told=recommendation.line)
        if spec.mode is ScalingMode.SLO:
            # The windows of stabilisation begin anew: what was recommended before says nothing of what comes now.
            seen = (Recommended(replicas=number, at=now),)
            stepped_role = with_step(after[role], number, now, steps_kept_seconds(spec))
            after[role] = replace(stepped_role, compared_at=now, highest=seen, lowest=seen)
    return after, told
