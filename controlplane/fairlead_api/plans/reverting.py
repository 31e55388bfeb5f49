"""Rollback to a former revision of the template or of the whole spec: finding the revision, its merge patch, and the
kinds of change that this patch makes. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.revisions import revision_data, rolled_back
from fairlead_api.plans.merge_patches import between
from fairlead_api.plans.rollouts import StoredRevision
from fairlead_client.resources.plan_kinds import SECTIONS, PlanKind, PlanRequest
from fairlead_client.resources.plans import PlanEffect


def rollback_patch(request: PlanRequest, spec: Mapping[str, Any], revisions: Sequence[StoredRevision]) -> dict[str, Any]:
    """The merge patch that gives the spec the engine and templates of a revision, or one role its template.

    Without a number it is the newest revision that differs from the spec. Raises InvalidInput when there is none.
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
        raise InvalidInput("revision", request.revision, "the spec is so already; write another")
    return patches[request.revision]


def revert_patch(number: int, spec: Mapping[str, Any], former: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that restores a former spec. Raises InvalidInput if the spec is the same already."""
    if change := between(spec, former):
        return change
    raise InvalidInput("revision", number, "the spec is so already; write another")


def kinds_in(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[PlanKind]:
    """The kinds of plans that would each make a part of the change between two specs."""
    if _numbers(before) != _numbers(after):
        yield PlanKind.SCALE
    if revision_data(before) != revision_data(after):
        yield PlanKind.ROLLBACK
    if _at(before, "scaling", "schedules") != _at(after, "scaling", "schedules"):
        yield PlanKind.SCHEDULE
    for kind, facts in SECTIONS.items():
        if any(_at(before, facts.section, name) != _at(after, facts.section, name) for name in facts.fields):
            yield kind


def joined(effects: Sequence[PlanEffect]) -> PlanEffect:
    """The effect of several changes at once. Each moves the same sessions, so the largest single number counts."""
    if len(effects) == 1:
        return effects[0]
    predicted = [one for one in effects if one.predicted_attainment is not None or one.predicted_refusals is not None]
    only = predicted[0] if len(predicted) == 1 else PlanEffect()
    several = sum(one.sessions_moved > 0 for one in effects) > 1
    return PlanEffect(
        instances_added=sum(one.instances_added for one in effects),
        instances_removed=sum(one.instances_removed for one in effects),
        victims=list(dict.fromkeys(name for one in effects for name in one.victims)),
        sessions_moved=max((one.sessions_moved for one in effects), default=0),
        sessions_lost=max((one.sessions_lost for one in effects), default=0),
        cache_tokens_lost=max((one.cache_tokens_lost for one in effects), default=0),
        requests_in_flight=max((one.requests_in_flight for one in effects), default=0),
        key_share_moved=max((one.key_share_moved for one in effects), default=0.0),
        predicted_attainment=only.predicted_attainment,
        predicted_refusals=only.predicted_refusals,
        prediction_basis=only.prediction_basis,
        warnings=[words for one in effects for words in one.warnings],
        notes=[
            *(words for one in effects for words in one.notes),
            *(["Several parts move sessions; at least as many move as the part that moves most."] if several else []),
        ],
        heavy=any(one.heavy for one in effects),
    )


def _numbers(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("name", "replicas", "minReplicas", "maxReplicas")
    return spec.get("replicas"), [[role.get(name) for name in names] for role in spec.get("roles") or ()]


def _at(spec: Mapping[str, Any], section: str, name: str) -> Any:
    return (spec.get(section) or {}).get(name)
