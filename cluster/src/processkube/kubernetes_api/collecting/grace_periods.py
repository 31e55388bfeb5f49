"""Seconds for which a node may be silent, or its Node object may be missing, before the server gives up the node's
pods.
"""

GRACE_SECONDS = 10.0
"""Seconds for which a node may be silent. kube-controller-manager has 40 s, and 50 s since Kubernetes 1.32."""
STARTUP_GRACE_SECONDS = 60.0
"""Seconds for which a node may be silent if it has never reported a condition, as in kube-controller-manager."""
QUARANTINE_SECONDS = 40.0
"""Seconds for which a Node object must be missing before the pods that are bound to it are removed, as in
kube-controller-manager.
"""
