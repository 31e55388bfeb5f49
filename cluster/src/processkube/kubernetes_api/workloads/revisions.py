"""The revisions of a StatefulSet's template. Each pod has a label with the name of its revision.

This module follows pkg/controller/history of Kubernetes. As in Kubernetes, a revision's name contains a hash. But
another text is hashed, so the same template has a different name in Kubernetes.
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
    """The revision that pods have (`current`), the revision that they should get (`update`), and the writes that create
    or renumber revisions.
    """

    current: Object
    update: Object
    writes: tuple[Create | Change, ...]


def revisions_of(stateful_set: Object, known: Sequence[Object]) -> Revisions:
    """Return the revisions of a StatefulSet. If its template has no revision, a new one is made. If an earlier revision
    has this template, as after a rollback, this revision gets the next number.
    """
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
    """Return the StatefulSet with the template of a revision."""
    template = {name: value for name, value in revision["data"]["spec"]["template"].items() if name != "$patch"}
    return {**stateful_set, "spec": {**stateful_set["spec"], "template": template}}


def forgotten(stateful_set: Object, known: Sequence[Object], live: Collection[str]) -> list[Delete]:
    """Return writes that delete the oldest unused revisions, so that only as many as `revisionHistoryLimit` are left.
    `live` has the names of the revisions in use.
    """
    idle = sorted((one for one in known if one["metadata"]["name"] not in live), key=lambda one: one["revision"])
    limit = stateful_set["spec"]["revisionHistoryLimit"]
    return [Delete(item=one) for one in idle[: max(0, len(idle) - limit)]]
