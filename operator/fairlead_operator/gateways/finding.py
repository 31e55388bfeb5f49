"""Finds objects of kinds that a cluster may not have."""

from collections.abc import Sequence
from typing import Any, Protocol

from fairlead_operator.cluster import ClusterRefused, Resource

_OBJECTIVES = (Resource.OBJECTIVES, Resource.FORMER_OBJECTIVES)


class FindsObjects(Protocol):
    """The call to the cluster that this module needs."""

    async def find(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return all objects with these labels. Raises ClusterError."""


async def find_known(cluster: FindsObjects, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]] | None:
    """Return all objects with these labels; None if the cluster does not have the kind, or if this operator may not
    read it.

    Therefore a pool is reconciled even if an optional kind is missing. Raises ClusterError.
    """
    try:
        return await cluster.find(resource, namespace, selector)
    except ClusterRefused as refused:
        if refused.status in {403, 404}:
            return None
        raise


async def find_objectives(cluster: FindsObjects, namespace: str) -> Sequence[dict[str, Any]]:
    """Return the InferenceObjectives of a namespace, from both API groups. Raises ClusterError."""
    return [one for resource in _OBJECTIVES for one in await find_known(cluster, resource, namespace, "") or ()]
