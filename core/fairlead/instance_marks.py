"""Labels and annotations on an instance's pod that the control API writes or uses in queries, and that the operator
obeys.
"""

from collections.abc import Mapping, Sequence

MARKS = "fairlead.dev/"
"""The beginning of the names of all labels and annotations that Fairlead reads or writes."""

POOL_LABEL = "fairlead.dev/pool"
"""The label that names the instance's pool."""

GROUP_LABEL = "fairlead.dev/group-of"
"""The label that names the pool of each pod of an instance with several nodes; only the leader has `POOL_LABEL` too."""

CORDONED_ANNOTATION = "fairlead.dev/cordoned"
"""Set by people. With the value `true` the instance gets no new requests."""

DRAIN_ANNOTATION = "fairlead.dev/drain"
"""Set by people. With the value `true` the instance is drained, and another instance replaces it."""

WEIGHT_ANNOTATION = "fairlead.dev/weight"
"""Set by people: the instance's weight on the hash ring. With `0.5` the instance gets half of another instance's share
of the keys.
"""

REVISION_ANNOTATION = "fairlead.dev/kv-revision"
"""The instance's revision: the model and the engine's image. A prefill and a decode instance pair only if their
revisions are equal, because other versions may lay out KV blocks differently. If a pod template has this annotation,
its value takes precedence, for example if each role has its own image.
"""

TEMPLATE_MARKS = frozenset({WEIGHT_ANNOTATION, REVISION_ANNOTATION})
"""The annotations of Fairlead that a pod template may have. All other annotations are about one pod. For example, a
template with a request to drain would cause each new instance to be replaced at once, without end.
"""

ENGINE_CONTAINER = "engine"
DEFAULT_CONTAINER_ANNOTATION = "kubectl.kubernetes.io/default-container"
"""Kubernetes' annotation that names the pod's default container. Injectors of side-cars set it."""


def engine_container_of(names: Sequence[str], annotations: Mapping[str, str] | None) -> str:
    """Return the name of the container that serves: `engine` if it exists, else the pod's default container, else the
    first container; empty without containers. The first container may be an injected side-car, and a pod's status lists
    containers in the order of their names.
    """
    wanted = (ENGINE_CONTAINER, (annotations or {}).get(DEFAULT_CONTAINER_ANNOTATION, ""))
    return next((name for name in wanted if name in names), names[0] if names else "")
