"""Creates and restores the objects that a pool owns, and adopts objects that a deleted pool left behind.

Objects of other owners are never touched.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.adoption_specs import ADOPTED_BY_ANNOTATION
from fairlead.instance_marks import GROUP_LABEL, POOL_LABEL
from fairlead.pools import KIND
from fairlead_operator.applying.retrying import NotOwned
from fairlead_operator.cluster import Cluster, Resource
from fairlead_operator.manifests import MANAGED_BY
from fairlead_operator.merge_patches import merge_patch, without_nulls
from fairlead_operator.observing.adopted_pods import Claim, is_adopted
from fairlead_operator.pod_marks import INSTANCE_LABEL
from fairlead_operator.pod_patches import adoption_patch, release_patch
from fairlead_operator.pool_identity import PoolIdentity


def is_owned(metadata: Mapping[str, Any], uid: str) -> bool:
    """Return whether the pool with this uid owns the object. A deleted pool of the same name had another uid."""
    return any(owner.get("uid") == uid for owner in metadata.get("ownerReferences") or [])


def is_orphan(metadata: Mapping[str, Any], identity: PoolIdentity) -> bool:
    """Return whether a pool of this name made the object and the object has no controller any more.

    Such objects remain when a pool was deleted without its children.
    """
    labels = metadata.get("labels") or {}
    made_by_us = MANAGED_BY.items() <= labels.items() and labels.get(POOL_LABEL) == identity.name
    return made_by_us and _controller(metadata) is None and not metadata.get("deletionTimestamp")


def orphaned_pods(documents: Iterable[Mapping[str, Any]], identity: PoolIdentity) -> tuple[Mapping[str, Any], ...]:
    """Return the pods that were instances of a deleted pool of the same name and can be adopted by this pool."""
    return tuple(
        document
        for document in documents
        if is_orphan(document["metadata"], identity) and document["metadata"]["labels"].get(INSTANCE_LABEL) == document["metadata"]["name"]
    )


def strange_pods(documents: Iterable[Mapping[str, Any]], identity: PoolIdentity) -> tuple[str, ...]:
    """Return the names of pods that have the pool's label but are not its instances.

    Pods of a deleted pool of the same name, pods that a pool adopted, and leaders of groups are left out.
    """
    return tuple(
        sorted(
            document["metadata"]["name"]
            for document in documents
            if document["metadata"].get("labels", {}).get(POOL_LABEL) == identity.name
            and GROUP_LABEL not in document["metadata"]["labels"]
            and not is_owned(document["metadata"], identity.uid)
            and ADOPTED_BY_ANNOTATION not in (document["metadata"].get("annotations") or {})
            and not document["metadata"].get("deletionTimestamp")
            and (_controller(document["metadata"]) or {}).get("kind") != KIND
        )
    )


async def adopt_selected(cluster: Cluster, identity: PoolIdentity, claim: Claim) -> None:
    """Make a selected pod an instance of the pool, if the pod is unchanged since it was read. If two pools try to adopt
    the same pod, only the first one succeeds.

    Raises ClusterError, and NotOwned if the pod is already an instance of another pool.
    """
    if claim.claimant is not None:
        uid, name = claim.claimant
        other = await cluster.get(Resource.POOLS, identity.namespace, name)
        if other is not None and other["metadata"]["uid"] == uid:
            raise NotOwned(
                f"Pod {identity.namespace}/{claim.name} is selected and is an instance of pool {name}; it stays there: "
                "let only one of the pools select it"
            )
    patch = _guarded(claim.pod, adoption_patch(identity, claim.role))
    await cluster.patch(Resource.PODS, identity.namespace, claim.name, patch)


async def release(cluster: Cluster, identity: PoolIdentity, name: str) -> bool:
    """Remove everything that Fairlead wrote on a pod that the pool adopted. Return False if the pod does not exist, or
    is not adopted by this pool.

    Raises ClusterError.
    """
    found = await cluster.get(Resource.PODS, identity.namespace, name)
    if found is None or not is_adopted(found["metadata"], identity.uid):
        return False
    return await cluster.patch(Resource.PODS, identity.namespace, name, release_patch(found["metadata"]))


async def adopt(cluster: Cluster, identity: PoolIdentity, resource: Resource, found: Mapping[str, Any]) -> None:
    """Make the pool the owner of an object that a deleted pool left behind, if the object is unchanged since it was
    read. Raises ClusterError.
    """
    await cluster.patch(resource, identity.namespace, found["metadata"]["name"], _guarded(found, _ownership(found, identity)))


async def restore(cluster: Cluster, identity: PoolIdentity, resource: Resource, wanted: Mapping[str, Any], *, is_new: bool = False) -> None:
    """Create an owned object, or restore the fields that the pool sets; a null removes a field. Fields that others
    added stay.

    If `is_new` is True, the pool probably owns no objects yet, so the object is created without first reading it.
    Raises ClusterError, NotOwned.
    """
    name = wanted["metadata"]["name"]
    found = None if is_new else await cluster.get(resource, identity.namespace, name)
    if found is None:
        if await cluster.create(resource, identity.namespace, without_nulls(wanted)):
            return
        found = await cluster.get(resource, identity.namespace, name)
    if found is None or found["metadata"].get("deletionTimestamp"):
        return
    metadata = {name: wanted["metadata"][name] for name in ("labels", "annotations") if name in wanted["metadata"]}
    changes = _differences(found, {"metadata": metadata, "spec": wanted["spec"]})
    if not is_owned(found["metadata"], identity.uid):
        if not is_orphan(found["metadata"], identity):
            raise NotOwned(_collision(wanted["kind"], found, identity))
        changes = changes | {"metadata": changes.get("metadata", {}) | _ownership(found, identity)["metadata"]}
    if changes:
        await cluster.patch(resource, identity.namespace, name, _guarded(found, changes))


async def apply_owned(cluster: Cluster, identity: PoolIdentity, resource: Resource, wanted: dict[str, Any]) -> dict[str, Any]:
    """Create an owned object by server-side apply, or restore the fields that the pool sets; return the object
    afterwards.

    The existing object is read first, so that an object of another owner stays unchanged; if an object appears in
    between, the call conflicts. Raises ClusterError, with status 404 if the cluster does not know the kind, and
    NotOwned.
    """
    found = await cluster.get(resource, identity.namespace, wanted["metadata"]["name"])
    if found is None:
        return await cluster.apply(resource, identity.namespace, wanted, force=False)
    metadata = found["metadata"]
    if metadata.get("deletionTimestamp"):
        return found
    if is_owned(metadata, identity.uid):
        content = {name: part for name, part in wanted.items() if name not in {"apiVersion", "kind", "metadata"}}
        if not _differences(found, {"metadata": {"labels": wanted["metadata"]["labels"]}, **content}):
            return found
    elif not is_orphan(metadata, identity):
        raise NotOwned(_collision(wanted["kind"], found, identity))
    return await cluster.apply(resource, identity.namespace, _guarded(found, wanted), force=True)


async def delete_owned(cluster: Cluster, identity: PoolIdentity, resource: Resource, name: str) -> None:
    """Delete the owned object of this name, even if a deleted pool left it behind; an object of another owner stays.

    Raises ClusterError.
    """
    found = await cluster.get(resource, identity.namespace, name)
    if found is not None and (is_owned(found["metadata"], identity.uid) or is_orphan(found["metadata"], identity)):
        await cluster.delete(resource, identity.namespace, name)


async def delete_others(cluster: Cluster, identity: PoolIdentity, resource: Resource, wanted: Iterable[Mapping[str, Any]]) -> None:
    """Delete the pool's objects of a kind that are not among `wanted`, including objects that remain from a deleted
    pool.

    Raises ClusterError.
    """
    names = {body["metadata"]["name"] for body in wanted}
    for found in await cluster.find(resource, identity.namespace, identity.selector()):
        metadata = found["metadata"]
        if metadata["name"] not in names and (is_owned(metadata, identity.uid) or is_orphan(metadata, identity)):
            await cluster.delete(resource, identity.namespace, metadata["name"])


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    owners: list[Mapping[str, Any]] = metadata.get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def _ownership(found: Mapping[str, Any], identity: PoolIdentity) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [*(found["metadata"].get("ownerReferences") or []), identity.owner_reference()]}}


def _guarded(found: Mapping[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Add the uid and the resourceVersion of `found` to a patch and return the result. The server then refuses the
    patch if the object has changed since it was read.
    """
    guards = {"uid": found["metadata"]["uid"], "resourceVersion": found["metadata"]["resourceVersion"]}
    return changes | {"metadata": changes.get("metadata", {}) | guards}


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that sets all fields of `wanted` in `found`.

    Fields that `wanted` lacks stay, except in a selector, which must be equal, because an added label would select
    other pods.
    """
    patch: dict[str, Any] = {}
    for name, value in wanted.items():
        before = found.get(name)
        if name == "selector":
            inner = merge_patch(before or {}, value)
        elif isinstance(value, Mapping):
            inner = _differences(before or {}, value)
        elif before != value:
            patch[name] = value
            continue
        else:
            continue
        if inner:
            patch[name] = inner
    return patch


def _collision(kind: str, found: Mapping[str, Any], identity: PoolIdentity) -> str:
    controller = _controller(found["metadata"])
    owner = f"{controller.get('kind')} {controller.get('name')}" if controller is not None else "no pool"
    where = f"{identity.namespace}/{found['metadata']['name']}"
    return f"{kind} {where} exists and belongs to {owner}, not to this pool; it is left alone: delete or rename it, or rename the pool"
