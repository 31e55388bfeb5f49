"""Completes the pod template of a role, and computes the template's hash. An instance with another hash must be
replaced.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from fairlead.instance_marks import ENGINE_CONTAINER
from fairlead.instances import Role
from fairlead.pools import PoolSpec

SELECTED_HASH = hashlib.sha256(b"selected").hexdigest()[:12]
"""The hash used for a role that selects its pods, because the pods' template belongs to their workload."""

SHARED_DEVICE = "fairlead-turn"
"""Name, within a pod, of the device that its pool shares with other pools."""
_VARIABLES = (("POD_NAME", "metadata.name"), ("POD_IP", "status.podIP"))
PORT_NAME = "http"
"""Name of the engine's port in each pod that the pool makes, by which its Service finds it."""

_PROBE_SECONDS: Mapping[str, tuple[int, int]] = MappingProxyType({"simulated": (1, 2), "vllm": (1, 2), "sglang": (2, 10)})
"""By `engine.type`, the pause between readiness probes and their time limit, in seconds. SGLang's `/health` takes a
second or more, because it waits for a token.
"""


_REQUESTS: Mapping[str, str] = MappingProxyType({"cpu": "20m", "memory": "128Mi"})
"""The resource requests of a simulated engine's container."""


def spec_hash(spec: PoolSpec, role: Role) -> str:
    """Return a hash of everything in the spec on which a running pod of the role depends; a pod with another hash must
    be replaced.

    The default engine image's version is left out, so that upgrading the operator alone restarts no pod. A role without
    instances may have no template; its hash is then the hash of an empty template.
    """
    if any(item.selector is not None for item in spec.roles if item.name is role):
        return SELECTED_HASH
    has_template = spec.simulated is not None or any(item.template is not None for item in spec.roles if item.name is role)
    if not has_template:
        return hashlib.sha256(b"no template").hexdigest()[:12]
    template: object = pod_template(spec, role, "fairlead/engine")
    if _takes_turns(spec, role):
        template = with_claim(pod_template(spec, role, "fairlead/engine"), "")
    if (nodes := spans(spec, role)) > 1:
        template = [nodes, template, worker_template(spec, role)]
    canonical = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def pod_template(spec: PoolSpec, role: Role, image: str) -> dict[str, Any]:
    """Return the role's pod template, completed with the fields that every engine needs; the template's own settings
    take precedence.
    """
    given = given_template(spec, role)
    template: dict[str, Any] = deepcopy(given) if given is not None else _simulated_template(spec, image, sleeps=_sleeps(spec, role))
    container = engine_container(template)
    ports = container["ports"] = container.get("ports") or []
    if not any(port.get("containerPort") == spec.engine.port for port in ports):
        is_free = not any(port.get("name") == PORT_NAME for port in ports)
        ports.append({**({"name": PORT_NAME} if is_free else {}), "containerPort": spec.engine.port, "protocol": "TCP"})
    _add_variables(container)
    if container.get("readinessProbe") is None:
        period, timeout = _PROBE_SECONDS[spec.engine.type]
        container["readinessProbe"] = {
            "httpGet": {"path": "/health", "port": spec.engine.port},
            "periodSeconds": period,
            "timeoutSeconds": timeout,
            "failureThreshold": 3,
        }
    return template


def with_claim(template: Mapping[str, Any], claim: str) -> dict[str, Any]:
    """Return the template with a shared device: the pod and its engine get the ResourceClaim of this name."""
    spec, engine = template["spec"], engine_container(template)
    resources = engine.get("resources") or {}
    claims = [*(resources.get("claims") or ()), {"name": SHARED_DEVICE}]
    able = {**engine, "resources": {**resources, "claims": claims}}
    containers = [able if one is engine else one for one in spec["containers"]]
    entries = [*(spec.get("resourceClaims") or ()), {"name": SHARED_DEVICE, "resourceClaimName": claim}]
    return {**template, "spec": {**spec, "containers": containers, "resourceClaims": entries}}


def shared_claim(spec: Mapping[str, Any]) -> str:
    """Return the ResourceClaim of the shared device that a pod of this spec was given; empty if it was given none."""
    found = (one.get("resourceClaimName") for one in spec.get("resourceClaims") or () if one.get("name") == SHARED_DEVICE)
    return next(found, None) or ""


def _takes_turns(spec: PoolSpec, role: Role) -> bool:
    return any(item.turns is not None for item in spec.roles if item.name is role)


def _sleeps(spec: PoolSpec, role: Role) -> bool:
    """Return whether the role keeps instances asleep, so that its engines must be able to sleep."""
    return any(item.asleep for item in spec.roles if item.name is role)


def spans(spec: PoolSpec, role: Role) -> int:
    """Return the number of pods of one instance of the role."""
    return next((item.spans for item in spec.roles if item.name is role), 1)


def worker_template(spec: PoolSpec, role: Role) -> dict[str, Any]:
    """Return the pod template of the workers of an instance with several nodes. This is the role's `workerTemplate` or,
    without one, the leader's template as written in the spec. Workers get no port and no probe, because they answer no
    requests.
    """
    given = next((item.worker_template or item.template for item in spec.roles if item.name is role), None)
    if given is None:
        raise ValueError(f"a role of several nodes needs a template: {role}")
    template = deepcopy(given)
    _add_variables(engine_container(template))
    return template


def _add_variables(container: dict[str, Any]) -> None:
    """Add variables with the pod's name and address to a container, unless it already has them. The variables are added
    at the end, because their position is part of the template's hash and must not change. They are added at the
    beginning only if the container's own variables refer to them, because Kubernetes expands only references to earlier
    variables.
    """
    given = container.get("env") or []
    names, texts = {item.get("name") for item in given}, [str(item.get("value") or "") for item in given]
    added = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _VARIABLES if name not in names]
    first = [one for one in added if any(f"$({one['name']})" in text for text in texts)]
    container["env"] = [*first, *given, *(one for one in added if one not in first)]


def with_named_port(template: Mapping[str, Any], port: int) -> dict[str, Any]:
    """Return the completed template with the name `PORT_NAME` for the engine's port. The template is returned unchanged
    if one of its ports already has this name. If the engine's port has another name, a second entry with `PORT_NAME` is
    added. On the network of the node (`hostNetwork`), no second entry is added, because Kubernetes would count it as a
    second use of the port and refuse the pod.

    The name is not part of the hash: instances created without it also work, and an upgrade must not restart them.
    """
    named: dict[str, Any] = deepcopy(dict(template))
    if any(one.get("name") == PORT_NAME for container in named["spec"]["containers"] for one in container.get("ports") or []):
        return named
    ports = engine_container(named)["ports"]
    engine = next(one for one in ports if one.get("containerPort") == port)
    if "name" not in engine:
        engine["name"] = PORT_NAME
    elif not named["spec"].get("hostNetwork"):
        ports.append({"name": PORT_NAME, "containerPort": port, "protocol": "TCP"})
    return named


def given_template(spec: PoolSpec, role: Role) -> dict[str, Any] | None:
    """Return the role's pod template as written in the spec; None if there is none."""
    return next((item.template for item in spec.roles if item.name is role), None)


def restricted(template: Mapping[str, Any], pull_secrets: Sequence[str] = ()) -> dict[str, Any]:
    """Return the template of a simulated engine, with the settings that the Pod Security Standard `restricted`
    requires. The pod gets no token of the service account, because the engine uses none. It gets resource requests, so
    that its node reserves room for it and evicts other pods first.

    These settings are not part of the hash: instances created without them also work, and an upgrade must not restart
    them.
    """
    pod_security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    container_security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    more = {"securityContext": container_security, "resources": {"requests": dict(_REQUESTS)}}
    spec = {
        **template["spec"],
        "automountServiceAccountToken": False,
        "securityContext": pod_security,
        "containers": [{**container, **more} for container in template["spec"]["containers"]],
        **({"imagePullSecrets": [{"name": name} for name in pull_secrets]} if pull_secrets else {}),
    }
    return {**template, "spec": spec}


def engine_container(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container in which the engine runs: the container named `engine`, or the first one."""
    containers: list[dict[str, Any]] = template["spec"]["containers"]
    return next((item for item in containers if item.get("name") == ENGINE_CONTAINER), containers[0])


def _simulated_template(spec: PoolSpec, image: str, *, sleeps: bool) -> dict[str, Any]:
    container = {
        "name": ENGINE_CONTAINER,
        "image": image,
        "command": ["fairlead-engine"],
        "args": [
            *(word for name, value in _engine_arguments(spec).items() for word in (f"--{name}", value)),
            *(("--enable-sleep-mode",) if sleeps else ()),
        ],
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
