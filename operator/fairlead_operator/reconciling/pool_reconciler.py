"""Reconcile one pool: observe, send the state to the control API, decide, apply, write the status.

All state that matters is in the cluster, not in memory.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fairlead.conditions.facts import PoolFacts
from fairlead.instances import Role
from fairlead.pools import PoolSpec
from fairlead.reconciling.actions import CreateInstance
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.warming import weights
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_operator.applying.actions import Applier
from fairlead_operator.applying.ownership import adopt, orphaned_pods, strange_pods
from fairlead_operator.applying.retrying import ActionRetries
from fairlead_operator.cluster import Cluster, Resource
from fairlead_operator.control_plane import ControlPlane
from fairlead_operator.events import EventRecorder, PostEvent
from fairlead_operator.manifests import PoolIdentity
from fairlead_operator.merge_patches import merge_patch
from fairlead_operator.observing.field_managers import spec_manager
from fairlead_operator.observing.pods import Pod, read_pods
from fairlead_operator.reconciling.children import Children
from fairlead_operator.reconciling.finalizing import FINALIZER, Finalization, drains, has_finalizer
from fairlead_operator.reconciling.pool_state import (
    is_busy,
    last_ordinal,
    pool_state,
    present_outlook,
    ring_anchors,
    seconds_to_replacement,
    troubles_of,
)
from fairlead_operator.reconciling.revisions import Revisions, former_hashes, revision_in_force
from fairlead_operator.reconciling.role_objects import read_role_objects, role_object_status
from fairlead_operator.reconciling.roles import (
    RoleObject,
    ScaleStep,
    WantedReplicas,
    desired_pool,
    desired_roles,
    scale_steps,
    wanted_replicas,
)
from fairlead_operator.reconciling.rollouts import RolloutRound, rollout_round
from fairlead_operator.reconciling.scaling import RatioStep, Scaled, known_decisions, scaled
from fairlead_operator.reconciling.settled_pools import SettledPool, is_settled
from fairlead_operator.reconciling.specs import AcceptedSpecs, SpecInForce, changes, is_refusal_reported, read_spec_in_force, was_refused
from fairlead_operator.reconciling.state_exchange import Answer, StateExchange
from fairlead_operator.reconciling.status import is_urgent, revisions_status, status_document
from fairlead_operator.reconciling.windows import WindowEvent, scheduled, window_events
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.sleeping import SleepingPools
from fairlead_operator.times import format_second

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Dependencies of a pool's reconciliation. `clock` gives Unix seconds; `post_event` posts Kubernetes Events."""

    settings: OperatorSettings
    cluster: Cluster
    control_plane: ControlPlane
    policies: PolicyCatalogue
    clock: Callable[[], float]
    post_event: PostEvent
    sleeping: SleepingPools = field(default_factory=SleepingPools)


class PoolReconciler:
    """Reconciles one pool, never twice at once.

    What it keeps in memory only saves calls or repeated events; it decides nothing.
    """

    def __init__(self, key: PoolKey, dependencies: Dependencies) -> None:
        self._key = key
        self._dependencies = dependencies
        self._recorder = EventRecorder(key, dependencies.post_event, dependencies.control_plane)
        self._finalization = Finalization(key, dependencies.control_plane, dependencies.settings.pace)
        self._retries = ActionRetries(self._recorder, dependencies.clock, dependencies.settings.pace.longest_retry)
        self._state_exchange = StateExchange(key, dependencies.control_plane, dependencies.settings.pace, dependencies.clock)
        self._revisions = Revisions(dependencies.cluster, self._retries)
        self._children = Children(dependencies.cluster, self._retries, dependencies.settings.pace.children)
        self._status_written_at = 0.0
        self._specs = AcceptedSpecs(dependencies.policies)
        self._settled: SettledPool | None = None
        self._changes = 0

    def changed(self) -> None:
        """Read the pool's objects next time, even if it was settled a moment ago."""
        self._changes += 1
        self._settled = None

    def children_changed(self) -> None:
        """Check the Service, budgets and roles' objects next time, even if they were found right a moment ago."""
        self._children.changed()
        self.changed()

    async def reconcile(self) -> float:
        """One reconciliation; seconds until the next if no event comes. Raises ClusterError.

        Of a settled pool nothing is read while no event comes about its objects, see `settled_pools`.
        """
        due = await self._stay_settled() if self._settled is not None else None
        return due if due is not None else await self._reconcile_whole()

    async def _stay_settled(self) -> float | None:
        """Exchange the state of the settled pool; seconds until the next round, None when it takes a whole one."""
        now, settled, self._settled = self._dependencies.clock(), self._settled, None
        if settled is None or not settled.holds(now):
            return None
        changes = self._changes
        answer = await self._state_exchange.exchange(settled.state_at(now))
        if answer.trusted is None:
            return answer.retry_in
        if not settled.is_still(answer.trusted) or changes != self._changes:
            return None
        self._settled = settled
        return min(self._dependencies.settings.pace.settled, max(self._dependencies.settings.pace.least, settled.until - now))

    async def _reconcile_whole(self) -> float:
        changes = self._changes
        pool = await self._read_pool()
        if pool is None or pool["metadata"].get("deletionTimestamp"):
            return self._dependencies.settings.pace.busy  # the deletion handler has the pool, or will have it
        if not has_finalizer(pool, FINALIZER):
            return self._dependencies.settings.pace.busy  # kopf is adding it; without it the pool's end could be missed
        identity = self._identity(pool)
        documents = await self._read_pods(identity)
        pods = read_pods(documents, identity.uid)
        self._retries.begin_round()
        if await self._adopt(identity, documents):
            return self._dependencies.settings.pace.least
        strangers = strange_pods(documents, identity)
        due, self._settled = await self._reconcile(identity, pool, pods, strangers, read_spec_in_force(pool, self._specs))
        if changes != self._changes:
            self._settled = None
        return due

    async def finalize(self) -> float | None:
        """One step towards the end of a deleted pool; seconds until the next, None when it may go.

        Raises ClusterError.
        """
        pool = await self._read_pool()
        self._dependencies.sleeping.note(self._key, asleep=False)
        if pool is None:
            return None
        identity, in_force = self._identity(pool), read_spec_in_force(pool, self._specs)
        pods = read_pods(await self._read_pods(identity), identity.uid)
        draining = drains(pool, pods)
        self._retries.begin_round()
        if draining and await self._applier(identity).apply(draining, None):
            return self._dependencies.settings.pace.least
        await self._recorder.deliver()
        answer = await self._state_exchange.exchange(pool_state(pool, pods, in_force))
        drain_timeout = in_force.spec.drain.timeout_seconds if in_force.spec is not None else 0.0
        return await self._finalization.step(pool, pods, answer.trusted, drain_timeout, self._dependencies.clock())

    async def report_deletion(self) -> float | None:
        """Report a pool that was deleted while the control API was away, unless a pool of this name exists again.

        Raises ClusterError.
        """
        if not self._finalization.is_unreported or await self._read_pool() is not None or await self._finalization.report():
            return None
        return self._dependencies.settings.pace.settled

    async def _read_pool(self) -> dict[str, Any] | None:
        return await self._dependencies.cluster.get(Resource.POOLS, self._key.namespace, self._key.name)

    async def _read_pods(self, identity: PoolIdentity) -> list[dict[str, Any]]:
        """All pods with the pool's label.

        They are read after the pool, so that the pool's status never counts a pod that is not seen here.
        """
        return await self._dependencies.cluster.find(Resource.PODS, self._key.namespace, identity.selector())

    async def _read_role_objects(self, identity: PoolIdentity, spec: PoolSpec | None) -> dict[Role, RoleObject]:
        if spec is None or all(role.name is Role.BOTH for role in spec.roles):
            return {}
        found = await self._dependencies.cluster.find(Resource.ROLES, self._key.namespace, identity.selector())
        return read_role_objects(found, identity)

    def _identity(self, pool: dict[str, Any]) -> PoolIdentity:
        return PoolIdentity(namespace=self._key.namespace, name=self._key.name, uid=pool["metadata"]["uid"])

    async def _reconcile(
        self, identity: PoolIdentity, pool: dict[str, Any], pods: tuple[Pod, ...], strangers: tuple[str, ...], in_force: SpecInForce
    ) -> tuple[float, SettledPool | None]:
        now = self._dependencies.clock()
        old = pool.get("status") or {}
        objects = await self._read_role_objects(identity, in_force.spec)
        schedules = scheduled(in_force.spec, now)
        declared = wanted_replicas(in_force.spec, pool, objects)
        observed = tuple(pod.instance for pod in pods)
        told, ratio = (schedules.told, schedules.ratio) if schedules is not None else (None, None)
        warming = weights(desired_pool(ratio, desired_roles(in_force.spec, declared)), observed, now)
        expected = present_outlook(in_force.spec, pool, declared, pods, now)
        state = pool_state(pool, pods, in_force, warming, told, known_decisions(old, now), expected)
        answer = await self._state_exchange.exchange(state)
        scaling = scaled(in_force.spec, pool, declared, answer.trusted, schedules, now)
        desired, steps = desired_roles(in_force.spec, scaling.wanted), scale_steps(old, scaling.wanted)
        rollout = rollout_round(pool, in_force.spec, desired, observed, answer.trusted, now)
        revision, current = revision_in_force(identity, in_force), str(old.get("currentRevision") or "")
        former = await self._former(identity, in_force, rollout, current)
        goal = rollout.goal(desired_pool(ratio, desired), former_hashes(former))
        highest = last_ordinal(pool, pods)
        actions = next_actions(goal, observed, answer.trusted, now, self._dependencies.settings.limits, highest)
        self._dependencies.sleeping.note(self._key, asleep=scaling.facts is not None and scaling.facts.sleeps)
        self._record_windows(identity, window_events(old, schedules, now), now)
        self._record_changes(identity, pool, in_force, steps, scaling.ratio_step, now)
        if (news := rollout.news()) is not None:
            self._recorder.record(identity, now, *news)
        self._record_bounded(identity, declared, objects, now)
        await self._revisions.keep(identity, in_force, current)
        await self._children.restore(identity, in_force, declared, desired, objects, now)
        done = await self._applier(identity).apply(actions, in_force.spec, former)
        facts = PoolFacts(
            problem=in_force.problem,
            desired=desired,
            instances=observed,
            observations=answer.known,
            api_problem=answer.problem,
            slo_percentile=schedules.told.slo.percentile if schedules is not None else None,
            troubles=troubles_of(pods),
            apply_problem=self._retries.problem,
            strangers=strangers,
            rollout=rollout.now,
            rollout_trouble=rollout.trouble,
            scaling=scaling.facts,
        )
        made = max((action.ordinal for action in actions if isinstance(action, CreateInstance)), default=0) if done else 0
        windows = schedules.status if schedules is not None else ()
        anchors = ring_anchors(state, in_force)
        told_revisions = revisions_status(old, facts, revision, halted=rollout.halted)
        changed = await self._write_status(
            identity, pool, in_force, facts, steps, scaling, windows, told_revisions, anchors, max(highest, made), now
        )
        await self._write_role_statuses(identity, facts, declared, objects)
        if answer.trusted is not None:
            await self._recorder.deliver()
        due = self._due(answer, facts, unsettled=changed or bool(actions), goes_on=bool(actions) and done)
        if answer.trusted is not None:
            due = min(due, max(self._dependencies.settings.pace.busy, scaling.due_in))
        wake_in = schedules.wake_in if schedules is not None else math.inf
        until = now + min(self._dependencies.settings.pace.longest_unread, wake_in)
        quiet = due >= self._dependencies.settings.pace.settled and not changed and is_settled(facts) and self._recorder.is_delivered
        settled = SettledPool(state=state, facts=facts, at=now, until=until) if quiet else None
        return min(due, max(self._dependencies.settings.pace.least, wake_in)), settled

    async def _former(self, identity: PoolIdentity, in_force: SpecInForce, rollout: RolloutRound, current: str) -> PoolSpec | None:
        """The spec with the templates that all instances had before a halted rollout; None while none is halted."""
        return await self._revisions.former(identity, in_force, current) if rollout.halted else None

    def _due(self, answer: Answer, facts: PoolFacts, *, unsettled: bool, goes_on: bool) -> float:
        """Seconds until the next reconciliation.

        Short while something is in progress; growing while the API does not answer or actions are refused.
        """
        pace = self._dependencies.settings.pace
        retry = self._retries.end_round()
        if goes_on:
            return pace.least
        if answer.trusted is None:
            return answer.retry_in
        now = self._dependencies.clock()
        busy = is_busy(facts, now)
        if retry is not None and not busy:
            return min(pace.settled, max(pace.busy, retry))
        if busy or unsettled or not answer.trusted.table_acknowledged:
            return pace.busy
        replacement = seconds_to_replacement(facts, self._dependencies.settings.limits, now)
        return min(pace.settled, max(pace.busy, replacement))

    def _record_windows(self, identity: PoolIdentity, events: tuple[WindowEvent, ...], now: float) -> None:
        for event in events:
            self._recorder.record(identity, now, event.reason, event.message, after=event.figure)

    def _record_changes(
        self,
        identity: PoolIdentity,
        pool: dict[str, Any],
        in_force: SpecInForce,
        steps: tuple[ScaleStep, ...],
        ratio_step: RatioStep | None,
        now: float,
    ) -> None:
        if ratio_step is not None:
            self._recorder.record(identity, now, "RatioChanged", ratio_step.message, before=ratio_step.before, after=ratio_step.after)
        for step in steps if ratio_step is None else ():
            self._recorder.record(identity, now, step.event, step.message, before=step.figure(step.before), after=step.figure(step.after))
        for change in changes(in_force.previous, in_force.spec):
            message = f"{change.message} (by {spec_manager(pool['metadata'], change.member)})"
            self._recorder.record(identity, now, change.reason, message, before=change.before, after=change.after)
        if in_force.problem is not None and not is_refusal_reported(pool, in_force):
            self._recorder.record(identity, now, "SpecRefused", in_force.problem.message)
        if in_force.problem is None and was_refused(pool):
            self._recorder.record(identity, now, "SpecAccepted", f"Generation {in_force.generation} is in force")

    def _record_bounded(
        self, identity: PoolIdentity, declared: tuple[WantedReplicas, ...], objects: dict[Role, RoleObject], now: float
    ) -> None:
        """Say that a role is scaled to another number than was asked for, once; its object's status remembers it."""
        for item in declared:
            if item.beyond and (objects[item.role].document.get("status") or {}).get("message") != item.reason:
                self._recorder.record(identity, now, "ScaleBounded", item.reason)

    async def _adopt(self, identity: PoolIdentity, documents: list[dict[str, Any]]) -> bool:
        """Adopt instances that an earlier pool of this name left running.

        Returns whether there were any; then everything must be read again before planning.
        """
        adopted = False
        for document in orphaned_pods(documents, identity):
            name = document["metadata"]["name"]
            if await self._retries.attempt(
                identity, ("adopt", name), partial(adopt, self._dependencies.cluster, identity, Resource.PODS, document)
            ):
                self._recorder.record(
                    identity, self._dependencies.clock(), "InstanceAdopted", f"{name} was left by an earlier pool", instance=name
                )
                adopted = True
        return adopted

    async def _write_status(
        self,
        identity: PoolIdentity,
        pool: dict[str, Any],
        in_force: SpecInForce,
        facts: PoolFacts,
        steps: tuple[ScaleStep, ...],
        scaling: Scaled,
        schedules: tuple[dict[str, Any], ...],
        revisions: Mapping[str, str],
        anchors: int,
        last_ordinal: int,
        now: float,
    ) -> bool:
        """Write the status. Returns whether more than its figures changed.

        Changes of figures alone are written no more often than a settled pool is reconciled; what scaling remembers is
        written at once, because the next round goes on from it.
        """
        status = status_document(
            pool,
            in_force,
            facts,
            selector=identity.selector(),
            steps=steps,
            scaling=scaling.status,
            schedules=schedules,
            revisions=revisions,
            anchors=anchors,
            last_ordinal=last_ordinal,
            now=format_second(now),
        )
        old = pool.get("status") or {}
        patch = merge_patch(old, status)
        urgent = is_urgent(old, status)
        if patch and (urgent or "scaling" in patch or not 0 <= now - self._status_written_at < self._dependencies.settings.pace.settled):
            self._status_written_at = now
            body = {"status": patch}
            await self._dependencies.cluster.patch(Resource.POOLS, identity.namespace, identity.name, body, subresource="status")
        return urgent

    async def _write_role_statuses(
        self, identity: PoolIdentity, facts: PoolFacts, declared: tuple[WantedReplicas, ...], objects: dict[Role, RoleObject]
    ) -> None:
        for (role, instances), item in zip(facts.by_role, declared, strict=True):
            if role.role not in objects:
                continue  # it is read when it was made
            document = objects[role.role].document
            status = role_object_status(document, role, item, instances, identity.selector(role.role))
            patch, name = merge_patch(document.get("status") or {}, status), document["metadata"]["name"]
            if patch:
                write = partial(self._write_role_status, identity, name, patch)
                await self._retries.attempt(identity, ("role status", name), write)

    async def _write_role_status(self, identity: PoolIdentity, name: str, patch: dict[str, Any]) -> None:
        await self._dependencies.cluster.patch(Resource.ROLES, identity.namespace, name, {"status": patch}, subresource="status")

    def _applier(self, identity: PoolIdentity) -> Applier:
        return Applier(
            identity,
            self._dependencies.cluster,
            self._recorder,
            self._retries,
            image=self._dependencies.settings.engine_image,
            clock=self._dependencies.clock,
        )
