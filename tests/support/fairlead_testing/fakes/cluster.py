"""A Kubernetes API in a dict, for operator tests that start no process: get, find by labels, create, merge patch,
delete.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from fairlead_operator.cluster import ClusterRefused, ClusterUnavailable, PodParts, Resource

Body = TypeVar("Body")

_GUARDS = ("uid", "resourceVersion")


def wired(body: Body) -> Body:
    """Return the body as it is after transport: a copy through JSON, which is many times faster than a deep copy."""
    copied: Body = msgspec.json.decode(msgspec.json.encode(body))
    return copied


def merged(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the document after a JSON merge patch."""
    result = dict(document)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            before = result.get(name)
            result[name] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[name] = _pruned(wired(value))
    return result


def _pruned(value: Any) -> Any:
    """Return the value without nulls in objects, at any depth: a server removes them from lists that a merge patch
    sets.
    """
    if isinstance(value, dict):
        return {name: _pruned(one) for name, one in value.items() if one is not None}
    return [_pruned(one) for one in value] if isinstance(value, list) else value


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Return whether a selector of the form `a=b,c in (d,e),!f` selects an object with these labels."""
    for term in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        name, _, value = term.partition("=")
        listed = re.fullmatch(r"(\S+) (in|notin) \((.*)\)", term)
        if listed:
            if (labels.get(listed[1]) in listed[3].split(",")) != (listed[2] == "in"):
                return False
        elif "=" not in term:
            if (term.lstrip("!") in labels) == term.startswith("!"):
                return False
        elif labels.get(name) != value:
            return False
    return True


@dataclass(slots=True)
class FakeCluster:
    """The Kubernetes API in memory.

    Before every call, `refuse` gets verb, resource and name. If it returns an error, the call raises that error.
    """

    objects: dict[tuple[Resource, str], dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, Resource, str]] = field(default_factory=list)
    refuse: Callable[[str, Resource, str], ClusterRefused | ClusterUnavailable | None] = field(default=lambda verb, resource, name: None)
    admit: Callable[[Resource, dict[str, Any]], dict[str, Any]] = field(default=lambda resource, body: body)
    """The admission webhooks: a function that returns the body to store for an object that is created."""
    unknown: set[Resource] = field(default_factory=set)
    """Resources whose CRDs are not installed."""
    version: int = 0

    def _called(self, verb: str, resource: Resource, name: str) -> None:
        self.calls.append((verb, resource, name))
        error = self.refuse(verb, resource, name)
        if error is not None:
            raise error

    def put(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        """Store a copy of the body with a new resourceVersion, and return the copy."""
        self.version += 1
        stored = wired(body)
        stored["metadata"] |= {"resourceVersion": str(self.version)}
        stored["metadata"].setdefault("uid", f"uid-{self.version}")
        self.objects[resource, stored["metadata"]["name"]] = stored
        return stored

    def all(self, resource: Resource) -> list[dict[str, Any]]:
        return [body for (kind, _), body in sorted(self.objects.items(), key=lambda item: item[0][1]) if kind is resource]

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> dict[str, Any] | None:
        self._called("get", resource, name)
        return wired(self.objects.get((resource, name)))

    async def find(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
        self._called("find", resource, selector)
        self._demand(resource)
        found = [wired(body) for body in self.all(resource) if selects(selector, body["metadata"].get("labels", {}))]
        return [dict(msgspec.convert(body, PodParts)) for body in found] if resource is Resource.PODS else found

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> dict[str, Any] | None:
        self._called("create", resource, body["metadata"]["name"])
        self._demand(resource)
        if (resource, body["metadata"]["name"]) in self.objects:
            return None
        made: dict[str, Any] = wired(self.put(resource, self.admit(resource, wired(body))))
        return made

    async def patch(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], *, subresource: str = "") -> bool:
        self._called("merge", resource, name)
        known = self.objects.get((resource, name))
        if known is None:
            return False
        given, current = body.get("metadata", {}), known["metadata"]
        if given.get("resourceVersion", current["resourceVersion"]) != current["resourceVersion"]:
            raise ClusterRefused(409, "Conflict", "the object has been modified")
        if given.get("uid", current["uid"]) != current["uid"]:
            raise ClusterRefused(422, "Invalid", "metadata.uid: field is immutable")
        patched = self.put(resource, merged(known, body))
        if patched["metadata"].get("deletionTimestamp") and not patched["metadata"].get("finalizers"):
            self._collect(resource, name)
        return True

    async def apply(self, resource: Resource, namespace: str, body: dict[str, Any], *, force: bool) -> dict[str, Any]:
        """Apply the body as a merge patch and return the object. Field managers are not kept, so no field conflicts."""
        name, given = body["metadata"]["name"], body["metadata"]
        self._called("apply", resource, name)
        self._demand(resource)
        known = self.objects.get((resource, name))
        current = known["metadata"] if known is not None else {}
        if any(mark in given and given[mark] != current.get(mark) for mark in _GUARDS):
            raise ClusterRefused(409, "Conflict", "the object has been modified")
        changed = merged(known or {}, body)
        generation = current.get("generation", 0) + (changed.get("spec") != (known or {}).get("spec"))
        return wired(self.put(resource, merged(changed, {"metadata": {"generation": generation}})))

    async def delete(self, resource: Resource, namespace: str, name: str) -> bool:
        self._called("delete", resource, name)
        return self.objects.pop((resource, name), None) is not None

    def _demand(self, resource: Resource) -> None:
        if resource in self.unknown:
            raise ClusterRefused(404, "NotFound", "the server could not find the requested resource")

    def _collect(self, resource: Resource, name: str) -> None:
        owner = self.objects.pop((resource, name))["metadata"]["uid"]
        for key, body in list(self.objects.items()):
            if any(reference["uid"] == owner for reference in body["metadata"].get("ownerReferences", [])):
                del self.objects[key]
