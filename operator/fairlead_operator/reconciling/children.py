"""Restores a pool's children: the Service, and per role a PodDisruptionBudget and, for prefill and decode, the
InferencePoolRole.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fairlead.instances import Role
from fairlead.pools import PoolSpec
from fairlead.reconciling.observed import DesiredRole
from fairlead_operator.applying.ownership import delete_others, restore
from fairlead_operator.applying.retrying import ActionRetries, fingerprint
from fairlead_operator.cluster import Cluster, Resource
from fairlead_operator.manifests import disruption_budget, pool_role, service
from fairlead_operator.pod_templates import spans
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.reconciling.roles import RoleObject, WantedReplicas
from fairlead_operator.reconciling.specs import SpecInForce


class Children:
    """The children of one pool.

    To save calls, this object remembers when the children were last found correct. The children are checked again after
    an event about one of them, a change of their inputs, or `recheck_seconds`.
    """

    def __init__(self, cluster: Cluster, retries: ActionRetries, recheck_seconds: float) -> None:
        self._cluster = cluster
        self._retries = retries
        self._recheck_seconds = recheck_seconds
        self._found_right: tuple[object, int, float] | None = None
        self._changes = 0

    def changed(self) -> None:
        """Check the children in the next round, even if they were found correct a moment ago."""
        self._changes += 1

    async def restore(
        self,
        identity: PoolIdentity,
        in_force: SpecInForce,
        declared: tuple[WantedReplicas, ...],
        desired: tuple[DesiredRole, ...],
        objects: Mapping[Role, RoleObject],
        leaving: Mapping[Role, int],
        target: int | str,
        now: float,
    ) -> None:
        """Create missing children, restore changed ones, and delete budgets and role objects that the pool should not
        have.

        `leaving` counts the ready instances that drain; `target` is the target port of the Service. For a new pool, the
        children are created without first looking for existing ones.
        """
        spec, is_new = in_force.spec, in_force.previous is None
        if spec is None:
            return
        changes, basis = self._changes, (spec, desired, leaving, target)
        if self._found_right is not None:
            known, count, at = self._found_right
            if known == basis and count == changes and 0 <= now - at < self._recheck_seconds:
                return
        wanted: dict[Resource, list[dict[str, Any]]] = {Resource.SERVICES: [], Resource.BUDGETS: [], Resource.ROLES: []}
        if not spec.adopts:  # the workload's pods have a Service and a budget of their own: a second budget would block every eviction
            wanted[Resource.SERVICES] = [service(identity, spec, target)]
            wanted[Resource.BUDGETS] = [
                disruption_budget(identity, role.role, role.replicas, leaving.get(role.role, 0), spans(spec, role.role)) for role in desired
            ]
            wanted[Resource.ROLES] = list(_role_objects(identity, spec, declared, objects))
        right = True
        for resource, bodies in wanted.items():
            for body in bodies:
                act = partial(restore, self._cluster, identity, resource, body, is_new=is_new)
                right = (
                    await self._retries.attempt(identity, ("child", resource, (body["metadata"]["name"], fingerprint(body))), act) and right
                )
        for resource in () if is_new else (Resource.BUDGETS, Resource.ROLES):
            cleared = partial(delete_others, self._cluster, identity, resource, wanted[resource])
            right = await self._retries.attempt(identity, ("others", (resource, fingerprint(wanted[resource]))), cleared) and right
        self._found_right = (basis, changes, now) if right else None


def _role_objects(
    identity: PoolIdentity, spec: PoolSpec, declared: tuple[WantedReplicas, ...], objects: Mapping[Role, RoleObject]
) -> Iterator[dict[str, Any]]:
    """Yield the InferencePoolRoles of prefill and decode.

    An existing object that is not pinned keeps its number of instances, because somebody may be changing it at this
    moment.
    """
    number = {item.role: item.replicas for item in declared}
    for role in spec.roles:
        if role.name is not Role.BOTH:
            own = role.name in objects and role.replicas is None
            yield pool_role(identity, role.name, replicas=None if own else number[role.name], pinned=role.replicas)
