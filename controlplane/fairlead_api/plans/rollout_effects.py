"""Says what a rollback replaces, and what pausing or resuming a rollout means. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.instances import InstanceState, Role
from fairlead.revisions import revision_data, revision_name
from fairlead.rollout_specs import RolloutSpec
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_client.resources.plans import PlanEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """The roles whose template changes. `updated` counts per role the instances that alone are replaced, where all
    others still have the template that the pool goes back to.
    """

    roles: tuple[Role, ...]
    updated: Mapping[Role, int]
    paused: bool


def rollback_of(pool: str, before: Mapping[str, Any], after: Mapping[str, Any], status: Mapping[str, Any]) -> Rollback:
    """What another engine or other templates in the spec replace, by the pool's status."""
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
    """What the rollout does from now on."""
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
