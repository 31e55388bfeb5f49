"""Reads the objects of one pool from the cluster."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.instance_marks import GROUP_LABEL
from fairlead.instances import Role
from fairlead.pools import PoolSpec
from fairlead.reconciling.observed import ObservedInstance
from fairlead.reconciling.rollout_progress import Rollout
from fairlead.role_specs import RoleSpec
from fairlead.tables import PoolKey
from fairlead_operator.applying.ownership import strange_pods
from fairlead_operator.applying.workloads import SCALABLE
from fairlead_operator.cluster import Cluster, ClusterRefused, Resource
from fairlead_operator.gateways.finding import find_objectives
from fairlead_operator.gateways.objectives import NO_OBJECTIVES, Objectives, read_objectives
from fairlead_operator.observing.adopted_pods import is_adopted_elsewhere
from fairlead_operator.observing.groups import has_groups, with_groups
from fairlead_operator.observing.pods import KUEUE_JOB_LABEL, Pod, read_pods, waits_for_quota, with_engines, with_words_of_kueue
from fairlead_operator.observing.workloads import WorkloadReading, read_workload, refused_workload
from fairlead_operator.pod_templates import SELECTED_HASH
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.reconciling.lost_status import NOTHING, is_lost, standing_numbers
from fairlead_operator.reconciling.revisions import Revisions
from fairlead_operator.reconciling.roles import RoleObject, WantedReplicas, read_role_objects, wanted_replicas
from fairlead_operator.reconciling.rollouts import read_rollout, read_rollout_note
from fairlead_operator.reconciling.specs import SpecInForce

_ASKED_AT_ONCE = 32
"""Maximum number of waiting pods whose Workloads are requested from Kubernetes in one query, so that the query stays
short.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReading:
    """The objects of a pool, as a round found them.

    `strangers` are the names of pods with the pool's label and another owner; `declared` has the declared number of
    instances of each role.
    """

    identity: PoolIdentity
    pool: dict[str, Any]
    in_force: SpecInForce
    pods: tuple[Pod, ...]
    strangers: tuple[str, ...]
    objects: dict[Role, RoleObject]
    declared: tuple[WantedReplicas, ...]
    workloads: tuple[WorkloadReading, ...] = ()
    objectives: Objectives = NO_OBJECTIVES
    revisions: tuple[str, ...] = ()
    """The names of the revisions to which the instances with earlier templates belong, the most frequent revision
    first.
    """
    rollout: Rollout | None = None
    """The rollout in progress, from the status or, if the status is lost, from the rollout's revision; None without a
    rollout.
    """
    standing: Mapping[Role, int]
    """The present number of instances of each role whose desired number is missing in the status; empty if the status
    is complete.
    """

    @property
    def status(self) -> dict[str, Any]:
        """The pool's last written status."""
        status: dict[str, Any] = self.pool.get("status") or {}
        return status

    @property
    def current_revision(self) -> str:
        """The name of the revision that all instances last had, from the status. If the status was lost during a
        rollout, it is the most frequent earlier revision of the instances. Empty if unknown.
        """
        return str(self.status.get("currentRevision") or "") or next(iter(self.revisions), "")

    @property
    def instances(self) -> tuple[ObservedInstance, ...]:
        """The pool's instances, as input of the planner."""
        return tuple(pod.instance for pod in self.pods)


class PoolReader:
    """Reads one pool. Every call raises ClusterError."""

    def __init__(self, key: PoolKey, cluster: Cluster, revisions: Revisions, *, serves_gateways: bool) -> None:
        self._key = key
        self._cluster = cluster
        self._revisions = revisions
        self._serves_gateways = serves_gateways
        self._has_groups = False
        """Whether LeaderWorkerSets of the pool were seen; a set without a leader pod appears in no list of pods."""

    async def pool(self) -> dict[str, Any] | None:
        """Return the pool's object; None if there is none."""
        return await self._cluster.get(Resource.POOLS, self._key.namespace, self._key.name)

    async def pods(self, identity: PoolIdentity, spec: PoolSpec | None = None) -> list[dict[str, Any]]:
        """Return all pods with the pool's label, and all pods that a role selects. For each group, the document of its
        leader is returned (see `with_groups`).

        The pods are read after the pool, so that the pool's status never counts a pod that is missing here. A pod that
        has the label and is selected too is read twice; the second document is used.
        """
        found = await self._cluster.find(Resource.PODS, self._key.namespace, identity.selector())
        for role in spec.roles if spec is not None else ():
            if role.selector is not None:
                found = [*found, *await self._cluster.find(Resource.PODS, self._key.namespace, str(role.selector))]
        once = list({document["metadata"]["name"]: document for document in found}.values())
        wants_groups = spec is not None and any(role.spans > 1 for role in spec.roles)
        return await self._with_groups(identity, once) if wants_groups or self._has_groups or has_groups(once) else once

    async def _with_groups(self, identity: PoolIdentity, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
        sets = await self._sets(identity)
        self._has_groups = bool(sets)
        members = await self._cluster.find(Resource.PODS, identity.namespace, f"{GROUP_LABEL}={identity.name}") if sets else []
        return with_groups(pods, sets, members)

    async def _sets(self, identity: PoolIdentity) -> list[dict[str, Any]]:
        """Return the LeaderWorkerSets that have the pool's label; an empty list in a cluster without that kind."""
        try:
            return await self._cluster.find(Resource.LEADER_WORKER_SETS, identity.namespace, identity.selector())
        except ClusterRefused as refused:
            if refused.status != 404:
                raise
            return []

    async def read(self, identity: PoolIdentity, pool: dict[str, Any], pods: list[dict[str, Any]], in_force: SpecInForce) -> PoolReading:
        """Return everything that a round needs. `pool` and `pods` were read before; the objects of the roles, the
        workloads and the rollout's note are read here.
        """
        objects = await self._role_objects(identity, in_force.spec)
        found, revisions = await self.instances(identity, pods, in_force)
        status = pool.get("status") or {}
        rollout = read_rollout(status.get("rollout"))
        if rollout is None and revisions:
            rollout = read_rollout_note(await self._revisions.note_of_newest(identity, in_force))
        instances = tuple(pod.instance for pod in found)
        standing = await self._standing(identity, in_force.spec, status, instances)
        return PoolReading(
            identity=identity,
            pool=pool,
            in_force=in_force,
            pods=found,
            revisions=revisions,
            rollout=rollout,
            strangers=strange_pods(pods, identity),
            objects=objects,
            workloads=tuple([one async for one in self._workloads(identity, in_force.spec, pods, found)]),
            objectives=await self._objectives(identity, in_force.spec),
            declared=wanted_replicas(in_force.spec, pool, objects, instances, standing),
            standing=standing,
        )

    async def instances(
        self, identity: PoolIdentity, documents: list[dict[str, Any]], in_force: SpecInForce
    ) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
        """Return the pool's instances among these pods, and the names of the revisions of the instances with an earlier
        template, the most frequent first.
        """
        pods = read_pods(documents, identity.uid, in_force.spec)
        formers = await self._revisions.made_from(identity, in_force, frozenset(pod.instance.spec_hash for pod in pods))
        specs = {template: former.spec for template, former in formers.items()}
        templates = Counter(pod.instance.spec_hash for pod in pods if pod.instance.spec_hash in formers)
        names = dict.fromkeys(formers[template].name for template, _ in templates.most_common())
        found = with_engines(pods, in_force.spec, specs)
        return with_words_of_kueue(found, await self._queued(identity, found)), tuple(names)

    async def _queued(self, identity: PoolIdentity, pods: tuple[Pod, ...]) -> list[dict[str, Any]]:
        """Return Kueue's Workloads of the pods that wait for quota; an empty list if Kueue's objects cannot be read."""
        waiting = sorted(pod.queued_as for pod in pods if waits_for_quota(pod))[:_ASKED_AT_ONCE]
        selector = f"{KUEUE_JOB_LABEL} in ({','.join(waiting)})"
        for resource in (Resource.QUEUED_WORKLOADS, Resource.FORMER_QUEUED_WORKLOADS) if waiting else ():
            try:
                return await self._cluster.find(resource, identity.namespace, selector)
            except ClusterRefused as refused:
                if refused.status not in {403, 404}:
                    raise
        return []

    async def _workloads(
        self, identity: PoolIdentity, spec: PoolSpec | None, documents: list[dict[str, Any]], pods: tuple[Pod, ...]
    ) -> AsyncIterator[WorkloadReading]:
        """Yield a reading of each workload that a role names: its scale, its adopted pods, and the autoscalers that
        also scale it. If the Kubernetes API refuses to return one workload, only that workload is not scaled.
        """
        role_of = {pod.instance.id: pod.instance.role for pod in pods if pod.instance.adopted and pod.instance.spec_hash == SELECTED_HASH}
        autoscalers: list[dict[str, Any]] | None = None
        for role in spec.roles if spec is not None else ():
            if (target := role.scale_target_ref) is not None:
                try:
                    if autoscalers is None:
                        autoscalers = await self._autoscalers(identity.namespace)
                    scale = await self._cluster.get(SCALABLE[target.kind], identity.namespace, target.name, subresource="scale")
                except ClusterRefused as refused:
                    yield refused_workload(role.name, target, refused.text)
                    continue
                theirs = [document for document in documents if role_of.get(document["metadata"]["name"]) is role.name]
                yield read_workload(role.name, target, scale, theirs, _of_other_pools(identity, role, documents), autoscalers)

    async def _standing(
        self, identity: PoolIdentity, spec: PoolSpec | None, status: Mapping[str, Any], instances: tuple[ObservedInstance, ...]
    ) -> Mapping[Role, int]:
        if spec is None or not is_lost(spec, status):
            return NOTHING
        budgets = await self._cluster.find(Resource.BUDGETS, identity.namespace, identity.selector())
        return standing_numbers(spec, identity, budgets, instances)

    async def _autoscalers(self, namespace: str) -> list[dict[str, Any]]:
        try:
            return await self._cluster.find(Resource.AUTOSCALERS, namespace, "")
        except ClusterRefused as refused:
            if refused.status != 404:
                raise
            return []  # an API without autoscaling/v2 has no autoscalers

    async def _objectives(self, identity: PoolIdentity, spec: PoolSpec | None) -> Objectives:
        """Return the InferenceObjectives of a pool with `spec.gateway`; NO_OBJECTIVES for any other pool."""
        if spec is None or spec.gateway is None or not self._serves_gateways:
            return NO_OBJECTIVES
        found = await find_objectives(self._cluster, identity.namespace)
        return read_objectives(found, identity.name, spec.priority_classes)

    async def _role_objects(self, identity: PoolIdentity, spec: PoolSpec | None) -> dict[Role, RoleObject]:
        if spec is None or spec.adopts or all(role.name is Role.BOTH for role in spec.roles):
            return {}
        found = await self._cluster.find(Resource.ROLES, self._key.namespace, identity.selector())
        return read_role_objects(found, identity)


def _of_other_pools(identity: PoolIdentity, role: RoleSpec, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pods that a role selects but that belong to another pool."""
    return [
        document
        for document in documents
        if role.selector is not None
        and role.selector.holds(document["metadata"].get("labels") or {})
        and is_adopted_elsewhere(document["metadata"], identity.uid)
    ]
