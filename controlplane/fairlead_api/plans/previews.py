"""Previews of changes: the API server checks the resulting object in a dry run, and the plan is stored as open."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import yaml

from fairlead.errors import InvalidInput
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.object_marks import owner_of
from fairlead_api.plans.changes import Change
from fairlead_api.plans.evidence import EvidenceReader, PoolUse
from fairlead_api.plans.kinds.catalogue import kind_of
from fairlead_api.plans.kinds.create import manifest_of
from fairlead_api.plans.kinds.delete import Existence, absent, creation, creation_effect, deletion, deletion_effect
from fairlead_api.plans.kinds.engines import ENGINES
from fairlead_api.plans.merge_patches import inverse
from fairlead_api.plans.objects import ClusterGateway, ClusterObject, Target, TargetKind
from fairlead_api.plans.questions import Known
from fairlead_api.plans.stored_plans import LIFE, PROPOSED, Expected, Expecting, PlanStore, StoredPlan, seen_of
from fairlead_api.pools.diffs import diff
from fairlead_api.pools.fixed_engines import engines_file
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import Plan, PlanEffect, PlanState, Proposal

_TRIES = 6


class Previews:
    """Creates open plans. `new_id` makes the ids of plans."""

    def __init__(
        self,
        store: PlanStore,
        evidence: EvidenceReader,
        cluster: ClusterGateway,
        policies: PolicyCatalogue,
        new_id: Callable[[], str],
        expecting: Expecting | None,
    ) -> None:
        self._store = store
        self._expecting = expecting
        self._evidence = evidence
        self._cluster = cluster
        self._policies = policies
        self._new_id = new_id

    async def of_change(
        self,
        pool: PoolKey,
        kind: PlanKind,
        change: Change,
        caller: Caller,
        now: datetime,
        *,
        undo_of: str | None = None,
        expected: Expected | None = None,
        simulation: str | None = None,
        proposal: Proposal | None = None,
    ) -> Plan:
        target, found, part, patch = change.target, change.found, change.part, change.patch
        question = kind_of(kind).questions(change, self._policies)[0]
        owner = owner_of(found.labels, found.annotations, found.managers) if target.kind.may_be_owned else None
        after = change.after if owner else await self._tried(target, found, patch)
        changes = diff(part, after, "".join(f"/{name}" for name in target.kind.path))
        if not changes:
            raise InvalidInput(*_only(patch, ".".join(target.kind.path)), "it already has this value; write another")
        effect = await question.effect(await self._known(pool, now))
        if kind_of(kind).is_for_admins(part, change.after):
            effect = replace(effect, for_admins=True)
        if expected is not None:
            effect = replace(
                effect, predicted_attainment=expected.attainment, predicted_refusals=expected.refusals, prediction_basis=expected.basis
            )
        shown = Existence(
            change=patch,
            inverse=inverse(part, patch),
            seen=seen_of(target, part, patch),
            diff=changes,
            patch=yaml.safe_dump(_shown(target, found, patch, after), sort_keys=False, allow_unicode=True),
        )
        plan = await self._keep(
            pool, kind, target, found.uid, found.generation, shown, effect, caller, now, owner=owner, undo_of=undo_of, proposal=proposal
        )
        if self._expecting is not None and expected is None:
            await self._expecting.planned(plan, question, found.spec if target.kind is TargetKind.POOL else None, now, simulation)
        return plan

    async def of_deletion(
        self, pool: PoolKey, kind: PlanKind, found: ClusterObject, caller: Caller, now: datetime, *, undo_of: str | None = None
    ) -> Plan:
        target = Target.of_pool(pool)
        owner = owner_of(found.labels, found.annotations, found.managers)
        if owner is None:
            await self._cluster.delete(target, found.uid, found.resource_version, dry_run=True)
        effect = deletion_effect(await self._use(pool, now), found.spec)
        shown = deletion(target, found)
        return await self._keep(pool, kind, target, found.uid, found.generation, shown, effect, caller, now, owner=owner, undo_of=undo_of)

    async def of_new(self, pool: PoolKey, kind: PlanKind, change: Change, caller: Caller, now: datetime) -> Plan:
        """Return a stored plan that creates a pool, after the API server has accepted the pool in a dry run."""
        manifest = manifest_of(change.patch)
        await self._cluster.create(change.target, manifest, {}, dry_run=True)
        shown, effect = creation(change.target, manifest), creation_effect(change.patch)
        effect = replace(effect, notes=["Instances start with empty caches."])
        return await self._keep(pool, kind, change.target, "", 0, shown, effect, caller, now, owner=None, undo_of=None)

    async def of_creation(self, stored: StoredPlan, caller: Caller, now: datetime) -> Plan:
        await absent(self._cluster, stored.object, stored.uid)
        await self._cluster.create(stored.object, stored.inverse, {}, dry_run=True)
        shown, effect = creation(stored.object, stored.inverse), creation_effect(stored.inverse["spec"])
        pool = PoolKey.parse(stored.plan.pool)
        return await self._keep(
            pool, stored.plan.kind, stored.object, stored.uid, 0, shown, effect, caller, now, owner=None, undo_of=stored.plan.id
        )

    async def _known(self, pool: PoolKey, now: datetime) -> Known:
        """Return the facts about a pool from which the effect of a change is estimated. Raises NotFound for a pool
        whose spec was never usable.
        """
        use = await self._evidence.use(pool, now)
        return Known(pool=pool, use=use, policies=self._policies, evidence=self._evidence, now=now)

    async def _use(self, pool: PoolKey, now: datetime) -> PoolUse | None:
        """Return the pool's present traffic, sessions and instances; None if its spec was never usable."""
        try:
            return await self._evidence.use(pool, now)
        except NotFound:
            return None

    async def _keep(
        self,
        pool: PoolKey,
        kind: PlanKind,
        target: Target,
        uid: str,
        generation: int,
        shown: Existence,
        effect: PlanEffect,
        caller: Caller,
        now: datetime,
        *,
        owner: str | None,
        undo_of: str | None,
        proposal: Proposal | None = None,
    ) -> Plan:
        """Store an open plan that creates or deletes an object, with its audit entry."""
        plan = Plan(
            id=self._new_id(),
            pool=str(pool),
            kind=kind,
            target=str(target),
            created_at=now,
            created_by=caller.identity.subject,
            expires_at=now + (LIFE if proposal is None else PROPOSED),
            state=PlanState.OPEN,
            diff=shown.diff,
            effect=effect,
            owner=owner,
            patch=shown.patch,
            undo_of=undo_of,
            proposal=proposal,
        )
        stored = StoredPlan(
            plan=plan, object=target, uid=uid, generation=generation, change=shown.change, inverse=shown.inverse, seen=shown.seen
        )
        draft = caller.draft(AuditAction.PLAN_CREATED if proposal is None else AuditAction.PLAN_PROPOSED, str(pool))
        told = {"kind": kind, **{item["path"]: item["after"] for item in shown.diff}}
        await self._store.add(stored, replace(draft, plan=plan.id, after=told), now)
        return plan

    async def _tried(self, target: Target, found: ClusterObject, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the changed part of the object as the API server would store it, from a dry run."""
        for attempt in range(1, _TRIES + 1):
            try:
                return (await self._cluster.patch(target, change, found.resource_version, {}, dry_run=True)).part(target.kind)
            except Conflict:
                if attempt == _TRIES:
                    raise
                found = await self._cluster.read(target)
        raise AssertionError("the last try returns or raises")


def _shown(target: Target, found: ClusterObject, change: Mapping[str, Any], after: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the change in the form shown to people: as a patch of the whole object, or of the file that defines the
    pool.
    """
    if target.kind is TargetKind.ENGINES:
        return {ENGINES: [{"name": name, **entry} for name, entry in after[ENGINES].items()]}
    return _nested(change, target.kind.path if engines_file(found.annotations) is None else ())


def _nested(change: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the change as a patch of the whole object, in which the changed part is at `path`."""
    return _nested({path[-1]: change}, path[:-1]) if path else change


def _only(change: Mapping[str, Any], path: str) -> tuple[str, Any]:
    """Return a path and a value that describe a patch; `path` is the path to which the patch applies. If the patch
    changes a single field, these are the field's path and its new value, or the words "the same list" if that value is
    a list. If it changes several fields, these are the path of the part that contains them, and all its changes as
    text.
    """
    path = path.strip(".")
    if len(change) != 1:
        return path, str(dict(change))
    name, value = next(iter(change.items()))
    if isinstance(value, Mapping) and value:
        return _only(value, f"{path}.{name}")
    return f"{path}.{name}".strip("."), "the same list" if isinstance(value, list) else value
