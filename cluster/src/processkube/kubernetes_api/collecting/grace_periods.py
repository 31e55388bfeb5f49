"""How long a node or its object may be missing before its pods are given up, in seconds."""

GRACE_SECONDS = 10.0
"""Silence allowed to a node. kube-controller-manager has 40 s, and 50 s since Kubernetes 1.32."""
STARTUP_GRACE_SECONDS = 60.0
"""Silence allowed to a node that has never reported a condition, as in kube-controller-manager."""
QUARANTINE_SECONDS = 40.0
"""How long a Node object is missing before the pods bound to it are removed, as in kube-controller-manager."""
