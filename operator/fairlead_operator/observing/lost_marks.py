"""Finds the marks that others removed from the pool's own pods or changed there, and the values to restore. Pure.

The operator stores its knowledge of a pod in the pod's labels and annotations, which anybody may remove or change. Each
mark gets its last read value or, if it was never read, the value that follows from the pod's name and the pool.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.instance_marks import GROUP_LABEL, POOL_LABEL, REVISION_ANNOTATION
from fairlead.instances import InstanceState, Role, ordinal_of_name
from fairlead.pools import KIND, PoolSpec
from fairlead_operator.manifests import MANAGED_BY
from fairlead_operator.pod_marks import (
    CREATED_ANNOTATION,
    DRAINING_ANNOTATION,
    FAILURES_ANNOTATION,
    HASH_ANNOTATION,
    INSTANCE_LABEL,
    LEADER,
    ORDINAL_ANNOTATION,
    ROLE_LABEL,
    STATE_ANNOTATION,
    STATE_REASON_ANNOTATION,
    STATE_SINCE_ANNOTATION,
)
from fairlead_operator.pod_templates import spec_hash
from fairlead_operator.pool_identity import PoolIdentity

_LABELS = (POOL_LABEL, INSTANCE_LABEL, ROLE_LABEL, *MANAGED_BY)
_ANNOTATIONS = (
    HASH_ANNOTATION,
    REVISION_ANNOTATION,
    CREATED_ANNOTATION,
    ORDINAL_ANNOTATION,
    FAILURES_ANNOTATION,
    STATE_ANNOTATION,
    STATE_SINCE_ANNOTATION,
    STATE_REASON_ANNOTATION,
)
_ONCE = frozenset({HASH_ANNOTATION, CREATED_ANNOTATION, ORDINAL_ANNOTATION, FAILURES_ANNOTATION})
"""Annotations that the operator writes once and never changes. Any other value was therefore written by somebody else.
"""
_BY_LETTER = {role.value[0]: role for role in Role}
_LOOKED_AHEAD = 1000
"""Distance from the highest known ordinal within which an ordinal computed from a pod's name is accepted. A larger
ordinal cannot have been given yet.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostMarks:
    """The labels and annotations (marks) that a pod lacks or that have been changed, with the values to restore."""

    pod: Mapping[str, Any]
    labels: dict[str, str]
    annotations: dict[str, str]

    @property
    def names(self) -> str:
        """The names of these marks, for people."""
        return ", ".join(sorted({**self.labels, **self.annotations}))

    @property
    def words(self) -> str:
        """A description of these marks for people, such as `lacked a label, which somebody had removed`."""
        metadata = self.pod["metadata"]
        there = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
        names = sorted({**self.labels, **self.annotations})
        lacking, changed = ", ".join(one for one in names if one not in there), ", ".join(one for one in names if one in there)
        found = [f"lacked {lacking}, which somebody had removed"] if lacking else []
        return " and ".join([*found, f"had another {changed}, which somebody had written"] if changed else found)


@dataclass(slots=True)
class KnownMarks:
    """The labels and annotations of each pod (its marks), by uid, as last read. An operator that has just started has
    read none, and restores the values that can be inferred.
    """

    _known: dict[str, tuple[dict[str, str], dict[str, str]]] = field(default_factory=dict)
    _before: dict[str, tuple[dict[str, str], dict[str, str]]] = field(default_factory=dict)
    """The marks of the reading before the last reading. They are needed for pods that are missing in the last reading
    because somebody removed the pool's label.
    """
    _names: frozenset[str] = frozenset()
    """The names of the pods of the last reading."""

    def missing(self, documents: Iterable[Mapping[str, Any]]) -> frozenset[str]:
        """Return the names of the pods that the last reading contained and that are not among `documents`."""
        return self._names - {document["metadata"]["name"] for document in documents}

    def lost(self, documents: Iterable[Mapping[str, Any]], identity: PoolIdentity, spec: PoolSpec | None, last: int) -> list[LostMarks]:
        """Return the pool's own pods that have missing or changed marks, with these marks. Pods of other owners are
        ignored. `last` is the highest ordinal given so far.
        """
        seen, found, names = {}, [], set()
        for document in documents:
            metadata = document["metadata"]
            if not _is_own(metadata, identity) or metadata.get("deletionTimestamp"):
                continue
            lost = self.of(document, identity, spec, last)
            if lost.labels or lost.annotations:
                found.append(lost)
            names.add(metadata["name"])
            seen[str(metadata.get("uid"))] = (
                {**_present(metadata.get("labels"), _LABELS), **lost.labels},
                {**_present(metadata.get("annotations"), _ANNOTATIONS), **lost.annotations},
            )
        self._known, self._before, self._names = seen, self._known, frozenset(names)
        return found

    def of(self, document: Mapping[str, Any], identity: PoolIdentity, spec: PoolSpec | None, last: int) -> LostMarks:
        """Return the missing or changed marks of this pod, which must be the pool's own."""
        metadata, uid = document["metadata"], str(document["metadata"].get("uid"))
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        known_labels, known = self._known.get(uid) or self._before.get(uid) or ({}, {})
        role = _BY_LETTER.get(metadata["name"].removeprefix(f"{identity.name}-")[:1], Role.BOTH)
        of_role = known_labels.get(ROLE_LABEL, role.value)
        if labels.get(ROLE_LABEL) in ({one.name for one in spec.roles} if spec is not None else set(Role)):
            of_role = labels[ROLE_LABEL]  # a flip changes it
        wanted = {POOL_LABEL: identity.name, INSTANCE_LABEL: metadata["name"], ROLE_LABEL: of_role, **MANAGED_BY}
        inferred = {} if known else _inferred(metadata["name"], annotations, identity, spec, role, last)
        if annotations.get(STATE_ANNOTATION) == InstanceState.DRAINING and STATE_SINCE_ANNOTATION in annotations:
            inferred[DRAINING_ANNOTATION] = annotations[STATE_SINCE_ANNOTATION]
        return LostMarks(
            pod=document,
            labels={name: value for name, value in wanted.items() if labels.get(name) != value},
            annotations={
                name: value
                for name, value in {**inferred, **known}.items()
                if name not in annotations or (name in _ONCE and annotations[name] != value)
            },
        )


def marks_shown(metadata: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the parts of a pod that change when its marks change: the operator's labels with their values, the names
    of its annotations, the values of the constant annotations, and the uids of the pod's owners. If the result differs
    from the pod's earlier result, the pod must be examined. Somebody may have removed marks, because the operator never
    removes any.
    """
    labels, annotations = _present(metadata.get("labels"), _LABELS), _present(metadata.get("annotations"), _ANNOTATIONS)
    said = [annotations.get(name) for name in sorted(_ONCE)]
    return (*labels.items(), *annotations, *said, *(owner.get("uid") for owner in metadata.get("ownerReferences") or ()))


def pool_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the name of the pool to which a pod belongs, even if the pod is a worker of a group: by the pod's owner,
    else by its label; None for a pod of no pool.
    """
    owner: Mapping[str, Any] = next((one for one in metadata.get("ownerReferences") or () if one.get("kind") == KIND), {})
    labels = metadata.get("labels") or {}
    return owner.get("name") or labels.get(POOL_LABEL) or labels.get(GROUP_LABEL)


def made_by(identity: PoolIdentity, name: str, *, last: int) -> bool:
    """Return whether this pool made the pod of this name, and not an earlier pool of the same name."""
    return any(ordinal_of(name, identity, role, last) is not None for role in Role)


def ordinal_of(name: str, identity: PoolIdentity, role: Role, last: int) -> int | None:
    """Return the ordinal of the pod of this name, if this pool made the name from an ordinal; None if the pool cannot
    have made the name yet. `last` is the highest ordinal given so far.
    """
    found = ordinal_of_name(name.removesuffix(LEADER), identity.name, identity.uid, role)
    return found if found is not None and found < last + _LOOKED_AHEAD else None


def _inferred(
    name: str, annotations: Mapping[str, str], identity: PoolIdentity, spec: PoolSpec | None, role: Role, last: int
) -> dict[str, str]:
    """Return the inferred marks of a pod that was not read before. If nothing shows its template, the present template
    is assumed.
    """
    found = {}
    if HASH_ANNOTATION not in annotations and spec is not None and role in {one.name for one in spec.roles}:
        found[HASH_ANNOTATION] = spec_hash(spec, role)
    if (ordinal := ordinal_of(name, identity, role, last)) is not None and annotations.get(ORDINAL_ANNOTATION) != str(ordinal):
        found[ORDINAL_ANNOTATION] = str(ordinal)
    return found


def _is_own(metadata: Mapping[str, Any], identity: PoolIdentity) -> bool:
    return any(owner.get("uid") == identity.uid for owner in metadata.get("ownerReferences") or ())


def _present(found: Mapping[str, str] | None, names: Iterable[str]) -> dict[str, str]:
    return {name: found[name] for name in names if name in found} if found else {}
