"""The PersistentVolumeClaims of a StatefulSet's pods: their names, and the owners that the retention policy
requires.
"""

from __future__ import annotations

from processkube.kubernetes_api.objects.objects import Object, copy_of
from processkube.kubernetes_api.workloads.owners import reference_to


def claims_of(stateful_set: Object, ordinal: int) -> dict[str, Object]:
    """Return the claims of the pod with this number, by the name of their volume."""
    metadata, spec = stateful_set["metadata"], stateful_set["spec"]
    found = {}
    for template in spec.get("volumeClaimTemplates", ()):
        claim: Object = copy_of(template)
        claim.pop("status", None)
        given = claim["metadata"]
        volume = given["name"]
        given |= {"name": f"{volume}-{metadata['name']}-{ordinal}", "namespace": metadata["namespace"]}
        given["labels"] = {**given.get("labels", {}), **spec["selector"].get("matchLabels", {})}
        found[volume] = {**claim, "apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return found


def with_claims(pod: Object, claims: dict[str, Object]) -> Object:
    """Return the pod with a volume for each claim. Such a volume replaces a volume with the same name."""
    others = [one for one in pod["spec"].get("volumes", ()) if one["name"] not in claims]
    own = [{"name": name, "persistentVolumeClaim": {"claimName": one["metadata"]["name"]}} for name, one in claims.items()]
    return {**pod, "spec": {**pod["spec"], "volumes": own + others}} if own else pod


def owned_rightly(claim: Object, stateful_set: Object, pod: Object, *, is_wanted: bool) -> Object | None:
    """Return the claim with the owner that the retention policy requires; None if the claim need not change.
    `is_wanted` says whether the claim's pod should exist.

    If `whenDeleted` is `Delete`, the claim is deleted with the StatefulSet. If `whenScaled` is `Delete`, it is deleted
    with its pod when the StatefulSet is scaled in. A claim that belongs to another controller, or to an earlier object
    with the same name, does not change.
    """
    policy = stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"]
    references = claim["metadata"].get("ownerReferences", [])
    ours = {(one["kind"], one["metadata"]["name"]): one["metadata"].get("uid") for one in (stateful_set, pod)}
    known = [one for one in references if (one["kind"], one["name"]) in ours]
    if any(ours[one["kind"], one["name"]] != one["uid"] for one in known):
        return None
    if any(one.get("controller") for one in references if one not in known):
        return None
    owner = None
    if not is_wanted and policy["whenScaled"] == "Delete":
        owner = pod
    elif policy["whenDeleted"] == "Delete":
        owner = stateful_set
    wanted = [one for one in references if one not in known] + ([reference_to(owner)] if owner is not None else [])
    if wanted == references:
        return None
    changed: Object = copy_of(claim)
    changed["metadata"].pop("ownerReferences", None)
    if wanted:
        changed["metadata"]["ownerReferences"] = wanted
    return changed


def is_stale(claim: Object, stateful_set: Object, pod_name: str) -> bool:
    """Return whether a claim still belongs to an earlier pod with this name. Such a claim will be deleted with the
    earlier pod, so a new pod has to wait.
    """
    if stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Retain":
        return False
    return any((one["kind"], one["name"]) == ("Pod", pod_name) for one in claim["metadata"].get("ownerReferences", ()))
