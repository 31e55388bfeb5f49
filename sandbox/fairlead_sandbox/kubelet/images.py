"""Translates an image into a command line.

The sandbox has no container runtime: it runs `fairlead/engine` from the installed package.
"""

from collections.abc import Mapping
from typing import Any

from fairlead_sandbox.kubelet.expansion import expand, expand_all
from fairlead_sandbox.kubelet.pod_specs import ContainerSpec, PodRefused, PodSpec

ENGINE_IMAGE = "fairlead/engine"
ENGINE_COMMAND = "fairlead-engine"
ENGINE_MODULE = "fairlead_simulator.engine_server"


def command_line(container: ContainerSpec, variables: Mapping[str, str], *, python: str, pod_ip: str) -> tuple[str, ...]:
    """The command line that runs a container.

    Raises PodRefused when the sandbox does not have the image or the command.
    """
    if not container.image.startswith(ENGINE_IMAGE):
        raise PodRefused(
            "ErrImagePull",
            f"image {container.image!r}: the sandbox has no container runtime and runs only {ENGINE_IMAGE} (the simulated engine); "
            "use engine.type simulated here, or a real cluster for this image",
        )
    command = expand_all(container.command, variables)
    if command and command[0].rpartition("/")[2] != ENGINE_COMMAND:
        raise PodRefused("RunContainerError", f"command {command[0]!r} is not in image {container.image}; it has {ENGINE_COMMAND} only")
    arguments = (*command[1:], *expand_all(container.args, variables))
    if not any(argument == "--host" or argument.startswith("--host=") for argument in arguments):
        arguments = (*arguments, "--host", pod_ip)
    return (python, "-P", "-m", ENGINE_MODULE, *arguments)


def container_variables(container: ContainerSpec, pod: PodSpec, manifest: Mapping[str, Any], *, pod_ip: str, node: str) -> dict[str, str]:
    """The environment that the manifest gives the container, in its order.

    Each value is expanded with the variables before it. Raises PodRefused.
    """
    variables: dict[str, str] = {"HOSTNAME": pod.name}
    for entry in container.env:
        name = entry["name"]
        source = entry.get("valueFrom")
        if not source:
            variables[name] = expand(entry.get("value") or "", variables)
        elif "fieldRef" in source:
            variables[name] = _field(source["fieldRef"]["fieldPath"], manifest, pod_ip=pod_ip, node=node, where=f"env {name}")
        else:
            kind = next(iter(source), "nothing")
            raise PodRefused("CreateContainerConfigError", f"env {name}: the sandbox's kubelet takes values from fieldRef only, not {kind}")
    return variables


def _field(path: str, manifest: Mapping[str, Any], *, pod_ip: str, node: str, where: str) -> str:
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
    raise PodRefused("CreateContainerConfigError", f"{where}: fieldPath {path!r} is none a pod has")
