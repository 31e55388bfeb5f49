"""The environment of a container, from its manifest and from the objects that the manifest names. This module is
pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from processkube.kubelet.expansion import expand
from processkube.kubelet.pod_specs import ContainerSpec, PodSpec
from processkube.kubelet.refusals import bad_configuration
from processkube.kubelet.stored_objects import Reference, StoredObjects

_REFERENCES = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap"}
_WHOLES = {"secretRef": "Secret", "configMapRef": "ConfigMap"}


def referred(container: ContainerSpec) -> Iterable[Reference]:
    """Yield references to the Secrets and ConfigMaps that the container's environment needs."""
    for entry in container.env:
        for key, kind in _REFERENCES.items():
            if found := (entry.get("valueFrom") or {}).get(key):
                yield Reference(kind=kind, name=found["name"])
    for entry in container.env_from:
        for key, kind in _WHOLES.items():
            if found := entry.get(key):
                yield Reference(kind=kind, name=found["name"])


def container_variables(
    container: ContainerSpec, pod: PodSpec, manifest: Mapping[str, Any], stored: StoredObjects, *, pod_ip: str, node: str
) -> dict[str, str]:
    """Return the environment that the manifest gives the container, in the manifest's order.

    Each value is expanded with the variables before it. Raises PodRefused.
    """
    variables: dict[str, str] = {"HOSTNAME": pod.name}
    for entry in container.env_from:
        for key, kind in _WHOLES.items():
            if found := entry.get(key):
                data = stored.data(Reference(kind=kind, name=found["name"]), optional=bool(found.get("optional")))
                variables |= {(entry.get("prefix") or "") + name: value.decode() for name, value in data.items()}
    for entry in container.env:
        name, source = entry["name"], entry.get("valueFrom")
        value: str | None
        if not source:
            value = expand(entry.get("value") or "", variables)
        elif "fieldRef" in source:
            value = pod_field(source["fieldRef"]["fieldPath"], manifest, pod_ip=pod_ip, node=node, where=f"env {name}")
        else:
            value = _stored(source, stored, f"env {name}")
        if value is not None:
            variables[name] = value
    return variables


def pod_field(path: str, manifest: Mapping[str, Any], *, pod_ip: str, node: str, where: str) -> str:
    """Return the pod's value for a `fieldPath`, such as `metadata.name`. Raises PodRefused for an unknown field;
    `where` names the place in the message.
    """
    metadata = manifest["metadata"]
    plain = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": node,
        "spec.serviceAccountName": manifest["spec"].get("serviceAccountName", "default"),
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
        "status.hostIP": "127.0.0.1",
        "status.hostIPs": "127.0.0.1",
    }
    if path in plain:
        return str(plain[path])
    for group in ("labels", "annotations"):
        if path.startswith(f"metadata.{group}['") and path.endswith("']"):
            return str((metadata.get(group) or {}).get(path[len(f"metadata.{group}['") : -2], ""))
    raise bad_configuration(f"{where}: fieldPath {path!r} is not a field of a pod")


def _stored(source: Mapping[str, Any], stored: StoredObjects, where: str) -> str | None:
    """Return the value of a key in a Secret or ConfigMap. Return None if the key is missing and the reference is
    optional.
    """
    for key, kind in _REFERENCES.items():
        if found := source.get(key):
            data = stored.data(Reference(kind=kind, name=found["name"]), optional=bool(found.get("optional")))
            if found["key"] in data:
                return data[found["key"]].decode()
            if found.get("optional"):
                return None
            raise bad_configuration(f"{where}: couldn't find key {found['key']} in {kind} {found['name']}")
    raise bad_configuration(f"{where}: processkube's kubelet takes no value from {next(iter(source), 'nothing')}")
