"""A pod's volumes and their mounts in containers, as typed values."""

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
    """A source of files: the keys of a Secret or ConfigMap. `items` has (key, path, mode or None); if it is empty,
    every key becomes a file.
    """

    kind: Literal["Secret", "ConfigMap"]
    name: str
    items: tuple[tuple[str, str, int | None], ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFields:
    """A source of files: fields of the pod. `items` has (path, fieldPath)."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountToken:
    """A source of one file: a token of the pod's service account, which is renewed before it expires."""

    path: str
    seconds: int = TOKEN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAuthority:
    """A source of one file: the certificate with which pods verify the Kubernetes API."""

    path: str


Source = StoredKeys | PodFields | AccountToken | ClusterAuthority


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSpec:
    """A volume. If it has a `claim`, it is stored in the folder of the claim. Otherwise the pod has a folder for it,
    with the files of `sources`.
    """

    name: str
    claim: str | None = None
    sources: tuple[Source, ...] = ()
    mode: int = _FILE_MODE


@dataclass(frozen=True, slots=True, kw_only=True)
class MountSpec:
    """A mount of a volume in a container, at `path`. If `sub_path` is given, only this part of the volume is
    mounted.
    """

    volume: str
    path: str
    read_only: bool = False
    sub_path: str = ""


def read_volumes(spec: Mapping[str, Any]) -> tuple[VolumeSpec, ...]:
    """Return the pod's volumes. If the pod asks for a token of its service account, the token's volume is added."""
    volumes = tuple(_read_volume(volume) for volume in spec.get("volumes") or ())
    return (*volumes, _token_volume()) if mounts_token(spec) else volumes


def read_mounts(container: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[MountSpec, ...]:
    """Return the container's mounts. If the pod asks for a token of its service account, the token's mount is added."""
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
    """Return whether the pod's spec asks for a token of its service account. Unlike in Kubernetes, a pod that does not
    ask gets no token, because engines need none.
    """
    return spec.get("automountServiceAccountToken") is True


def _token_volume() -> VolumeSpec:
    """Return the volume with a token. In a real cluster, the API server adds this volume to a pod."""
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
