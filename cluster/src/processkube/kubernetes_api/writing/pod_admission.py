"""What the admission plugins ServiceAccount and Priority ask of a new pod, and add: its account and its priority class
must exist.

The first does not add the volume with the account's token: processkube's kubelet mounts one for pods that ask for it.
"""

from __future__ import annotations

from processkube.kubernetes_api.objects.errors import Forbidden
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.storing.store import Store

ACCOUNTS = "serviceaccounts"


def admit_account(store: Store, pod: Object, name: str) -> None:
    """Raise Forbidden for a new pod whose account does not exist; otherwise it may pull images as its account may."""
    namespace, spec = pod["metadata"]["namespace"], pod["spec"]
    wanted = spec["serviceAccountName"]
    account = store.get(ACCOUNTS, namespace, wanted)
    if account is None:
        why = f'error looking up service account {namespace}/{wanted}: serviceaccount "{wanted}" not found'
        raise Forbidden(f'pods "{name}" is forbidden: {why}', details={"name": name, "kind": "pods"})
    if not spec.get("imagePullSecrets") and (secrets := account.object.get("imagePullSecrets")):
        spec["imagePullSecrets"] = [dict(one) for one in secrets]


PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
_SYSTEM_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})


def admit_priority(store: Store, pod: Object, name: str) -> None:
    """Raise Forbidden for a new pod whose priority class does not exist; otherwise write the class's number."""
    wanted = pod["spec"].get("priorityClassName")
    if not wanted or wanted in _SYSTEM_CLASSES:
        return
    found = store.get(PRIORITY_CLASSES, "", wanted)
    if found is None:
        why = f"no PriorityClass with name {wanted} was found"
        raise Forbidden(f'pods "{name}" is forbidden: {why}', details={"name": name, "kind": "pods"})
    pod["spec"]["priority"] = found.object.get("value", 0)
    pod["spec"]["preemptionPolicy"] = found.object.get("preemptionPolicy", "PreemptLowerPriority")
