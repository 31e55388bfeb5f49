"""Merge patches and annotations that change a running pod: its state, its drain, its adoption. Pure."""

from collections.abc import Mapping
from typing import Any

from fairlead.adoption_specs import ADOPTED_BY_ANNOTATION
from fairlead.instance_marks import MARKS, POOL_LABEL, TEMPLATE_MARKS
from fairlead.instances import InstanceState, Role
from fairlead_operator.pod_marks import (
    ADOPTED_ROLE_LABEL,
    DELETION_COST_ANNOTATION,
    DRAINING_ANNOTATION,
    FORMER_COST_ANNOTATION,
    NO_DRAIN,
    ROLE_LABEL,
    STATE_ANNOTATION,
    STATE_REASON_ANNOTATION,
    STATE_SINCE_ANNOTATION,
    WARMED_ANNOTATION,
)
from fairlead_operator.pool_identity import PoolIdentity

_LEAST_COST = "-2147483648"


def state_annotations(state: InstanceState, since: str, reason: str) -> dict[str, str]:
    """Return the annotations that record a state.

    Draining is also recorded in an annotation of its own, which stays when the state becomes Lost.
    """
    annotations = {STATE_ANNOTATION: state.value, STATE_SINCE_ANNOTATION: since, STATE_REASON_ANNOTATION: reason}
    if state is InstanceState.DRAINING:
        annotations[DRAINING_ANNOTATION] = since
    return annotations


def asleep_patch(since: str, reason: str) -> dict[str, Any]:
    """Return the merge patch that makes a pod's instance Asleep: its drain has ended, and its cache is lost."""
    state = state_annotations(InstanceState.ASLEEP, since, reason)
    return {"metadata": {"annotations": {**state, **NO_DRAIN, WARMED_ANNOTATION: None}}}


def flip_patch(role: Role, since: str) -> dict[str, Any]:
    """Return the merge patch that lets a drained pod continue in another role. It changes the pod's label and state and
    ends its drain.
    """
    return {
        "metadata": {
            "labels": {ROLE_LABEL: role.value},
            "annotations": {
                **state_annotations(InstanceState.WARMING, since, "RoleFlipped"),
                **NO_DRAIN,
                WARMED_ANNOTATION: None,
            },
        }
    }


def end_of_drain_patch(metadata: Mapping[str, Any], since: str) -> dict[str, Any]:
    """Return the merge patch that puts a draining pod with this metadata back in service."""
    state = state_annotations(InstanceState.WARMING, since, "DrainWithdrawn")
    return {"metadata": {"annotations": {**state, **NO_DRAIN, **former_cost(metadata), WARMED_ANNOTATION: None}}}


def adoption_patch(identity: PoolIdentity, role: Role) -> dict[str, Any]:
    """Return the merge patch that makes a running pod an instance of the pool."""
    return {
        "metadata": {
            "labels": {POOL_LABEL: identity.name, ADOPTED_ROLE_LABEL: role.value},
            "annotations": {ADOPTED_BY_ANNOTATION: identity.uid},
        }
    }


def release_patch(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that removes Fairlead's metadata from an adopted pod: all labels and annotations that the
    pool wrote, and the annotations in which people made requests. Settings that may come from the pod's own template,
    such as its weight, are kept.
    """
    marks = {part: dict.fromkeys(name for name in metadata.get(part) or {} if _is_mark(name)) for part in ("labels", "annotations")}
    return {"metadata": {"uid": metadata["uid"], **marks, "annotations": {**marks["annotations"], **former_cost(metadata)}}}


def least_cost(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations that make the workload end a pod with this metadata first, and that store its earlier
    cost.
    """
    annotations = metadata.get("annotations") or {}
    if FORMER_COST_ANNOTATION in annotations:
        return {DELETION_COST_ANNOTATION: _LEAST_COST}
    return {DELETION_COST_ANNOTATION: _LEAST_COST, FORMER_COST_ANNOTATION: annotations.get(DELETION_COST_ANNOTATION, "")}


def former_cost(metadata: Mapping[str, Any]) -> dict[str, str | None]:
    """Return annotations that restore the earlier deletion cost of a pod with this metadata."""
    former = (metadata.get("annotations") or {}).get(FORMER_COST_ANNOTATION)
    return {} if former is None else {DELETION_COST_ANNOTATION: former or None, FORMER_COST_ANNOTATION: None}


def _is_mark(name: str) -> bool:
    return name.startswith(MARKS) and name not in TEMPLATE_MARKS
