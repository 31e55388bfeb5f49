"""Replaces the whole spec of a pool by a spec that a person has edited."""

from fairlead.errors import InvalidInput
from fairlead_api.plans.changes import Asked, Change, Kind
from fairlead_api.plans.kinds.revert import questions_of_parts, require_possible
from fairlead_api.plans.merge_patches import between
from fairlead_client.resources.plan_kinds import PlanKind


async def _change(asked: Asked) -> Change:
    target, found = await asked.its_pool()
    wanted = asked.request.fields or {}
    patch = between(found.spec, wanted)
    if not patch:
        raise InvalidInput("spec", "this text", "the pool has this spec already; change something")
    change = Change(target=target, found=found, patch=patch)
    require_possible(change)
    return change


KIND = Kind(name=PlanKind.SPEC, change=_change, questions=questions_of_parts)
