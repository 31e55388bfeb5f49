"""A pod's volumes and their mounts in containers, typed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from processkube.kubelet.refusals import bad_configuration

TOKEN_VOLUME = "kube-api-access"  # noqa: S105 - the name of a volume
TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a folder's path
TOKEN_SECONDS = 3607
_FILE_MODE = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKeys:
    """Files from the keys of a Secret or ConfigMap: all keys, or those in `items` as (key, path, mode or None)."""

    kind: Literal["Secret", "ConfigMap"]
    name: str
    items: tuple[tuple[str, str, int | None], ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFields:
    """Files from fields of the pod itself, as (path, fieldPath)."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountToken:
    """A token of the pod's service account, renewed before it ends."""

    path: str
    seconds: int = TOKEN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAuthority:
    """The certificate that identifies the Kubernetes API."""

    path: str


Source = StoredKeys | PodFields | AccountToken | ClusterAuthority


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSpec:
    """A volume: the folder of a `claim` if the volume names a claim, else a folder of the pod's own with the files of
    `sources`.
    """

    name: str
    claim: str | None = None
    sources: tuple[Source, ...] = ()
    mode: int = _FILE_MODE


@dataclass(frozen=True, slots=True, kw_only=True)
class MountSpec:
    """The path at which a container has a volume, or the part of the volume at `sub_path`."""

    volume: str
    path: str
    read_only: bool = False
    sub_path: str = ""


def read_volumes(spec: Mapping[str, Any]) -> tuple[VolumeSpec, ...]:
    """Return the pod's volumes, and the volume of its service account's token if the pod asks for one."""
    volumes = tuple(_read_volume(volume) for volume in spec.get("volumes") or ())
    return (*volumes, _token_volume()) if mounts_token(spec) else volumes


def read_mounts(container: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[MountSpec, ...]:
    """Return the mounts of the container."""
    mounts = tuple(
        MountSpec(
            volume=mount["name"],
            path=mount["mountPath"],
            read_only=bool(mount.get("readOnly")),
            sub_path=mount.get("subPath") or "",
        )
        for mount in container.get("volumeMounts") or ()
    )
    token = MountSpec(volume=TOKEN_VOLUME, path=TOKEN_MOUNT, read_only=True)
    return (*mounts, token) if mounts_token(pod) else mounts


def mounts_token(spec: Mapping[str, Any]) -> bool:
    """Return whether the pod gets a token of its service account. It gets one only if its spec asks for it, because
    engines need none.
    """
    return spec.get("automountServiceAccountToken") is True


def _token_volume() -> VolumeSpec:
    """Return the token volume that a cluster's API server adds to such a pod."""
    namespace = PodFields(items=(("namespace", "metadata.namespace"),))
    return VolumeSpec(name=TOKEN_VOLUME, sources=(AccountToken(path="token"), ClusterAuthority(path="ca.crt"), namespace))


def _read_volume(volume: Mapping[str, Any]) -> VolumeSpec:
    name = volume["name"]
    if claim := volume.get("persistentVolumeClaim"):
        return VolumeSpec(name=name, claim=claim["claimName"])
    if "emptyDir" in volume or set(volume) == {"name"}:
        return VolumeSpec(name=name)
    if projected := volume.get("projected"):
        sources = tuple(_read_source(source, name) for source in projected.get("sources") or ())
        return VolumeSpec(name=name, sources=sources, mode=_mode(projected))
    source = next(key for key in volume if key != "name")
    return VolumeSpec(name=name, sources=(_read_source({source: volume[source]}, name),), mode=_mode(volume[source]))


def _read_source(source: Mapping[str, Any], volume: str) -> Source:
    kind, found = next(iter(source.items()))
    match kind:
        case "secret":
            return StoredKeys(kind="Secret", name=found.get("secretName") or found["name"], **_keys(found))
        case "configMap":
            return StoredKeys(kind="ConfigMap", name=found["name"], **_keys(found))
        case "serviceAccountToken":
            return AccountToken(path=found["path"], seconds=found.get("expirationSeconds") or TOKEN_SECONDS)
        case "downwardAPI" if all("fieldRef" in item for item in found.get("items") or ()):
            return PodFields(items=tuple((item["path"], item["fieldRef"]["fieldPath"]) for item in found.get("items") or ()))
        case _:
            raise bad_configuration(
                f"volume {volume}: {kind} is not known to processkube's kubelet; it has emptyDir, secret, configMap, "
                "downwardAPI (fieldRef), "
                "projected and persistentVolumeClaim"
            )


def _keys(source: Mapping[str, Any]) -> dict[str, Any]:
    items = tuple((item["key"], item["path"], item.get("mode")) for item in source.get("items") or ())
    return {"items": items, "optional": bool(source.get("optional"))}


def _mode(source: Mapping[str, Any]) -> int:
    return int(source.get("defaultMode") or _FILE_MODE)
