"""The checks and additions that admission makes for a new pod, as three parts of a real cluster do. Like the plugins
ServiceAccount and Priority, it requires that the pod's account and priority class exist. Like the webhook of
LeaderWorkerSets, it adds labels and variables to the pods of a group.

Unlike the real plugin ServiceAccount, it does not add a volume with the account's token. processkube's kubelet mounts a
token into pods that ask for one.
"""

from __future__ import annotations

import hashlib

from processkube.kubernetes_api.objects.errors import Forbidden
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.storing.store import Store

ACCOUNTS = "serviceaccounts"


def admit_account(store: Store, pod: Object, name: str) -> None:
    """Raise Forbidden if a new pod's service account does not exist. Otherwise add the account's secrets for pulling
    images to the pod, unless the pod has its own.
    """
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
    """Raise Forbidden if a new pod's priority class does not exist. Otherwise write the class's priority and preemption
    policy into the pod.
    """
    wanted = pod["spec"].get("priorityClassName")
    if not wanted or wanted in _SYSTEM_CLASSES:
        return
    found = store.get(PRIORITY_CLASSES, "", wanted)
    if found is None:
        why = f"no PriorityClass with name {wanted} was found"
        raise Forbidden(f'pods "{name}" is forbidden: {why}', details={"name": name, "kind": "pods"})
    pod["spec"]["priority"] = found.object.get("value", 0)
    pod["spec"]["preemptionPolicy"] = found.object.get("preemptionPolicy", "PreemptLowerPriority")


_DOMAIN = "leaderworkerset.sigs.k8s.io"
SET_NAME, WORKER_INDEX, GROUP_INDEX = f"{_DOMAIN}/name", f"{_DOMAIN}/worker-index", f"{_DOMAIN}/group-index"
GROUP_KEY, REVISION, SIZE = f"{_DOMAIN}/group-key", f"{_DOMAIN}/template-revision-hash", f"{_DOMAIN}/size"
LEADER_NAME = f"{_DOMAIN}/leader-name"


def complete_member(pod: Object) -> None:
    """Add labels and environment variables to a new pod of a LeaderWorkerSet's group, as the webhook of
    LeaderWorkerSets does.
    """
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if SET_NAME not in labels or SIZE not in annotations:
        return
    ordinal = metadata.get("name", "").rpartition("-")[2]
    if labels.get(WORKER_INDEX) == "0":
        labels.setdefault(GROUP_INDEX, ordinal)
        labels.setdefault(
            GROUP_KEY, hashlib.sha1(f"{metadata['namespace']}/{metadata['name']}".encode(), usedforsecurity=False).hexdigest()
        )
    else:
        labels[WORKER_INDEX] = ordinal
    address = f"{labels[SET_NAME]}-{labels[GROUP_INDEX]}.{pod['spec'].get('subdomain', '')}.{metadata['namespace']}"
    added = {"LWS_LEADER_ADDRESS": address, "LWS_GROUP_SIZE": annotations[SIZE], "LWS_WORKER_INDEX": labels[WORKER_INDEX]}
    for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]:
        kept = [one for one in container.get("env", ()) if one["name"] not in added]
        container["env"] = [*({"name": name, "value": value} for name, value in added.items()), *kept]
