"""The service account of a pod, which must exist: what the admission plugin ServiceAccount asks for and adds.

It does not add the volume with the account's token: processkube's kubelet mounts one for the pods that ask for it.
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
