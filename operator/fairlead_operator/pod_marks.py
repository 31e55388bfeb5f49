"""Labels and annotations of pods by which the operator remembers; people ask by those of `fairlead.instance_marks`."""

from collections.abc import Mapping
from types import MappingProxyType

INSTANCE_LABEL = "fairlead.dev/instance"
ROLE_LABEL = "llm-d.ai/role"
HASH_ANNOTATION = "fairlead.dev/spec-hash"
STATE_ANNOTATION = "fairlead.dev/state"
STATE_SINCE_ANNOTATION = "fairlead.dev/state-since"
STATE_REASON_ANNOTATION = "fairlead.dev/state-reason"
DRAINING_ANNOTATION = "fairlead.dev/draining-since"
FLIP_ANNOTATION = "fairlead.dev/flip-to"
"""Annotation of a draining pod: the role it goes on in once it is drained."""

DRAIN_REASON_ANNOTATION = "fairlead.dev/drain-reason"
"""Annotation of a draining pod: why its drain began."""

WARMED_ANNOTATION = "fairlead.dev/warmed-restarts"
"""Annotation: the restarts of the pod's containers when it had its full weight last; while equal, it has its caches."""

DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' annotation: of the ready pods of a ReplicaSet the one with the least cost is the first to be deleted."""

FORMER_COST_ANNOTATION = "fairlead.dev/former-deletion-cost"
"""Annotation of an adopted pod that goes first: the deletion cost that it had before; empty if it had none."""

ADOPTED_ROLE_LABEL = "fairlead.dev/role"
"""Label of an adopted pod: its role in the pool. The label of the pool's own pods may be the workload's business."""

NO_DRAIN: Mapping[str, None] = MappingProxyType(dict.fromkeys((DRAINING_ANNOTATION, DRAIN_REASON_ANNOTATION, FLIP_ANNOTATION)))
"""Takes all that a drain leaves off a pod."""

REVISION_ANNOTATION = "fairlead.dev/kv-revision"
"""Annotation: the model and the engine's image. Prefill and decode instances pair when it is equal, as other versions
may lay out KV blocks differently. A template's own annotation wins, such as for images per role that go together.
"""

CREATED_ANNOTATION = "fairlead.dev/created-at"
"""Annotation: when the operator made the pod, by the operator's clock.

The server's creationTimestamp comes from another clock and has whole seconds.
"""

ORDINAL_ANNOTATION = "fairlead.dev/ordinal"
"""The instance's number in its pool, counted from 1; the pod's name is made from it."""
FAILURES_ANNOTATION = "fairlead.dev/failures"
"""How many instances in a row failed before this one; the pause before it is replaced grows with them."""
