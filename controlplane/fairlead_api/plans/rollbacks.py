"""Going back to a revision: which one, and the merge patch of the spec that does it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.revisions import rolled_back
from fairlead_api.plans.merge_patches import between
from fairlead_api.plans.rollouts import StoredRevision
from fairlead_client.resources.plans import PlanRequest


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
