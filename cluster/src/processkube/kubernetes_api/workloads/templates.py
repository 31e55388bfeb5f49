"""Pods made from a pod template, and hashes of pod templates."""

from __future__ import annotations

from processkube.kubernetes_api.objects.objects import Object, canonical, copy_of
from processkube.kubernetes_api.workloads.owners import reference_to

POD_TEMPLATE_HASH = "pod-template-hash"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def pod_from(template: Object, owner: Object) -> Object:
    """Return a pod with this template, controlled by `owner`. Its name has only a prefix, which the server
    completes.
    """
    given = template.get("metadata", {})
    metadata: Object = {"namespace": owner["metadata"]["namespace"], "generateName": f"{owner['metadata']['name']}-"}
    metadata |= {name: copy_of(given[name]) for name in ("labels", "annotations", "finalizers") if given.get(name)}
    metadata["ownerReferences"] = [reference_to(owner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copy_of(template["spec"])}


def hash_of(template: Object, collisions: int | None) -> str:
    """Return a short hash of a template for names: 32-bit FNV-1a, spelled as in Kubernetes.

    Kubernetes hashes the template's form in Go's memory, and this function hashes another text. So the same template
    has a different hash in Kubernetes.
    """
    number = 0x811C9DC5
    for byte in (canonical(template) + ("" if collisions is None else str(collisions))).encode():
        number = ((number ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(number))


def same_template(one: Object, other: Object) -> bool:
    """Return whether two templates are equal, apart from the label with the template's hash."""
    return _unnamed(one) == _unnamed(other)


def _unnamed(template: Object) -> Object:
    metadata = {name: value for name, value in template.get("metadata", {}).items() if value}
    labels = {name: value for name, value in metadata.pop("labels", {}).items() if name != POD_TEMPLATE_HASH}
    return {"metadata": {**metadata, "labels": labels}, "spec": template.get("spec")}
