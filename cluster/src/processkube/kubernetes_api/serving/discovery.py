"""Discovery documents: the served groups, versions and resources, in separate documents and in one aggregated
document.
"""

from __future__ import annotations

import re

from processkube.kubernetes_api.kinds.kinds import CREATE_ONLY, ResourceKind
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.objects.objects import Object

VERSION: Object = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0+processkube",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "sandbox",
}
_SUBRESOURCE_VERBS = ("get", "patch", "update")
_FURTHER: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "log": ("", "v1", "Pod", ("get",)),
    "proxy": ("", "v1", "ServiceProxyOptions", ("create", "delete", "get", "patch", "update")),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "binding": ("", "v1", "Binding", ("create",)),
    "finalize": ("", "v1", "Namespace", ("update",)),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
}


def version_rank(version: str) -> tuple[int, int, int]:
    """Return a key that sorts the names of Kubernetes versions from best to worst: v2, v1, v1beta2, v1beta1,
    v1alpha1.
    """
    found = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if found is None:
        return (9, 0, 0)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0))


def _groups(registry: Registry) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group, version in registry.versions():
        found.setdefault(group, []).append(version)
    return {group: sorted(versions, key=version_rank) for group, versions in found.items()}


def api_versions(address: str) -> Object:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(registry: Registry) -> Object:
    groups = [_group(name, versions) for name, versions in _groups(registry).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Object | None:
    versions = _groups(registry).get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if name and versions else None


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(registry: Registry, group_name: str, version: str) -> Object | None:
    """Return the resources of one group and version; None if the version is not served."""
    kinds = [kind for kind in registry if (kind.group, kind.version) == (group_name, version)]
    if not kinds:
        return None
    resources: list[Object] = []
    for kind in kinds:
        resources.append(_resource(kind))
        for name, (sub_group, sub_version, sub_kind, verbs) in _subresources(kind).items():
            entry: Object = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
            if (sub_group, sub_version) != (kind.group, kind.version):
                entry |= {"group": sub_group, "version": sub_version}
            resources.append({**entry, "kind": sub_kind, "verbs": list(verbs)})
    group_version = f"{group_name}/{version}" if group_name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _resource(kind: ResourceKind) -> Object:
    entry: Object = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    return entry


def _subresources(kind: ResourceKind) -> dict[str, tuple[str, str, str, tuple[str, ...]]]:
    found: dict[str, tuple[str, str, str, tuple[str, ...]]] = {}
    if kind.verbs == CREATE_ONLY:
        return found
    if kind.has_status:
        found["status"] = (kind.group, kind.version, kind.kind, _SUBRESOURCE_VERBS)
    if kind.scale:
        found["scale"] = ("autoscaling", "v1", "Scale", _SUBRESOURCE_VERBS)
    return found | {name: _FURTHER[name] for name in kind.subresources}


def aggregated(registry: Registry, *, core: bool, version: str) -> Object:
    """Return one document with all groups and resources below `/api` or below `/apis`."""
    items = []
    for name, versions in _groups(registry).items():
        if (name == "") == core:
            listed = [{"version": one, "freshness": "Current", "resources": _aggregated_resources(registry, name, one)} for one in versions]
            items.append({"metadata": {"name": name, "creationTimestamp": None}, "versions": listed})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated_resources(registry: Registry, group_name: str, version: str) -> list[Object]:
    return [
        {
            "resource": kind.plural,
            "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "singularResource": kind.singular,
            "verbs": list(kind.verbs),
            "shortNames": list(kind.short_names),
            "categories": list(kind.categories),
            "subresources": [
                {
                    "subresource": name,
                    "responseKind": {"group": sub_group, "version": sub_version, "kind": sub_kind},
                    "verbs": list(verbs),
                }
                for name, (sub_group, sub_version, sub_kind, verbs) in _subresources(kind).items()
            ],
        }
        for kind in registry
        if (kind.group, kind.version) == (group_name, version)
    ]
