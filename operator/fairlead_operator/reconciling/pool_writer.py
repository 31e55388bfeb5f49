"""Carries out the decisions of a pool's round: records events, keeps revisions and children, changes pods, writes
statuses.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairlead.conditions.facts import ActionFailure, ActionFailureReason, GatewayFacts, PoolFacts
from fairlead.conditions.pool_conditions import only_degraded
from fairlead.instances import InstanceState, Role
from fairlead.pools import PoolSpec
from fairlead.reconciling.actions import Action, CreateInstance, Drain
from fairlead.reconciling.observed import ObservedInstance, PodHealth
from fairlead.reconciling.turns import turn_of
from fairlead.tables import MIGRATIONS_PAUSED
from fairlead_operator.applying.actions import Applier
from fairlead_operator.applying.others_acts import OthersActs
from fairlead_operator.applying.retrying import ActionRetries, fingerprint
from fairlead_operator.cluster import ClusterRefused, Resource
from fairlead_operator.events import EventRecorder
from fairlead_operator.gateways.keeping import GatewayObjects
from fairlead_operator.merge_patches import merge_patch
from fairlead_operator.observing.pods import Pod
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.reconciling.children import Children
from fairlead_operator.reconciling.dependencies import Dependencies
from fairlead_operator.reconciling.pool_round import PoolRound, round_events
from fairlead_operator.reconciling.pool_state import ring_anchors, selecting_nothing, service_target, target_ports, troubles_of
from fairlead_operator.reconciling.revisions import Revisions, revision_in_force
from fairlead_operator.reconciling.roles import role_object_status
from fairlead_operator.reconciling.rollouts import rollout_note
from fairlead_operator.reconciling.status import is_urgent, revisions_status, status_document
from fairlead_operator.sleepers import Sleepers
from fairlead_operator.times import format_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The outcome of a round. `facts` are the facts on which the conditions in the status are based. `is_done` says
    whether every action was done. `status_changed` says whether the status changed in more than its numbers.
    """

    facts: PoolFacts
    is_done: bool
    status_changed: bool


class PoolWriter:
    """Writes to the objects of one pool. Values are kept in memory only to save calls."""

    def __init__(
        self,
        dependencies: Dependencies,
        recorder: EventRecorder,
        retries: ActionRetries,
        revisions: Revisions,
        others: OthersActs,
        sleepers: Sleepers,
    ) -> None:
        self._dependencies = dependencies
        self._recorder = recorder
        self._retries = retries
        self._revisions = revisions
        self._others = others
        self._sleepers = sleepers
        self._children = Children(dependencies.cluster, retries, dependencies.settings.pace.children)
        self._gateway_objects = GatewayObjects(dependencies.cluster, retries, dependencies.settings.picker)
        self._assumed: set[str] = set()
        self._status_written_at = 0.0
        self._status_patch: tuple[str, dict[str, Any]] | None = None
        """The version of the pool and the patch of the last write to its status."""

    def children_changed(self) -> None:
        """Check the children in the next round, even if they were found correct a moment ago."""
        self._children.changed()

    async def write(self, round_: PoolRound) -> Written:
        """Carry out all decisions of the round. If one write is refused, the other writes still happen. There is one
        exception: if `status.scaling` (the memory of scaling) cannot be written, no action is carried out. Raises
        ClusterUnavailable.
        """
        reading, now = round_.reading, round_.now
        identity, in_force = reading.identity, reading.in_force
        for number, event in enumerate(round_events(round_)):
            at = now + number * 1e-6  # in the pool's history they stand in the order of their times
            self._recorder.record(identity, at, event.reason, event.message, before=event.before, after=event.after)
        self._tell_assumptions(identity, reading.pods, now)
        await self._revisions.keep(identity, in_force, frozenset({reading.current_revision, *reading.revisions}))
        if round_.rollout.now is not None:
            await self._revisions.note(identity, in_force, rollout_note(round_.rollout.now))
        target = service_target(in_force.spec, reading.pods)
        await self._children.restore(identity, in_force, reading.declared, round_.desired, reading.objects, _leaving(round_), target, now)
        gateway = await self._gateway_objects.keep(identity, in_force.spec, reading.status, target_ports(in_force.spec, reading.pods))
        remembered = await self._remember_scaling(round_)
        is_done = remembered is not None and await self.apply(identity, round_.actions, in_force.spec, round_.former)
        facts = self._facts(round_, gateway)
        made = max((action.ordinal for action in round_.actions if isinstance(action, CreateInstance)), default=0) if is_done else 0
        old = remembered if remembered is not None else reading.status
        status_changed = await self._write_status(round_, old, facts, max(round_.highest_ordinal, made))
        await self._write_role_statuses(round_, facts)
        return Written(facts=facts, is_done=is_done, status_changed=status_changed)

    async def tell_failed_round(self, identity: PoolIdentity, pool: Mapping[str, Any], failure: ActionFailure) -> None:
        """Report, by Degraded and an event, that a round failed and will fail again. The same failure is reported only
        once. Raises ClusterError.
        """
        now = self._dependencies.clock()
        known, generation = (pool.get("status") or {}).get("conditions") or (), int(pool["metadata"].get("generation") or 0)
        conditions = only_degraded(known, failure, generation, format_second(now))
        if conditions is not None:
            self._recorder.record(identity, now, failure.reason, failure.message)
            await self._patch_status(Resource.POOLS, identity.namespace, identity.name, {"conditions": list(conditions)})

    async def apply(
        self, identity: PoolIdentity, actions: tuple[Action, ...], spec: PoolSpec | None, former: PoolSpec | None = None
    ) -> bool:
        """Apply actions to pods; see `Applier.apply`."""
        settings, clock = self._dependencies.settings, self._dependencies.clock
        applier = Applier(
            identity,
            self._dependencies.cluster,
            self._recorder,
            self._retries,
            self._others,
            self._sleepers,
            image=settings.engine_image,
            pull_secrets=settings.engine_pull_secrets,
            clock=clock,
        )
        return await applier.apply(actions, spec, former)

    def _tell_assumptions(self, identity: PoolIdentity, pods: tuple[Pod, ...], now: float) -> None:
        """Record an event, once for each instance, that its engine's port could not be found and is assumed to be the
        port of the spec.
        """
        assumed = {pod.instance.id for pod in pods if pod.engine.is_assumed and not pod.instance.terminating}
        for name in sorted(assumed - self._assumed):
            words = "neither a revision nor its containers show its port; the port in the present spec.engine is assumed"
            self._recorder.record(identity, now, "EngineAssumed", f"{name} has an earlier template, and {words}", instance=name)
        self._assumed = assumed

    def _facts(self, round_: PoolRound, gateway: GatewayFacts | None) -> PoolFacts:
        spec, instances = round_.reading.in_force.spec, round_.reading.instances
        return PoolFacts(
            problem=round_.reading.in_force.problem,
            desired=round_.desired,
            instances=instances,
            observations=round_.answer.known,
            api_problem=round_.answer.problem,
            last_heard=round_.answer.last,
            slo_percentile=round_.schedules.told.slo.percentile if round_.schedules is not None else None,
            troubles=troubles_of(round_.reading.pods, round_.now),
            apply_problem=self._retries.problem,
            strangers=round_.reading.strangers,
            rollout=round_.rollout.now,
            rollout_trouble=round_.rollout.trouble,
            canary=round_.rollout.words,
            scaling=round_.scaling.facts,
            scale_problems=tuple(one.problem for one in round_.reading.workloads if one.problem is not None),
            selecting_nothing=selecting_nothing(spec, round_.reading.pods),
            gateway=gateway,
            migrations_paused=None if spec is None else spec.routing.migrations == MIGRATIONS_PAUSED,
            follows_forecast=spec is not None and any(one.follows_forecast for one in spec.scaling.schedules),
            task_targets=() if spec is None else spec.slo.task,
            unused_objectives=round_.reading.objectives.unused,
            turn=next((turn for role in round_.desired if (turn := turn_of(role, instances, round_.answer.known, round_.now))), None),
        )

    async def _remember_scaling(self, round_: PoolRound) -> Mapping[str, Any] | None:
        """Write `status.scaling` (the memory of scaling) before the actions that depend on it. Return the resulting
        status; None if the write was refused, and then no action is allowed.

        An operator that is killed between two drains then continues with the same decision after its restart. Without
        the memory, it would replace the instances that already drain.
        """
        identity, old = round_.reading.identity, round_.reading.status
        patch = merge_patch(old.get("scaling") or {}, round_.scaling.status)
        if not patch or not round_.actions:
            return old
        if not await self._write_own_status(identity, {"scaling": patch}):
            return None
        return {**old, "scaling": round_.scaling.status}

    async def _write_status(self, round_: PoolRound, old: Mapping[str, Any], facts: PoolFacts, last_ordinal: int) -> bool:
        """Replace the status `old` by this round's status. Return whether more than numbers changed. If only numbers
        changed, the status is written no more often than a pool is reconciled in which nothing is in progress. Changes
        of `status.scaling` are written at once, because the next round continues from them.
        """
        reading, now = round_.reading, round_.now
        revision = revision_in_force(reading.identity, reading.in_force)
        status = status_document(
            reading.pool,
            reading.in_force,
            facts,
            selector=reading.identity.selector(),
            steps=round_.steps,
            scaling=round_.scaling.status,
            slo=round_.schedules.told.slo if round_.schedules is not None else None,
            schedules=round_.schedules.status if round_.schedules is not None else (),
            revisions=revisions_status(reading.current_revision, facts, revision, halted=round_.rollout.keeps_former),
            anchors=ring_anchors(round_.state, reading.in_force),
            last_ordinal=last_ordinal,
            now=format_second(now),
        )
        patch, version = merge_patch(old, status), reading.pool["metadata"]["resourceVersion"]
        if patch and (version, patch) == self._status_patch:
            return False  # the server made nothing of it, and will not now: it stores the status in another form
        urgent = is_urgent(reading.status, status)
        if patch and (urgent or "scaling" in patch or not 0 <= now - self._status_written_at < self._dependencies.settings.pace.settled):
            self._status_written_at = now
            if await self._write_own_status(reading.identity, patch):
                self._status_patch = version, patch
        return urgent

    async def _write_role_statuses(self, round_: PoolRound, facts: PoolFacts) -> None:
        reading = round_.reading
        for (role, instances), item in zip(facts.by_role, reading.declared, strict=True):
            if role.role not in reading.objects:
                continue  # it is read when it was made
            document = reading.objects[role.role].document
            status = role_object_status(document, role, item, instances, reading.identity.selector(role.role))
            patch, name = merge_patch(document.get("status") or {}, status), document["metadata"]["name"]
            if patch:
                write = partial(self._patch_status, Resource.ROLES, reading.identity.namespace, name, patch)
                await self._retries.attempt(reading.identity, ("role status", (name, fingerprint(patch))), write)

    async def _write_own_status(self, identity: PoolIdentity, patch: dict[str, Any]) -> bool:
        """Write to the pool's status; return whether the write was accepted. An event reports a refusal, because the
        status cannot.
        """
        write = partial(self._patch_status, Resource.POOLS, identity.namespace, identity.name, patch)
        return await self._retries.attempt(identity, ("status", identity.name), write)

    async def _patch_status(self, resource: Resource, namespace: str, name: str, patch: dict[str, Any]) -> None:
        await self._dependencies.cluster.patch(resource, namespace, name, {"status": patch}, subresource="status")


def own_fault(error: Exception) -> ActionFailure:
    """Return the failure of a round that a bug ended."""
    words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    message = (
        f"A fault of the operator ended its work on this pool ({words}); the work is tried again, and the operator's log has the details"
    )
    return ActionFailure(reason=ActionFailureReason.OPERATOR_FAULT, message=message)


def refused_read(error: ClusterRefused) -> ActionFailure:
    """Return the failure of a round that ended because the Kubernetes API refused a read."""
    remedy = "; give the operator's service account the rights of the chart's roles" if error.status == 403 else ""
    message = (
        f"Nothing of this pool is changed, because its objects cannot be read ({error}){remedy}; the read is tried again within seconds"
    )
    return ActionFailure(reason=ActionFailureReason.ACTION_FAILED, message=message)


def _leaving(round_: PoolRound) -> Mapping[Role, int]:
    """Return, by role, the number of ready instances beyond the desired number that the role's budget must cover:
    draining instances, instances whose drain begins in this round, and instances that sleep or are being woken.
    """
    begun = {action.instance for action in round_.actions if isinstance(action, Drain)}
    return Counter(
        one.role
        for one in round_.reading.instances
        if one.health is PodHealth.READY and not one.terminating and (_takes_nothing(one) or one.id in begun)
    )


def _takes_nothing(one: ObservedInstance) -> bool:
    return one.draining_since is not None or one.state is InstanceState.ASLEEP or one.waking
