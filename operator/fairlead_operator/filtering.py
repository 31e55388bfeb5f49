"""Decides which watch events are news for a pool's worker.

The operator's own writes (status, annotations) are not news, otherwise every step would cause the next. The last seen
essence of an object is kept in kopf's memo of that object, which disappears with it.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import kopf

from fairlead.instance_marks import CORDONED_ANNOTATION, DRAIN_ANNOTATION, WEIGHT_ANNOTATION
from fairlead_operator.observing.pods import pod_health, trouble_of

Document = Mapping[str, Any]


def is_news(memo: kopf.Memo, event: kopf.RawEvent, essence: Callable[[Document], Hashable]) -> bool:
    """Whether the object is gone, or its `essence` differs from what was seen last."""
    seen, memo.seen = memo.get("seen"), essence(event["object"])
    return event["type"] == "DELETED" or memo.seen != seen


def pool_essence(pool: Document) -> Hashable:
    """The parts of a pool that matter: spec, deletion, finalizers, labels and annotations."""
    metadata = pool["metadata"]
    return (
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        tuple(metadata.get("finalizers") or ()),
        tuple(sorted((metadata.get("labels") or {}).items())),
        tuple(sorted((metadata.get("annotations") or {}).items())),
    )


def pod_essence(pod: Document) -> Hashable:
    """The parts of a pod that matter: health, what keeps it from running, address, restarts, what people ask of
    it, and deletion.
    """
    status = pod.get("status") or {}
    restarts = sum(int(container.get("restartCount") or 0) for container in status.get("containerStatuses") or [])
    trouble = trouble_of(pod["metadata"]["name"], status)
    annotations = pod["metadata"].get("annotations") or {}
    asked = tuple(annotations.get(name) for name in (CORDONED_ANNOTATION, DRAIN_ANNOTATION, WEIGHT_ANNOTATION))
    deleted = bool(pod["metadata"].get("deletionTimestamp"))
    return (pod_health(status), trouble and trouble.reason, status.get("podIP"), restarts, asked, deleted)


def child_essence(child: Document) -> Hashable:
    """The parts of a Service or PodDisruptionBudget that matter: spec, labels and owners, not status."""
    metadata = child["metadata"]
    return json.dumps([child.get("spec"), metadata.get("labels"), metadata.get("ownerReferences")], sort_keys=True)
