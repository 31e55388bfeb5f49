"""Builds the manifests of a pool's objects: pods, the headless Service, the PodDisruptionBudget. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead import pool_roles
from fairlead.instance_marks import GROUP_LABEL, POOL_LABEL, REVISION_ANNOTATION
from fairlead.instances import InstanceState, Role, instance_name
from fairlead.pool_roles import role_object_name
from fairlead.pools import GROUP, VERSION, PoolSpec
from fairlead.revisions import revision_name
from fairlead_operator.pod_marks import (
    CREATED_ANNOTATION,
    FAILURES_ANNOTATION,
    HASH_ANNOTATION,
    INSTANCE_LABEL,
    LEADER,
    ORDINAL_ANNOTATION,
    ROLE_LABEL,
)
from fairlead_operator.pod_patches import state_annotations
from fairlead_operator.pod_templates import (
    engine_container,
    given_template,
    pod_template,
    restricted,
    spec_hash,
    with_claim,
    with_named_port,
    worker_template,
)
from fairlead_operator.pool_identity import PoolIdentity

REPLICAS_ANNOTATION = "fairlead.dev/replicas"
"""Annotation of a role's budget: the number of instances last decided, in case the pool's status is lost."""

MANAGED_BY = {"app.kubernetes.io/managed-by": "fairlead"}


def pod(
    identity: PoolIdentity,
    spec: PoolSpec,
    *,
    role: Role,
    ordinal: int,
    image: str,
    reason: str,
    now: str,
    failures: int = 0,
    claim: str = "",
    pull_secrets: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the manifest of one instance.

    `reason` is the reason for its creation, `failures` the number of failed instances in a row before it, and `claim`
    the ResourceClaim of its shared device (empty without one). `image` and `pull_secrets` are for simulated engines
    without a template; `now` is RFC 3339.
    """
    name = instance_name(identity.name, identity.uid, role, ordinal)
    template = with_named_port(pod_template(spec, role, image), spec.engine.port)
    if given_template(spec, role) is None:
        template = restricted(template, pull_secrets)
    if claim:
        template = with_claim(template, claim)
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": identity.namespace,
            "labels": {
                **(metadata.get("labels") or {}),
                POOL_LABEL: identity.name,
                INSTANCE_LABEL: name,
                ROLE_LABEL: role.value,
                **MANAGED_BY,
            },
            "annotations": {
                REVISION_ANNOTATION: f"{spec.model} {engine_container(template)['image']}",
                **(metadata.get("annotations") or {}),
                HASH_ANNOTATION: spec_hash(spec, role),
                CREATED_ANNOTATION: now,
                ORDINAL_ANNOTATION: str(ordinal),
                **({FAILURES_ANNOTATION: str(failures)} if failures else {}),
                **state_annotations(InstanceState.PENDING, now, reason),
            },
            "ownerReferences": [identity.owner_reference()],
        },
        "spec": template["spec"],
    }


def group(identity: PoolIdentity, spec: PoolSpec, leader: Mapping[str, Any], role: Role, nodes: int) -> dict[str, Any]:
    """Return the LeaderWorkerSet of one instance with several nodes; `leader` is the manifest of its leader pod.

    There is one set for each instance, and not one for the pool, because a set with several groups always ends the last
    group first, while Fairlead ends the instance that is cheapest to lose. The template's labels are also on the set,
    where Kueue looks for its queue.
    """
    name, metadata = leader["metadata"]["name"], leader["metadata"]
    of_group = {GROUP_LABEL: identity.name, ROLE_LABEL: role.value}
    labels = {**metadata["labels"], INSTANCE_LABEL: f"{name}{LEADER}"}
    worker = worker_template(spec, role)
    of_worker = worker.get("metadata") or {}
    leader_template = {
        "metadata": {"labels": {**labels, **of_group}, "annotations": metadata["annotations"]},
        "spec": leader["spec"],
    }
    worker_metadata = {"labels": {**(of_worker.get("labels") or {}), **of_group}, "annotations": of_worker.get("annotations") or {}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {**metadata, "labels": labels},
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader_template,
                "workerTemplate": {"metadata": worker_metadata, "spec": worker["spec"]},
            },
        },
    }


def revision(identity: PoolIdentity, data: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a ControllerRevision with the data from `fairlead.revisions`; the newest has the highest number."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": child_metadata(identity, revision_name(identity.name, data)),
        "data": dict(data),
        "revision": number,
    }


def service(identity: PoolIdentity, spec: PoolSpec, target: int | str) -> dict[str, Any]:
    """Return a headless Service: a DNS name per pool that resolves to the ready instances.

    `target` is the number or the name of the pods' port.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(identity, identity.name),
        "spec": {
            "clusterIP": "None",
            "selector": {POOL_LABEL: identity.name},
            "ports": [{"name": "http", "port": spec.engine.port, "targetPort": target, "protocol": "TCP"}],
        },
    }


def disruption_budget(identity: PoolIdentity, role: Role, replicas: int, leaving: int = 0, nodes: int = 1) -> dict[str, Any]:
    """Return a PodDisruptionBudget that allows voluntary evictions of one instance of the role at a time.

    Its minimum counts `replicas` and the ready instances that are `leaving`. Kubernetes counts the leaving instances as
    available until their pods end. If the minimum did not include them, Kubernetes would allow one more eviction at a
    time for each of them. An instance that is not ready may always be evicted, because otherwise the drain of its node
    would hang. Every pod of an instance with several `nodes` counts. If one of these pods is evicted, the whole group
    restarts, and no other pod of the role may be evicted until the group is ready again.

    `maxUnavailable`, which earlier versions wrote, is removed from an existing budget by a null. Kubernetes computes
    `maxUnavailable` from the pool's scale subresource. This is 1 for a pool of prefill and decode, and it ignores the
    numbers that schedules and the load set.
    """
    selector = {"matchLabels": {POOL_LABEL if nodes == 1 else GROUP_LABEL: identity.name, ROLE_LABEL: role.value}}
    metadata = {**child_metadata(identity, budget_name(identity, role)), "annotations": {REPLICAS_ANNOTATION: str(replicas)}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {
            "minAvailable": max(0, (replicas + leaving) * nodes - 1),
            "maxUnavailable": None,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": selector,
        },
    }


def budget_name(identity: PoolIdentity, role: Role) -> str:
    """Return the name of a role's PodDisruptionBudget."""
    return f"{identity.name}-{role.value}"


def pool_role(identity: PoolIdentity, role: Role, *, replicas: int | None, pinned: int | None) -> dict[str, Any]:
    """Return the InferencePoolRole of a role. `pinned` is the number of instances that the pool declares, None if it
    declares none. `replicas` is the object's own number of instances; if it is None, an existing object keeps its
    number.
    """
    number = {} if replicas is None else {"replicas": replicas}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": pool_roles.KIND,
        "metadata": child_metadata(identity, role_object_name(identity.name, role)),
        "spec": {"pool": identity.name, "role": role.value, "pinned": pinned, **number},
    }


def child_metadata(identity: PoolIdentity, name: str) -> dict[str, Any]:
    """Return metadata of an object that the pool owns."""
    return {
        "name": name,
        "namespace": identity.namespace,
        "labels": {POOL_LABEL: identity.name, **MANAGED_BY},
        "ownerReferences": [identity.owner_reference()],
    }
