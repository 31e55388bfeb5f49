"""Sets the number of pods of a workload, only through its scale subresource."""

from collections.abc import Mapping
from types import MappingProxyType

from fairlead.adoption_specs import ScaleTargetSpec, WorkloadKind
from fairlead_operator.cluster import Cluster, Resource

SCALABLE: Mapping[WorkloadKind, Resource] = MappingProxyType(
    {
        WorkloadKind.DEPLOYMENT: Resource.DEPLOYMENTS,
        WorkloadKind.STATEFUL_SET: Resource.STATEFUL_SETS,
        WorkloadKind.LEADER_WORKER_SET: Resource.LEADER_WORKER_SETS,
    }
)


async def scale_workload(cluster: Cluster, namespace: str, target: ScaleTargetSpec, before: int, replicas: int) -> bool:
    """Set the workload's number of pods if the number still is `before`, so that no change by others is overwritten.
    Return False if the number was not set.

    Raises ClusterError, also if somebody changes the number at this moment.
    """
    resource = SCALABLE[target.kind]
    scale = await cluster.get(resource, namespace, target.name, subresource="scale")
    if scale is None or int((scale.get("spec") or {}).get("replicas") or 0) != before:
        return False
    body = {"metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]}, "spec": {"replicas": replicas}}
    return await cluster.patch(resource, namespace, target.name, body, subresource="scale")
