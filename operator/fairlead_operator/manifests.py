"""Builds the manifests of a pool's objects: pods, the headless Service, the PodDisruptionBudget. Pure."""

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fairlead import pool_roles
from fairlead.adoption_specs import ADOPTED_BY_ANNOTATION
from fairlead.instances import InstanceState, Role
from fairlead.pool_roles import role_object_name
from fairlead.pools import GROUP, KIND, VERSION, PoolSpec
from fairlead.reconciling.naming import instance_name
from fairlead.revisions import revision_name

POOL_LABEL = "fairlead.dev/pool"
INSTANCE_LABEL = "fairlead.dev/instance"
ROLE_LABEL = "llm-d.ai/role"
HASH_ANNOTATION = "fairlead.dev/spec-hash"
STATE_ANNOTATION = "fairlead.dev/state"
STATE_SINCE_ANNOTATION = "fairlead.dev/state-since"
STATE_REASON_ANNOTATION = "fairlead.dev/state-reason"
DRAINING_ANNOTATION = "fairlead.dev/draining-since"
FLIP_ANNOTATION = "fairlead.dev/flip-to"
"""Annotation of a draining pod: the role it goes on in once it is drained."""

CORDONED_ANNOTATION = "fairlead.dev/cordoned"
"""Annotation set by people: with the value `true` the instance gets no new requests."""

DRAIN_ANNOTATION = "fairlead.dev/drain"
"""Annotation set by people: with the value `true` the instance is drained, and another takes its place."""

DRAIN_REASON_ANNOTATION = "fairlead.dev/drain-reason"
"""Annotation of a draining pod: why its drain began."""

DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' annotation: of the ready pods of a ReplicaSet the one with the least cost is the first to be deleted."""

FORMER_COST_ANNOTATION = "fairlead.dev/former-deletion-cost"
"""Annotation of an adopted pod that goes first: the deletion cost that it had before; empty if it had none."""

_LEAST_COST = "-2147483648"

ADOPTED_ROLE_LABEL = "fairlead.dev/role"
"""Label of an adopted pod: its role in the pool. The label of the pool's own pods may be the workload's business."""

NO_DRAIN: Mapping[str, None] = MappingProxyType(dict.fromkeys((DRAINING_ANNOTATION, DRAIN_REASON_ANNOTATION, FLIP_ANNOTATION)))
"""Takes all that a drain leaves off a pod."""

WEIGHT_ANNOTATION = "fairlead.dev/weight"
"""Annotation set by people: the instance's part of the keys as a multiple of the others', such as `0.5`."""

REVISION_ANNOTATION = "fairlead.dev/kv-revision"
"""Annotation: the model and the engine's image. Prefill and decode instances pair when it is equal, as other versions
may lay out KV blocks differently. A template's own annotation wins, such as for images per role that go together.
"""

CREATED_ANNOTATION = "fairlead.dev/created-at"
"""Annotation: when the operator made the pod, by the operator's clock.

The server's creationTimestamp comes from another clock and has whole seconds.
"""

ORDINAL_ANNOTATION = "fairlead.dev/ordinal"
"""The instance's number in its pool, counted from 1; the pod's name is made from it."""
FAILURES_ANNOTATION = "fairlead.dev/failures"
"""How many instances in a row failed before this one; the pause before it is replaced grows with them."""
SELECTED_HASH = hashlib.sha256(b"selected").hexdigest()[:12]
"""Stands for the template of a role that selects its pods: what they are made from is their workload's business."""

MANAGED_BY = {"app.kubernetes.io/managed-by": "fairlead"}

ENGINE = "engine"

_PROBE_SECONDS: Mapping[str, tuple[int, int]] = MappingProxyType({"simulated": (1, 2), "vllm": (1, 2), "sglang": (2, 10)})
"""Pause between readiness probes, and their time limit, by `engine.type`. SGLang's `/health` takes a second or more: it
waits for a token.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolIdentity:
    """Identifies the pool that owns the objects."""

    namespace: str
    name: str
    uid: str

    def owner_reference(self) -> dict[str, Any]:
        """The owner reference that makes the pool the controller of a child, so that deleting the pool deletes the
        child.
        """
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def reference(self) -> dict[str, Any]:
        """The reference to the pool that an Event needs."""
        metadata = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata}

    def selector(self, role: Role | None = None) -> str:
        """Label selector of the pool's pods, or of those of one role."""
        return f"{POOL_LABEL}={self.name}" + (f",{ROLE_LABEL}={role.value}" if role is not None else "")


def state_annotations(state: InstanceState, since: str, reason: str) -> dict[str, str]:
    """Annotations that record a state.

    Draining has an additional annotation of its own, which stays when the state becomes Lost.
    """
    annotations = {STATE_ANNOTATION: state.value, STATE_SINCE_ANNOTATION: since, STATE_REASON_ANNOTATION: reason}
    if state is InstanceState.DRAINING:
        annotations[DRAINING_ANNOTATION] = since
    return annotations


def flip_patch(role: Role, since: str) -> dict[str, Any]:
    """The merge patch that lets a drained pod go on in a role: its label, its state, and the end of its drain."""
    return {
        "metadata": {
            "labels": {ROLE_LABEL: role.value},
            "annotations": {
                **state_annotations(InstanceState.WARMING, since, "RoleFlipped"),
                **NO_DRAIN,
            },
        }
    }


def end_of_drain_patch(metadata: Mapping[str, Any], since: str) -> dict[str, Any]:
    """The merge patch that puts a draining pod with this metadata back in service."""
    state = state_annotations(InstanceState.WARMING, since, "DrainWithdrawn")
    return {"metadata": {"annotations": {**state, **NO_DRAIN, **former_cost(metadata)}}}


def adoption_patch(identity: PoolIdentity, role: Role) -> dict[str, Any]:
    """The merge patch that makes a running pod an instance of the pool."""
    return {
        "metadata": {
            "labels": {POOL_LABEL: identity.name, ADOPTED_ROLE_LABEL: role.value},
            "annotations": {ADOPTED_BY_ANNOTATION: identity.uid},
        }
    }


def release_patch(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that takes all of ours off an adopted pod with this metadata: what the pool wrote, and what
    people asked of it by our annotations. What its own template may say to us, as its weight, stays.
    """
    marks = {part: dict.fromkeys(name for name in metadata.get(part) or {} if _is_mark(name)) for part in ("labels", "annotations")}
    return {"metadata": {"uid": metadata["uid"], **marks, "annotations": {**marks["annotations"], **former_cost(metadata)}}}


def least_cost(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Annotations by which the workload ends a pod with this metadata first, and which keep the cost it had."""
    annotations = metadata.get("annotations") or {}
    if FORMER_COST_ANNOTATION in annotations:
        return {DELETION_COST_ANNOTATION: _LEAST_COST}
    return {DELETION_COST_ANNOTATION: _LEAST_COST, FORMER_COST_ANNOTATION: annotations.get(DELETION_COST_ANNOTATION, "")}


def former_cost(metadata: Mapping[str, Any]) -> dict[str, str | None]:
    """Annotations that give a pod with this metadata the deletion cost that it had before it was to go first."""
    former = (metadata.get("annotations") or {}).get(FORMER_COST_ANNOTATION)
    return {} if former is None else {DELETION_COST_ANNOTATION: former or None, FORMER_COST_ANNOTATION: None}


def _is_mark(name: str) -> bool:
    return name.startswith(f"{GROUP}/") and name not in {WEIGHT_ANNOTATION, REVISION_ANNOTATION}


def pod(
    identity: PoolIdentity, spec: PoolSpec, *, role: Role, ordinal: int, image: str, reason: str, now: str, failures: int = 0
) -> dict[str, Any]:
    """The manifest of one instance, created for `reason` after so many failures in a row.

    `image` is for simulated engines without a template; `now` is RFC 3339.
    """
    name = instance_name(identity.name, identity.uid, role, ordinal)
    template = _template(spec, role, image)
    if _given_template(spec, role) is None:
        template = _restricted(template)
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
                REVISION_ANNOTATION: f"{spec.model} {_engine_container(template)['image']}",
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


def spec_hash(spec: PoolSpec, role: Role) -> str:
    """Hash of everything in the spec that a running pod of the role depends on; another hash means
    the pod must be replaced.

    The default engine image's version is left out, so that upgrading the operator alone restarts nothing. A role
    without instances may have no template; its hash is that of none.
    """
    if any(item.selector is not None for item in spec.roles if item.name is role):
        return SELECTED_HASH
    has_template = spec.simulated is not None or any(item.template is not None for item in spec.roles if item.name is role)
    if not has_template:
        return hashlib.sha256(b"no template").hexdigest()[:12]
    canonical = json.dumps(_template(spec, role, "fairlead/engine"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def revision(identity: PoolIdentity, data: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A ControllerRevision with what `fairlead.revisions` made of the spec; the newest has the highest number."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": child_metadata(identity, revision_name(identity.name, data)),
        "data": dict(data),
        "revision": number,
    }


def service(identity: PoolIdentity, spec: PoolSpec) -> dict[str, Any]:
    """A headless Service: a DNS name per pool that resolves to the ready instances."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(identity, identity.name),
        "spec": {
            "clusterIP": "None",
            "selector": {POOL_LABEL: identity.name},
            "ports": [{"name": "http", "port": spec.engine.port, "targetPort": spec.engine.port, "protocol": "TCP"}],
        },
    }


def disruption_budget(identity: PoolIdentity, role: Role, replicas: int, leaving: int = 0) -> dict[str, Any]:
    """A PodDisruptionBudget by which voluntary evictions take one instance of the role at a time.

    It says how many must stay of `replicas` and of those `leaving`: ready ones that drain count as well for the
    cluster until their pods end, and would let as many others go at once. `maxUnavailable`, which earlier versions
    wrote, would count from the pool's scale: that is 1 for a pool of prefill and decode, and another number than the
    one in force when a schedule or the load decides it. The null takes it off an earlier version's budget. An instance
    that is not ready protects nothing and may always go: without that the drain of its node would hang.
    """
    selector = {"matchLabels": {POOL_LABEL: identity.name, ROLE_LABEL: role.value}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child_metadata(identity, f"{identity.name}-{role.value}"),
        "spec": {
            "minAvailable": max(0, replicas + leaving - 1),
            "maxUnavailable": None,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": selector,
        },
    }


def pool_role(identity: PoolIdentity, role: Role, *, replicas: int | None, pinned: int | None) -> dict[str, Any]:
    """The InferencePoolRole of a role.

    `pinned` is the number that the pool declares, if it does. `replicas` None: the object has its own, which stays.
    """
    number = {} if replicas is None else {"replicas": replicas}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": pool_roles.KIND,
        "metadata": child_metadata(identity, role_object_name(identity.name, role)),
        "spec": {"pool": identity.name, "role": role.value, "pinned": pinned, **number},
    }


def child_metadata(identity: PoolIdentity, name: str) -> dict[str, Any]:
    """Metadata of an object that the pool owns."""
    return {
        "name": name,
        "namespace": identity.namespace,
        "labels": {POOL_LABEL: identity.name, **MANAGED_BY},
        "ownerReferences": [identity.owner_reference()],
    }


def _template(spec: PoolSpec, role: Role, image: str) -> dict[str, Any]:
    """The role's pod template, completed with the fields that every engine needs; the template's own settings win."""
    given = _given_template(spec, role)
    template: dict[str, Any] = deepcopy(given) if given is not None else _simulated_template(spec, image)
    container = _engine_container(template)
    ports = container["ports"] = container.get("ports") or []
    if not any(port.get("containerPort") == spec.engine.port for port in ports):
        ports.append({"name": "http", "containerPort": spec.engine.port, "protocol": "TCP"})
    environment = container["env"] = container.get("env") or []
    for name, path in (("POD_NAME", "metadata.name"), ("POD_IP", "status.podIP")):
        if not any(item.get("name") == name for item in environment):
            environment.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    if container.get("readinessProbe") is None:
        period, timeout = _PROBE_SECONDS[spec.engine.type]
        container["readinessProbe"] = {
            "httpGet": {"path": "/health", "port": spec.engine.port},
            "periodSeconds": period,
            "timeoutSeconds": timeout,
            "failureThreshold": 3,
        }
    return template


def _given_template(spec: PoolSpec, role: Role) -> dict[str, Any] | None:
    return next((item.template for item in spec.roles if item.name is role), None)


def _restricted(template: Mapping[str, Any]) -> dict[str, Any]:
    """The template of a simulated engine, as the Pod Security Standard `restricted` demands.

    This is no part of the hash: instances that were made without run as well, and an upgrade is to restart none.
    """
    pod_security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    container_security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    containers = [{**container, "securityContext": container_security} for container in template["spec"]["containers"]]
    return {**template, "spec": {**template["spec"], "securityContext": pod_security, "containers": containers}}


def _engine_container(template: Mapping[str, Any]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = template["spec"]["containers"]
    return next((item for item in containers if item.get("name") == ENGINE), containers[0])


def _simulated_template(spec: PoolSpec, image: str) -> dict[str, Any]:
    container = {
        "name": ENGINE,
        "image": image,
        "command": ["fairlead-engine"],
        "args": [word for name, value in _engine_arguments(spec).items() for word in (f"--{name}", value)],
    }
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 30}}


def _engine_arguments(spec: PoolSpec) -> Mapping[str, str]:
    simulated = spec.simulated
    if simulated is None:
        raise ValueError(f"engine {spec.engine.type} needs a template")
    return {
        "model": spec.model,
        "host": "$(POD_IP)",
        "port": str(spec.engine.port),
        "prefill-tokens-per-second": f"{spec.engine.prefill_tokens_per_second:.12g}",
        "decode-step-ms": f"{simulated.decode_step_seconds * 1000:.12g}",
        "kv-cache-tokens": str(spec.engine.kv_cache_tokens),
        "block-size": str(simulated.block_size),
        "max-running": str(simulated.max_running),
        "max-waiting": str(simulated.max_waiting),
        "time-scale": f"{simulated.time_scale:.12g}",
        "bytes-per-token": str(spec.engine.bytes_per_token),
        "startup-seconds": f"{simulated.startup_seconds:.12g}",
    }
