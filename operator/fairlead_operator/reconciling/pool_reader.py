"""Reads the objects of one pool from the cluster."""

from dataclasses import dataclass
from typing import Any

from fairlead.instances import Role
from fairlead.pools import PoolSpec
from fairlead.reconciling.observed import ObservedInstance
from fairlead.tables import PoolKey
from fairlead_operator.applying.ownership import strange_pods
from fairlead_operator.cluster import Cluster, Resource
from fairlead_operator.manifests import PoolIdentity
from fairlead_operator.observing.pods import Pod, read_pods
from fairlead_operator.reconciling.role_objects import read_role_objects
from fairlead_operator.reconciling.roles import RoleObject, WantedReplicas, wanted_replicas
from fairlead_operator.reconciling.specs import SpecInForce


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReading:
    """The objects of a pool, as a round found them.

    `strangers` are the names of pods with the pool's label and another owner; `declared` has the number of instances
    that each role is asked to have.
    """

    identity: PoolIdentity
    pool: dict[str, Any]
    in_force: SpecInForce
    pods: tuple[Pod, ...]
    strangers: tuple[str, ...]
    objects: dict[Role, RoleObject]
    declared: tuple[WantedReplicas, ...]

    @property
    def status(self) -> dict[str, Any]:
        """The status as it was last written."""
        status: dict[str, Any] = self.pool.get("status") or {}
        return status

    @property
    def instances(self) -> tuple[ObservedInstance, ...]:
        """The pool's instances, as the planner takes them."""
        return tuple(pod.instance for pod in self.pods)


class PoolReader:
    """Reads one pool; every call raises ClusterError."""

    def __init__(self, key: PoolKey, cluster: Cluster) -> None:
        self._key = key
        self._cluster = cluster

    async def pool(self) -> dict[str, Any] | None:
        """The pool's object; None when there is none."""
        return await self._cluster.get(Resource.POOLS, self._key.namespace, self._key.name)

    async def pods(self, identity: PoolIdentity) -> list[dict[str, Any]]:
        """All pods with the pool's label.

        They are read after the pool, so that the pool's status never counts a pod that is not seen here.
        """
        return await self._cluster.find(Resource.PODS, self._key.namespace, identity.selector())

    async def read(self, identity: PoolIdentity, pool: dict[str, Any], pods: list[dict[str, Any]], in_force: SpecInForce) -> PoolReading:
        """What a round goes by: the pool and its pods, read before, and its roles' objects."""
        objects = await self._role_objects(identity, in_force.spec)
        return PoolReading(
            identity=identity,
            pool=pool,
            in_force=in_force,
            pods=read_pods(pods, identity.uid),
            strangers=strange_pods(pods, identity),
            objects=objects,
            declared=wanted_replicas(in_force.spec, pool, objects),
        )

    async def _role_objects(self, identity: PoolIdentity, spec: PoolSpec | None) -> dict[Role, RoleObject]:
        if spec is None or all(role.name is Role.BOTH for role in spec.roles):
            return {}
        found = await self._cluster.find(Resource.ROLES, self._key.namespace, identity.selector())
        return read_role_objects(found, identity)
