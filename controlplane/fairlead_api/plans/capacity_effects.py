"""The effect of changes of a pool's instances: scaling, rolling back to a revision, pausing a rollout, and leaving
numbers to a controller. Only the simulation predicts what requests get. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fairlead.durations import format_duration
from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.pools import PoolSpec
from fairlead.revisions import revision_data, revision_name
from fairlead.rollout_specs import RolloutSpec
from fairlead.scaling.specs import RatioMode, ScalingMode
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
    """Whether prompt tokens arrive faster than this number of instances was seen to compute them."""
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
        found.append(
            "Prompt tokens arrive faster than this number of instances was measured to compute them; the TTFT target would be missed."
        )
    if affected and after > 0:
        found.append(f"{affected} of {total} sessions move to other instances and lose their cache there.")
    return found


def _not_ready(pool: PoolUse) -> list[str]:
    waiting = sum(use.state in {InstanceState.PENDING, InstanceState.STARTING} for use in pool.instances)
    return [f"{waiting} {'instance is' if waiting == 1 else 'instances are'} not ready yet."] if waiting else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """The roles whose template changes. `updated` counts per role the instances that alone are replaced, where all
    others still have the template that the pool goes back to.
    """

    roles: tuple[Role, ...]
    updated: Mapping[Role, int]
    paused: bool


def rollback_of(pool: str, before: Mapping[str, Any], after: Mapping[str, Any], status: Mapping[str, Any]) -> Rollback:
    """What a spec with another engine or other templates replaces, according to the pool's status."""
    old, new = revision_data(before), revision_data(after)
    templates = {role["name"]: role.get("template") for role in old["roles"]}
    names = [role["name"] for role in new["roles"] if old["engine"] != new["engine"] or templates.get(role["name"]) != role.get("template")]
    known = {Role(role["name"]): int(role.get("updated") or 0) for role in status.get("roles") or () if role.get("name") in set(Role)}
    goes_back = status.get("currentRevision") == revision_name(pool, new) != status.get("updateRevision")
    return Rollback(
        roles=tuple(Role(name) for name in names) or (Role.BOTH,),
        updated=known if goes_back else {},
        paused=bool((after.get("rollout") or {}).get("paused")),
    )


def rollback_effect(pool: PoolUse, asked: Rollback) -> PlanEffect:
    """The instances that are replaced, and the sessions that move with them: as large a part of a role's sessions as of
    its instances.
    """
    replaced, sessions, tokens, found = 0, 0.0, 0.0, []
    for role in asked.roles:
        present = [use for use in pool.instances if use.role is role and use.state is not InstanceState.DRAINING]
        count = min(len(present), asked.updated.get(role, len(present)))
        replaced += count
        share = count / len(present) if present else 0.0
        sessions += share * sum(use.bound_sessions for use in present)
        tokens += share * sum(use.cache_tokens for use in present)
        found.append(_words(role, count, len(present)))
    paused = "The rollout is paused, so nothing is replaced until it is resumed."
    return PlanEffect(
        instances_added=replaced,
        instances_removed=replaced,
        sessions_moved=round(sessions),
        cache_tokens_lost=round(tokens),
        notes=found,
        warnings=[paused] if asked.paused else [],
        heavy=pool.is_heavy(sessions),
    )


def rollout_effect(pool: PoolUse, rollout: RolloutSpec) -> PlanEffect:
    """The effect on the rollout from now on."""
    if rollout.paused:
        return PlanEffect(notes=["Outdated instances stay; a lost one is replaced with the template it had."])
    present: list[InstanceUse] = [use for use in pool.instances if use.state is not InstanceState.DRAINING]
    words = f"at most {rollout.max_surge} above the wanted number and {rollout.max_unavailable} missing"
    return PlanEffect(notes=[f"Outdated instances among the {len(present)} are replaced, {words} at a time; a stopped rollout goes on."])


def _words(role: Role, count: int, present: int) -> str:
    if count == 0:
        return f"No instance of role {role} is replaced."
    if count == 1:
        return f"1 of {present} instances of role {role} is drained and replaced."
    return f"{count} of {present} instances of role {role} are drained and replaced one after the other."


SCALING_MODES: Mapping[str, str] = MappingProxyType(
    {
        ScalingMode.FIXED: "Each role goes to its declared number, whatever arrives.",
        ScalingMode.SLO: "Instances are added and drained without a person from now on, within each role's bounds.",
        ScalingMode.ADVISE: "Numbers stay as declared; every recommendation is kept with its signals.",
    }
)
RATIO_MODES: Mapping[str, str] = MappingProxyType(
    {
        RatioMode.FIXED: "What the controller moved between the roles is taken back: each goes to its declared number.",
        RatioMode.AUTO: "Instances drain and change between prefill and decode without a person, one per cooldown, never the last of a role.",
        RatioMode.ADVISE: "Roles go to their declared numbers; every move that would be made is kept with its signals.",
    }
)


def scaling_effect(after: PoolSpec) -> PlanEffect:
    """The effect of the scaling mode from now on, and of zero scaling while the pool has no requests."""
    scaling, zero = after.scaling, after.scaling.zero
    goes = scaling.mode is ScalingMode.SLO and all(role.min_replicas == 0 for role in after.roles)
    notes = [SCALING_MODES[scaling.mode]]
    if goes:
        notes.append(f"Its last instances go after {format_duration(zero.idle_after_seconds)} without a request.")
    elif scaling.mode is ScalingMode.SLO:
        notes.append("Its last instances stay without requests: roles have a minReplicas above 0.")
    else:
        notes.append("Its instances stay without requests: only mode SLO takes the last ones.")
    if zero.hold_for_seconds == 0 or zero.held_requests == 0:
        return PlanEffect(notes=notes, warnings=["Routers hold no request while the first instance starts: each gets a 503 until then."])
    most = "1 request" if zero.held_requests == 1 else f"{zero.held_requests} requests"
    notes.append(f"While its first instance starts, a router holds up to {most}, each for up to {format_duration(zero.hold_for_seconds)}.")
    return PlanEffect(notes=notes)


def ratio_effect(after: PoolSpec) -> PlanEffect:
    """What the mode of the ratio means from now on."""
    return PlanEffect(notes=[RATIO_MODES[after.ratio.mode]])
