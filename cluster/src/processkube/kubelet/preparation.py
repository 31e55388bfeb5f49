"""Prepares what a container needs to start: its environment, its volumes, and the command that runs it in its own
namespaces.

Secrets, ConfigMaps and claims are read when a container starts. The token of a service account is renewed while the
container runs.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from processkube.errors import ClusterProblem
from processkube.kubelet import variables, volume_files
from processkube.kubelet.enclosing import FileMount, enclosing, joining
from processkube.kubelet.hosts_files import hosts_file
from processkube.kubelet.images import Catalogue, own_addresses
from processkube.kubelet.pod_specs import ContainerSpec, PodSpec
from processkube.kubelet.pods_api import PodsApi
from processkube.kubelet.refusals import bad_configuration
from processkube.kubelet.stored_objects import Reference, StoredObjects
from processkube.kubelet.volume_files import VolumeFile
from processkube.kubelet.volume_folders import VolumeFolders, write_files
from processkube.kubelet.volume_specs import AccountToken, VolumeSpec

log = logging.getLogger(__name__)

RENEW_AFTER = 0.8
"""Share of a token's lifetime after which the token is renewed, as in a real kubelet."""
LOOK_AT_TOKENS_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommand:
    """A command line with the environment in which to run it."""

    line: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The node's facts and settings that containers depend on.

    - `images`: the node's catalogue of images.
    - `server`, `authority`: the address and the certificate of the Kubernetes API, for pods.
    - `can_enclose`: whether this machine allows a process to make its own namespaces.
    """

    node: str
    python: str
    images: Catalogue
    state_dir: Path
    server: str
    authority: bytes
    can_enclose: bool


class Preparation:
    """Prepares the containers of one node."""

    def __init__(self, cluster: PodsApi, installation: Installation) -> None:
        self._cluster = cluster
        self._here = installation
        self._folders = VolumeFolders(installation.state_dir)
        self._known: dict[tuple[str, str], Mapping[str, str]] = {}
        """(Uid of the pod, name of the container) → the container's environment."""

    async def start(self, pod: PodSpec, container: ContainerSpec, manifest: Mapping[str, Any], pod_ip: str) -> PreparedCommand:
        """Return the command that starts the container. Raises PodRefused, for example for a missing image or program,
        and ClusterProblem if the API cannot be reached.
        """
        own = self._here.images.variables_of(container, pod_ip=pod_ip)
        if container.is_enclosed and not self._here.can_enclose:
            raise bad_configuration(
                f"container {container.name}: volumes and users of its own need user and mount namespaces, which this machine forbids; "
                "allow them (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
            )
        stored = await self._stored({*variables.referred(container), *volume_files.referred(pod)}, pod)
        wanted = variables.container_variables(container, pod, manifest, stored, pod_ip=pod_ip, node=self._here.node)
        environment = {**self._of_cluster(), **own, **own_addresses(wanted, pod_ip)}
        line = self._here.images.command_line(container, environment, python=self._here.python, pod_ip=pod_ip)
        if container.is_enclosed:
            await self._fill_volumes(pod, manifest, stored, pod_ip)
            environment = {"HOME": "/", "TMPDIR": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", **environment}  # noqa: S108 - the container's
            line = (*await self._enclosing(pod, container), *line)
        self._known[pod.uid, container.name] = environment
        return PreparedCommand(line=line, variables=environment)

    async def within(
        self, pod: PodSpec, container: ContainerSpec, manifest: Mapping[str, Any], pod_ip: str, pid: int, command: tuple[str, ...]
    ) -> PreparedCommand:
        """Return the command that runs `command` in a running container, with its namespaces and environment. `pid` is
        the container's process.

        Raises PodRefused and ClusterProblem.
        """
        line = self._here.images.command_within(container, command, python=self._here.python, pod_ip=pod_ip)
        if (pod.uid, container.name) not in self._known:
            await self.start(pod, container, manifest, pod_ip)
        if container.is_enclosed:
            line = (*joining(python=self._here.python, pid=pid, folder=container.working_folder), *line)
        return PreparedCommand(line=line, variables=self._known[pod.uid, container.name])

    def stop_signal(self, container: ContainerSpec) -> int:
        """Return the number of the signal that asks the container to end. Raises PodRefused."""
        return self._here.images.stop_signal(container)

    async def keep_tokens(self, pod: PodSpec) -> None:
        """Renew the pod's tokens before they expire. Returns at once if the pod has no tokens; otherwise never
        returns.
        """
        while any(True for _ in volume_files.tokens(pod)):
            await asyncio.sleep(LOOK_AT_TOKENS_SECONDS)
            try:
                await self._renew_tokens(pod)
            except ClusterProblem as problem:
                log.warning("a pod's token was not renewed", extra={"pod": f"{pod.namespace}/{pod.name}", "error": str(problem)})

    async def forget(self, uid: str) -> None:
        """Remove the folders of a pod that is gone, and the folders of all claims that no longer exist."""
        self._known = {key: value for key, value in self._known.items() if key[0] != uid}
        await asyncio.to_thread(self._folders.remove, uid)
        try:
            claims = await self._cluster.list_claims()
        except ClusterProblem as problem:
            log.debug("claims cannot be listed", extra={"error": str(problem)})
            return
        await asyncio.to_thread(self._folders.remove_claims_but, {claim["metadata"]["uid"] for claim in claims})

    def _of_cluster(self) -> dict[str, str]:
        """Return the environment variables with the address of the Kubernetes API, which every container gets."""
        parts = urlsplit(self._here.server)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return {"KUBERNETES_SERVICE_HOST": parts.hostname or "", "KUBERNETES_SERVICE_PORT": str(port)}

    async def _stored(self, references: set[Reference], pod: PodSpec) -> StoredObjects:
        found = {one: await self._cluster.read_stored(one.kind, pod.namespace, one.name) for one in references}
        return StoredObjects(found)

    async def _fill_volumes(self, pod: PodSpec, manifest: Mapping[str, Any], stored: StoredObjects, pod_ip: str) -> None:
        await self._renew_tokens(pod)
        for volume in pod.volumes:
            if volume.claim is None:
                files = volume_files.volume_files(
                    volume, manifest, stored, authority=self._here.authority, pod_ip=pod_ip, node=self._here.node
                )
                await asyncio.to_thread(write_files, self._folders.of_volume(pod.uid, volume.name), files)

    async def _renew_tokens(self, pod: PodSpec) -> None:
        for volume, token in volume_files.tokens(pod):
            folder = self._folders.of_volume(pod.uid, volume.name)
            if _is_due(folder / token.path, token):
                text = await self._cluster.request_token(pod.namespace, pod.service_account, token.seconds)
                write_files(folder, [VolumeFile(path=token.path, content=text.encode(), mode=volume.mode)])

    async def _enclosing(self, pod: PodSpec, container: ContainerSpec) -> tuple[str, ...]:
        """Return the beginning of a command line. A command appended to it runs in the container's own namespaces."""
        volumes = {volume.name: volume for volume in pod.volumes}
        mounts = [FileMount(source=hosts_file(self._here.state_dir, pod.namespace), path="/etc/hosts", read_only=True)]
        own = self._folders.of_image(pod.uid, container.name)
        for path, text in self._here.images.account_files(container).items():
            write_files(own, [VolumeFile(path=path.lstrip("/"), content=text.encode(), mode=0o644)])
            mounts.append(FileMount(source=own / path.lstrip("/"), path=path, read_only=True))
        for mount in container.mounts:
            source = await self._folder(pod, volumes[mount.volume]) / mount.sub_path
            if not source.exists():
                source.mkdir(parents=True)
            mounts.append(FileMount(source=source, path=mount.path, read_only=mount.read_only))
        return enclosing(
            python=self._here.python,
            user=self._here.images.user_of(container) if container.user is None else container.user,
            group=self._here.images.user_of(container) if container.group is None else container.group,
            hostname=pod.name,
            read_only=container.read_only_root,
            stage=self._folders.stage(pod.uid),
            folder=container.working_folder,
            mounts=mounts,
        )

    async def _folder(self, pod: PodSpec, volume: VolumeSpec) -> Path:
        if volume.claim is None:
            return self._folders.of_volume(pod.uid, volume.name)
        claim = await self._cluster.read_claim(pod.namespace, volume.claim)
        if claim is None:
            raise bad_configuration(f'persistentvolumeclaim "{volume.claim}" not found')
        if (claim.get("status") or {}).get("phase") != "Bound":
            await self._cluster.bind_claim(claim)
        return self._folders.of_claim(claim["metadata"]["uid"])


def _is_due(path: Path, token: AccountToken) -> bool:
    try:
        return time.time() - path.stat().st_mtime > RENEW_AFTER * token.seconds
    except FileNotFoundError:
        return True
