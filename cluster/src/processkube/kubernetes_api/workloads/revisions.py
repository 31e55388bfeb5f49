"""Revisions of a StatefulSet's template, with which pods are labelled.

It follows pkg/controller/history of Kubernetes. As there, a revision's name is a hash; but the hashed text differs, so
the same template has another name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from processkube.kubernetes_api.objects.objects import Object, copy_of
from processkube.kubernetes_api.workloads.owners import reference_to
from processkube.kubernetes_api.workloads.plans import Change, Create, Delete
from processkube.kubernetes_api.workloads.templates import hash_of

_HASH_LABEL = "controller.kubernetes.io/hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revisions:
    """The revision that pods have and the revision that they should get, and the writes that make these objects."""

    current: Object
    update: Object
    writes: tuple[Create | Change, ...]


def revisions_of(stateful_set: Object, known: Sequence[Object]) -> Revisions:
    """Find or make the revision of the template. A rollback gives an earlier revision the next number."""
    known = sorted(known, key=lambda one: one["revision"])
    following = 1 + (known[-1]["revision"] if known else 0)
    data = {"spec": {"template": {**copy_of(stateful_set["spec"]["template"]), "$patch": "replace"}}}
    equal = [one for one in known if one["data"] == data]
    writes: list[Create | Change] = []
    if equal and equal[-1] is known[-1]:
        update = known[-1]
    elif equal:
        update = {**equal[-1], "revision": following}
        writes.append(Change(item=update))
    else:
        update = _made(stateful_set, data, following, {one["metadata"]["name"] for one in known})
        writes.append(Create(item=update))
    name = stateful_set.get("status", {}).get("currentRevision")
    current = next((one for one in known if one["metadata"]["name"] == name), update)
    return Revisions(current=current, update=update, writes=tuple(writes))


def _made(stateful_set: Object, data: Object, number: int, taken: Collection[str]) -> Object:
    metadata = stateful_set["metadata"]
    collisions = 0
    while f"{metadata['name'][:223]}-{hash_of(data, collisions)}" in taken:
        collisions += 1
    name_hash = hash_of(data, collisions)
    labels = stateful_set["spec"]["template"].get("metadata", {}).get("labels", {})
    made: Object = {
        "name": f"{metadata['name'][:223]}-{name_hash}",
        "namespace": metadata["namespace"],
        "labels": {**labels, _HASH_LABEL: name_hash},
        "ownerReferences": [reference_to(stateful_set)],
    }
    if metadata.get("annotations"):
        made["annotations"] = dict(metadata["annotations"])
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": made, "data": data, "revision": number}


def with_template_of(stateful_set: Object, revision: Object) -> Object:
    """Return the StatefulSet as it was at a revision."""
    template = {name: value for name, value in revision["data"]["spec"]["template"].items() if name != "$patch"}
    return {**stateful_set, "spec": {**stateful_set["spec"], "template": template}}


def forgotten(stateful_set: Object, known: Sequence[Object], live: Collection[str]) -> list[Delete]:
    """Return deletions of the oldest revisions beyond the limit of the history; revisions in `live` are in use."""
    idle = sorted((one for one in known if one["metadata"]["name"] not in live), key=lambda one: one["revision"])
    limit = stateful_set["spec"]["revisionHistoryLimit"]
    return [Delete(item=one) for one in idle[: max(0, len(idle) - limit)]]
