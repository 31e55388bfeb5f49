"""Plans that delete a pool or create it, and the writes to the Kubernetes API that apply such plans. Undoing a deletion
creates the pool again.

In the stored plan of a creation, `change` is the manifest to create, and `inverse` is empty. In the stored plan of a
deletion, `change` is empty, and `inverse` is the manifest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from fairlead.amounts import amount
from fairlead.errors import InvalidInput
from fairlead.pools import GROUP, VERSION, PoolSpec, parse_spec
from fairlead.pools import KIND as POOL_KIND
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.object_marks import CHANGE_REASON, CHANGED_BY, PLAN
from fairlead_api.plans.changes import Asked, Change, Kind, replicas_of
from fairlead_api.plans.evidence import PoolUse
from fairlead_api.plans.objects import ClusterGateway, ClusterObject, Target
from fairlead_api.pools.diffs import diff
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect

_TRIES = 6
_OURS = frozenset({CHANGED_BY, CHANGE_REASON, PLAN})


async def _change(asked: Asked) -> Change:
    target, found = await asked.its_pool()
    return Change(target=target, found=found, patch={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Existence:
    """The part of a stored plan that is specific to deletions and creations: the manifest to create (empty for a
    deletion), the reverse change, and how the change is shown.
    """

    change: dict[str, Any]
    inverse: dict[str, Any]
    seen: dict[str, Any]
    """The pool's spec at the time of the plan."""
    diff: list[dict[str, Any]]
    patch: str


def deletion(target: Target, found: ClusterObject) -> Existence:
    """Return the deletion of the object. Its inverse creates the object with the same spec, labels and annotations."""
    annotations = {name: value for name, value in found.annotations.items() if name not in _OURS and "kopf" not in name}
    manifest = {"labels": dict(found.labels), "annotations": annotations, "spec": dict(found.spec)}
    return Existence(
        change={},
        inverse=manifest,
        seen=dict(found.spec),
        diff=diff(found.spec, {}, "/spec"),
        patch=_shown(target, "delete this object", {}),
    )


def creation(target: Target, manifest: dict[str, Any]) -> Existence:
    """Return the creation of the object that the manifest describes. Its inverse deletes the object."""
    shown = _shown(target, "create this object", {"spec": manifest["spec"]})
    return Existence(change=manifest, inverse={}, seen={}, diff=diff({}, manifest["spec"], "/spec"), patch=shown)


def deletion_effect(pool: PoolUse | None, spec: Mapping[str, Any]) -> PlanEffect:
    """Return the effect of a deletion: all sessions are lost, because the pool has no instances any more. `pool` is
    None if the pool's spec was never usable.
    """
    notes = [
        "Undoing creates the pool again with the same spec: instances start again, and lost sessions and caches stay lost. "
        "Its records stay, but the revisions for roll-backs are lost."
    ]
    if pool is None:
        return PlanEffect(notes=notes, heavy=True)
    adopted = any("selector" in role for role in spec.get("roles") or ())
    if adopted:
        notes.append("The pods that it adopted are given up and go on running.")
    removed = [] if adopted else [use.id for use in pool.instances]
    warnings = ["Every request for the pool is refused from then on."]
    if pool.sessions:
        warnings.append(f"{amount(pool.sessions, 'session', 'are')} lost with the cache: no instance is left.")
    return PlanEffect(
        instances_removed=len(removed),
        victims=removed,
        sessions_lost=pool.sessions,
        cache_tokens_lost=sum(use.cache_tokens for use in pool.instances),
        requests_in_flight=sum(use.in_flight for use in pool.instances),
        notes=notes,
        warnings=warnings,
        heavy=True,
    )


def creation_effect(spec: Mapping[str, Any]) -> PlanEffect:
    """Return the effect of a creation: instances start with empty caches, and lost sessions and caches stay lost."""
    notes = ["Instances start again, with empty caches. Sessions that were lost stay lost."]
    try:
        wanted: PoolSpec = parse_spec(spec)
    except InvalidInput as error:
        return PlanEffect(notes=notes, warnings=[f"Its spec is refused now: {error}"])
    added = 0 if wanted.adopts else sum(replicas_of(wanted, role.name) for role in wanted.roles)
    return PlanEffect(instances_added=added, notes=notes)


async def delete(cluster: ClusterGateway, target: Target, uid: str, generation: int) -> None:
    """Delete the object if it has not changed since the plan was made. If the object does not exist or is being
    deleted, an earlier attempt has deleted it.
    """
    for attempt in range(1, _TRIES + 1):
        try:
            found = await cluster.read(target)
        except NotFound:
            return
        if found.uid == uid and found.is_deleting:
            return
        if (found.uid, found.generation) != (uid, generation):
            raise Conflict("object-changed", f"{target} was changed since the plan was made; make a new plan")
        try:
            await cluster.delete(target, uid, found.resource_version, dry_run=False)
        except NotFound:
            return
        except Conflict:
            if attempt == _TRIES:
                raise
        else:
            return


async def create(cluster: ClusterGateway, target: Target, manifest: Mapping[str, Any], marks: Mapping[str, str | None]) -> ClusterObject:
    """Create the object. If it exists and has this plan's mark, an earlier attempt created it."""
    try:
        found = await cluster.read(target)
    except NotFound:
        return await cluster.create(target, manifest, marks, dry_run=False)
    if found.annotations.get(PLAN) == marks[PLAN]:
        return found
    raise Conflict("object-changed", f"{target} was created since the plan was made; make a new plan")


async def absent(cluster: ClusterGateway, target: Target, uid: str) -> None:
    """Raises Conflict unless the object is gone: `still-deleting`, or `object-changed` if a new object has the same
    name.
    """
    try:
        found = await cluster.read(target)
    except NotFound:
        return
    if found.uid == uid:
        raise Conflict("still-deleting", f"{target} is still being deleted; try again in some seconds")
    raise Conflict("object-changed", f"{target} was deleted and created again since; make a new plan")


def _shown(target: Target, words: str, rest: dict[str, Any]) -> str:
    metadata = {"name": target.name, "namespace": target.namespace}
    document = {"apiVersion": f"{GROUP}/{VERSION}", "kind": POOL_KIND, "metadata": metadata, **rest}
    return f"# {words}\n{yaml.safe_dump(document, sort_keys=False, allow_unicode=True)}"


KIND = Kind(name=PlanKind.DELETE, change=_change, questions=lambda _change, _policies: ())
"""The kind `delete`. Its effect is `deletion_effect`, which is also known for a pool whose spec was never usable."""
