"""Rolls back to the engine and templates of an earlier revision, which is named by its number in the list of
revisions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instances import NOT_COUNTED, Role
from fairlead.revisions import revision_data, revision_name, rolled_back
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead_api.plans.changes import Asked, Change, Kind, Spec, checked
from fairlead_api.plans.evidence import PoolUse
from fairlead_api.plans.hand_overs import forecast
from fairlead_api.plans.merge_patches import between
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Question, Tried
from fairlead_api.plans.rollouts import StoredRevision
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import PlanEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """The roles whose template a rollback changes. `updated` counts, by role, the instances that must be replaced; all
    other instances are assumed to still have the template that is restored.
    """

    roles: tuple[Role, ...]
    updated: Mapping[Role, int]
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackQuestion:
    """Finds the effect of restoring the templates of an earlier revision."""

    rollback: Rollback

    async def effect(self, known: Known) -> PlanEffect:
        return rollback_effect(known.use, self.rollback)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("the simulator does not know how earlier engines and templates differ")


async def _change(asked: Asked) -> Change:
    target, found = await asked.its_pool()
    patch = rollback_patch(asked.request, found.spec, await asked.cluster.revisions(asked.pool))
    return Change(target=target, found=found, patch=patch)


def _questions(change: Change, policies: PolicyCatalogue) -> Sequence[Question]:
    checked(change.part, change.patch, policies)
    return [RollbackQuestion(rollback=rollback_of(change.target.name, change.part, change.after, change.found.status))]


def _is_part(before: Spec, after: Spec) -> bool:
    return revision_data(before) != revision_data(after)


def rollback_patch(request: PlanRequest, spec: Mapping[str, Any], revisions: Sequence[StoredRevision]) -> dict[str, Any]:
    """Return the merge patch that restores the engine and templates of a revision, or only the template of the
    requested role.

    If the request gives no number, the newest revision that differs from the spec is restored. Raises InvalidInput if
    no revision differs.
    """
    names = [role.get("name") for role in spec.get("roles") or ()]
    if request.role is not None and request.role not in names:
        raise InvalidInput("role", request.role, f"write {' or '.join(map(str, names)) or Role.BOTH.value}")
    newest_first = sorted(revisions, key=lambda one: one.number, reverse=True)
    patches = {one.number: between(spec, rolled_back(spec, one.data, request.role)) for one in newest_first}
    if request.revision is None:
        found = next((patch for patch in patches.values() if patch), None)
        if found is None:
            raise InvalidInput("revision", None, "the pool has no other revision to go back to")
        return found
    if request.revision not in patches:
        known = ", ".join(str(number) for number in patches) or "none"
        raise InvalidInput("revision", request.revision, f"the pool's revisions are: {known}")
    if not patches[request.revision]:
        raise InvalidInput("revision", request.revision, "the spec already has these values; write another")
    return patches[request.revision]


def rollback_of(pool: str, before: Mapping[str, Any], after: Mapping[str, Any], status: Mapping[str, Any]) -> Rollback:
    """Return the rollback from the spec `before` to `after`: the roles whose engine or template differs, and, from the
    pool's status, the number of instances to replace.
    """
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
    """Return the effect of a rollback: the instances that are replaced, and the sessions that move with them. It is
    assumed that a role's sessions are spread evenly over its instances.
    """
    replaced, sessions, tokens, found, gone = 0, 0.0, 0.0, [], []
    for role in asked.roles:
        present = [use for use in pool.instances if use.role is role and use.state not in NOT_COUNTED]
        count = min(len(present), asked.updated.get(role, len(present)))
        replaced += count
        share = count / len(present) if present else 0.0
        sessions += share * sum(use.bound_sessions for use in present)
        tokens += share * sum(use.cache_tokens for use in present)
        found.append(_words(role, count, len(present)))
        gone += present[:count]
    paused = "The rollout is paused, so nothing is replaced until it is resumed."
    return PlanEffect(
        instances_added=replaced,
        instances_removed=replaced,
        sessions_moved=round(sessions),
        cache_tokens_lost=round(tokens),
        notes=found,
        warnings=[paused] if asked.paused else [],
        heavy=pool.is_heavy(sessions),
        hand_over=None if asked.paused else forecast(pool, gone),
    )


def _words(role: Role, count: int, present: int) -> str:
    if count == 0:
        return f"No instance of role {role} is replaced."
    if count == 1:
        return f"1 of {present} instances of role {role} is drained and replaced."
    return f"{count} of {present} instances of role {role} are drained and replaced one after the other."


KIND = Kind(name=PlanKind.ROLLBACK, change=_change, questions=_questions, is_part=_is_part)
