"""Reads request paths: kind, namespace, name and subresource in the URL of a resource."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aiohttp import web

from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.objects.errors import NotFound
from processkube.kubernetes_api.serving.exchanges import is_true
from processkube.kubernetes_api.serving.rbac import Wish

NO_SUCH_RESOURCE = "the server could not find the requested resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The parts of a resource's URL. `name` and `subresource` are "" in the URL of a collection."""

    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def resource_target(registry: Registry, path: str) -> Target:
    """Return the parts of a path such as `/api/v1/namespaces/default/pods/web/log`. Raises NotFound if the path is not
    served.
    """
    parts = [part for part in path.split("/") if part]
    group, version, rest = _split(parts)
    if not rest:
        raise NotFound(NO_SUCH_RESOURCE)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and registry.find(group, version, rest[2]) is not None:
        namespace, rest = rest[1], rest[2:]
    kind = registry.find(group, version, rest[0])
    if kind is not None and rest[2:3] == ["proxy"] and "proxy" in kind.subresources:
        rest = rest[:3]  # what follows is a path of the server behind
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise NotFound(NO_SUCH_RESOURCE)
    if kind.namespaced and not namespace and len(rest) > 1:
        raise NotFound(NO_SUCH_RESOURCE)
    return Target(
        kind=kind,
        namespace=namespace,
        name=rest[1] if len(rest) > 1 else "",
        subresource=rest[2] if len(rest) > 2 else "",
    )


def _split(parts: list[str]) -> tuple[str, str, list[str]]:
    if parts[:1] == ["api"] and len(parts) > 1:
        return "", parts[1], parts[2:]
    if parts[:1] == ["apis"] and len(parts) > 2:
        return parts[1], parts[2], parts[3:]
    raise NotFound(NO_SUCH_RESOURCE)


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_APPLY = "application/apply-patch"
_BY_NAME = re.compile(r"(?:^|,)\s*metadata\.name\s*==?\s*([^,=/%\s]+)\s*(?:,|$)")
"""Matches a field selector that selects one object by its name. The real server checks the rights for such a list or
watch as if the request named this object in its path.
"""


def wishes_of(request: web.Request, target: Target, *, exists: bool) -> list[Wish]:
    """Return the rights that the request needs. A PUT or an apply to an object that does not exist also needs the right
    to create.
    """
    verbs = [_VERBS.get(request.method, "get")]
    if verbs == ["get"]:
        watches = is_true(request.query.get("watch"))
        verbs = ["watch" if watches else "get" if target.name else "list"]
    if verbs == ["delete"] and not target.name:
        verbs = ["deletecollection"]
    if not exists and target.name and not target.subresource and (request.method == "PUT" or request.content_type.startswith(_APPLY)):
        verbs.append("create")
    resource = f"{target.kind.plural}/{target.subresource}" if target.subresource else target.kind.plural
    name = target.name
    if verbs[0] in {"list", "watch"} and (selected := _BY_NAME.search(request.query.get("fieldSelector", ""))):
        name = name or selected[1]
    return [Wish(verb=verb, group=target.kind.group, resource=resource, namespace=_namespace(target), name=name) for verb in verbs]


def _namespace(target: Target) -> str:
    """Return the namespace in which rights are checked. As in the real server, it is the namespace itself for a
    Namespace object.
    """
    return target.name if target.kind.plural == "namespaces" and not target.kind.group else target.namespace
