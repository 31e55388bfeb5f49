"""Creates a pool. The module `delete` shows and undoes such a plan."""

from collections.abc import Mapping
from typing import Any

from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.plans.changes import Asked, Change, Kind, checked
from fairlead_api.plans.objects import ClusterObject, Target
from fairlead_client.resources.plan_kinds import PlanKind


async def _change(asked: Asked) -> Change:
    """Return the change that creates the requested pool. Raises Conflict (pool-exists), InvalidInput."""
    target = Target.of_pool(asked.pool)
    try:
        await asked.cluster.read(target)
    except NotFound:
        spec = dict(asked.request.fields or {})
        checked({}, spec, asked.policies)
        return Change(target=target, found=_nothing(), patch=spec)
    raise Conflict("pool-exists", f"there is a pool {asked.pool} already; choose another name, or edit that one")


def _nothing() -> ClusterObject:
    return ClusterObject(uid="", resource_version="", generation=0, spec={}, labels={}, annotations={}, managers=())


def manifest_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a pool with this spec and without labels and annotations."""
    return {"labels": {}, "annotations": {}, "spec": dict(spec)}


KIND = Kind(name=PlanKind.CREATE, change=_change, questions=lambda _change, _policies: ())
"""The kind `create`. Its effect is `delete.creation_effect`."""
