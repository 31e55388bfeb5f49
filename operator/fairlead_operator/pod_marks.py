"""Labels and annotations of pods that are the operator's memory; people's marks are in `fairlead.instance_marks`."""

from collections.abc import Mapping
from types import MappingProxyType

LEADER = "-0"
"""The suffix that the LeaderWorkerSet controller appends to a set's name for the leader of its first group."""

INSTANCE_LABEL = "fairlead.dev/instance"
ROLE_LABEL = "llm-d.ai/role"
HASH_ANNOTATION = "fairlead.dev/spec-hash"
STATE_ANNOTATION = "fairlead.dev/state"
STATE_SINCE_ANNOTATION = "fairlead.dev/state-since"
STATE_REASON_ANNOTATION = "fairlead.dev/state-reason"
DRAINING_ANNOTATION = "fairlead.dev/draining-since"
FLIP_ANNOTATION = "fairlead.dev/flip-to"
"""Annotation of a draining pod: the role in which it continues after its drain."""

DRAIN_REASON_ANNOTATION = "fairlead.dev/drain-reason"
"""Annotation of a draining pod: why its drain began."""

WARMED_ANNOTATION = "fairlead.dev/warmed-restarts"
"""Annotation: the number of restarts of the pod's containers at the time when the instance last had its full weight. As
long as the number is unchanged, the instance still has its caches.
"""

DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' annotation: a ReplicaSet first deletes the ready pod with the lowest cost."""

FORMER_COST_ANNOTATION = "fairlead.dev/former-deletion-cost"
"""Annotation of an adopted pod that should be deleted first: its earlier deletion cost; empty if it had none."""

ADOPTED_ROLE_LABEL = "fairlead.dev/role"
"""Label of an adopted pod: its role in the pool. The role label of the pool's own pods is not used, because a
workload's template may set it.
"""

NO_DRAIN: Mapping[str, None] = MappingProxyType(dict.fromkeys((DRAINING_ANNOTATION, DRAIN_REASON_ANNOTATION, FLIP_ANNOTATION)))
"""A patch that removes everything that a drain leaves on a pod."""

CREATED_ANNOTATION = "fairlead.dev/created-at"
"""Annotation: the time at which the operator made the pod, by the operator's clock.

The server's creationTimestamp comes from another clock and has whole seconds.
"""

ORDINAL_ANNOTATION = "fairlead.dev/ordinal"
"""Annotation: the instance's number in its pool, counted from 1; the pod's name is made from it."""
FAILURES_ANNOTATION = "fairlead.dev/failures"
"""Annotation: number of consecutive failed instances before this instance. If this instance also fails, the pause
before its replacement grows with the number.
"""
