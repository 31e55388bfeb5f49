"""The parts of a Pod's manifest that the kubelet needs, as typed values.

A pod that needs an unsupported feature of these parts is refused with a reason, so that the feature is not silently
ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from processkube.kubelet.probe_specs import ProbeSpec, read_probe
from processkube.kubelet.refusals import bad_configuration
from processkube.kubelet.volume_specs import MountSpec, VolumeSpec, read_mounts, read_volumes


@dataclass(frozen=True, slots=True, kw_only=True)
class StopHook:
    """The preStop hook of a container: a pause, or a command in the container, before the container is asked to end."""

    sleep_seconds: float = 0.0
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container. `command` replaces the image's entry point. `env` and `env_from` are as in the manifest.

    `user`, `group`: the ids with which the container runs. If both are None and the container is not enclosed, it runs
    as the user who started processkube. In all other cases, the image's user supplies an id that is None.
    """

    name: str
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Mapping[str, Any], ...] = ()
    env_from: tuple[Mapping[str, Any], ...] = ()
    mounts: tuple[MountSpec, ...] = ()
    user: int | None = None
    group: int | None = None
    read_only_root: bool = False
    working_folder: str = "/"
    readiness: ProbeSpec | None = None
    liveness: ProbeSpec | None = None
    startup: ProbeSpec | None = None
    before_stop: StopHook | None = None

    @property
    def is_enclosed(self) -> bool:
        """Whether the container runs in namespaces of its own, because it needs its own file system or user."""
        return bool(self.mounts) or self.read_only_root or self.user is not None or self.group is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """One pod. Its `init_containers` run one after the other until each has ended; then its `containers` run.

    `deletion_at` is the deadline of the pod's deletion in POSIX seconds, None if it is not being deleted.
    `grace_seconds` is the time granted for stopping a container.
    """

    uid: str
    namespace: str
    name: str
    node: str | None
    containers: tuple[ContainerSpec, ...]
    init_containers: tuple[ContainerSpec, ...] = ()
    volumes: tuple[VolumeSpec, ...] = ()
    service_account: str = "default"
    restart_policy: str = "Always"
    grace_seconds: float = 30.0
    deletion_at: float | None = None
    readiness_gates: tuple[str, ...] = ()

    @property
    def deleted(self) -> bool:
        """Whether the pod's deletion has been requested."""
        return self.deletion_at is not None

    @property
    def every_container(self) -> tuple[ContainerSpec, ...]:
        """The init containers, followed by the other containers."""
        return (*self.init_containers, *self.containers)


def read_pod(manifest: Mapping[str, Any]) -> PodSpec:
    """Return the pod that a manifest describes. Raises PodRefused if its spec asks for something that this kubelet
    cannot do.
    """
    metadata, spec = manifest["metadata"], manifest["spec"]
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy"):
            raise bad_configuration(f"container {container['name']}: restartPolicy: processkube's kubelet runs no sidecars; use containers")
    deletion = metadata.get("deletionTimestamp")
    grace = metadata.get("deletionGracePeriodSeconds") if deletion else spec.get("terminationGracePeriodSeconds")
    volumes = read_volumes(spec)
    return PodSpec(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        node=spec.get("nodeName"),
        containers=tuple(_read_container(container, spec, volumes) for container in spec["containers"]),
        init_containers=tuple(_read_container(container, spec, volumes) for container in spec.get("initContainers") or ()),
        volumes=volumes,
        service_account=spec.get("serviceAccountName") or "default",
        restart_policy=spec.get("restartPolicy", "Always"),
        grace_seconds=30.0 if grace is None else float(grace),
        deletion_at=datetime.fromisoformat(deletion).timestamp() if deletion else None,
        readiness_gates=tuple(gate["conditionType"] for gate in spec.get("readinessGates") or ()),
    )


def _read_container(container: Mapping[str, Any], pod: Mapping[str, Any], volumes: tuple[VolumeSpec, ...]) -> ContainerSpec:
    security = {**(pod.get("securityContext") or {}), **(container.get("securityContext") or {})}
    mounts = read_mounts(container, pod)
    for mount in mounts:
        if mount.volume not in {volume.name for volume in volumes}:
            raise bad_configuration(f"container {container['name']}: volumeMounts: {mount.volume!r} is not one of the pod's volumes")
    return ContainerSpec(
        name=container["name"],
        image=container.get("image", ""),
        command=tuple(container.get("command") or ()),
        args=tuple(container.get("args") or ()),
        env=tuple(container.get("env") or ()),
        env_from=tuple(container.get("envFrom") or ()),
        mounts=mounts,
        user=security.get("runAsUser"),
        group=security.get("runAsGroup"),
        read_only_root=bool(security.get("readOnlyRootFilesystem")),
        working_folder=container.get("workingDir") or "/",
        readiness=read_probe(container, "readinessProbe"),
        liveness=read_probe(container, "livenessProbe"),
        startup=read_probe(container, "startupProbe"),
        before_stop=_read_stop_hook(container),
    )


def _read_stop_hook(container: Mapping[str, Any]) -> StopHook | None:
    hooks = container.get("lifecycle") or {}
    unknown = set(hooks) - {"preStop"}
    hook = hooks.get("preStop") or {}
    if unknown or set(hook) - {"sleep", "exec"}:
        raise bad_configuration(f"container {container['name']}: lifecycle: processkube's kubelet knows preStop with sleep or exec only")
    if not hook:
        return None
    return StopHook(
        sleep_seconds=float((hook.get("sleep") or {}).get("seconds") or 0), command=tuple((hook.get("exec") or {}).get("command") or ())
    )
