"""The files of a pod's volumes, from the objects that the volumes' sources name. This module is pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from processkube.kubelet.pod_specs import PodSpec
from processkube.kubelet.refusals import bad_configuration
from processkube.kubelet.stored_objects import Reference, StoredObjects
from processkube.kubelet.variables import pod_field
from processkube.kubelet.volume_specs import AccountToken, ClusterAuthority, PodFields, StoredKeys, VolumeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFile:
    """One file of a volume. `path` is relative to the volume's folder."""

    path: str
    content: bytes
    mode: int


def referred(pod: PodSpec) -> Iterable[Reference]:
    """Yield references to the Secrets and ConfigMaps that the pod's volumes need."""
    for volume in pod.volumes:
        for source in volume.sources:
            if isinstance(source, StoredKeys):
                yield Reference(kind=source.kind, name=source.name)


def tokens(pod: PodSpec) -> Iterable[tuple[VolumeSpec, AccountToken]]:
    """Return the service account tokens that the pod gets, each with its volume."""
    return ((volume, source) for volume in pod.volumes for source in volume.sources if isinstance(source, AccountToken))


def volume_files(
    volume: VolumeSpec, manifest: Mapping[str, Any], stored: StoredObjects, *, authority: bytes, pod_ip: str, node: str
) -> list[VolumeFile]:
    """Return the files of a volume. Tokens are left out, because they are renewed separately. Raises PodRefused, for
    example if an object is missing.
    """
    files: list[VolumeFile] = []
    for source in volume.sources:
        match source:
            case StoredKeys():
                files += _stored(volume, source, stored)
            case PodFields(items=items):
                files += [
                    VolumeFile(
                        path=path,
                        content=pod_field(field, manifest, pod_ip=pod_ip, node=node, where=f"volume {volume.name}").encode(),
                        mode=volume.mode,
                    )
                    for path, field in items
                ]
            case ClusterAuthority(path=path):
                files.append(VolumeFile(path=path, content=authority, mode=volume.mode))
            case AccountToken():
                pass
    return files


def _stored(volume: VolumeSpec, source: StoredKeys, stored: StoredObjects) -> list[VolumeFile]:
    data = stored.data(Reference(kind=source.kind, name=source.name), optional=source.optional)
    if not source.items:
        return [VolumeFile(path=key, content=content, mode=volume.mode) for key, content in data.items()]
    files = []
    for key, path, mode in source.items:
        if key in data:
            files.append(VolumeFile(path=path, content=data[key], mode=mode or volume.mode))
        elif not source.optional:
            raise bad_configuration(f"volume {volume.name}: references non-existent {source.kind.lower()} key: {key}")
    return files
