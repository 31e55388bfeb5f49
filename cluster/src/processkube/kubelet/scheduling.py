"""Whether a node takes a new pod, in the words of Kubernetes' scheduler.

Pure. It considers only cordons and taints, which keep every new pod away; it ignores resources, selectors and
affinities.
"""

from collections.abc import Mapping
from typing import Any

from processkube.tolerations import tolerates

_REPELLING = frozenset({"NoSchedule", "NoExecute"})
_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint that a pod must tolerate to be placed on a cordoned node."""


def refusal(node: Mapping[str, Any], pod: Mapping[str, Any]) -> str | None:
    """Why the only node cannot take the pod, as the condition PodScheduled says it; None = it can."""
    tolerations = pod["spec"].get("tolerations") or ()

    def repels(taint: Mapping[str, Any]) -> bool:
        return taint.get("effect") in _REPELLING and not any(tolerates(one, taint) for one in tolerations)

    if node["spec"].get("unschedulable") and repels(_CORDON):
        reason = "node(s) were unschedulable"
    elif taint := next((one for one in node["spec"].get("taints") or () if repels(one)), None):
        reason = f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    else:
        return None
    none_is_available = "0/1 nodes are available: 1"
    return f"{none_is_available} {reason}. preemption: {none_is_available} Preemption is not helpful for scheduling."
