"""Carries out a plan's actions. Each action is one idempotent call; a refused call is reported and tried again
later.
"""

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from fairlead.instance_marks import POOL_LABEL
from fairlead.instances import InstanceState
from fairlead.pools import PoolSpec
from fairlead.reconciling.actions import (
    Action,
    CreateInstance,
    DeleteInstance,
    DeletionReason,
    Drain,
    EndDrain,
    FlipRole,
    RecordState,
    ReleaseInstance,
    ReleaseReason,
    ScaleWorkload,
    SleepInstance,
    WakeInstance,
)
from fairlead.reconciling.observed import WAKING
from fairlead.reconciling.states import BACK_WHILE_DRAINING, SLEPT_BY_OTHERS, WOKEN_BY_OTHERS
from fairlead_operator.applying.others_acts import OthersActs
from fairlead_operator.applying.ownership import is_owned, release
from fairlead_operator.applying.retrying import ActionRetries, Altered, NotOwned
from fairlead_operator.applying.workloads import scale_workload
from fairlead_operator.cluster import Cluster, ClusterRefused, Resource
from fairlead_operator.events import EventRecorder
from fairlead_operator.manifests import group, pod
from fairlead_operator.pod_marks import DRAIN_REASON_ANNOTATION, FLIP_ANNOTATION, LEADER, WARMED_ANNOTATION
from fairlead_operator.pod_patches import asleep_patch, end_of_drain_patch, flip_patch, least_cost, state_annotations
from fairlead_operator.pod_templates import spans, spec_hash
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.sleepers import Sleepers
from fairlead_operator.times import format_time

logger = logging.getLogger(__name__)

_NOTHING_MORE: Mapping[str, str] = MappingProxyType({})

NO_LEADER_WORKER_SETS = (
    "the cluster does not know LeaderWorkerSets, of which instances with several nodes are made; install their controller "
    "(lws.sigs.k8s.io), or take nodes out of roles[]"
)

_HEALTHY = (InstanceState.WARMING, InstanceState.SERVING)

_UNLABELLED = (
    f"{{what}} was created without its label {POOL_LABEL} and {{end}}; an admission webhook or policy of the cluster "
    "changes the labels of new pods: exempt the pods that fairlead-operator creates"
)

_DELETION_EVENTS = {
    DeletionReason.DRAINED: ("Drained", "is empty: no router sends it requests, and no request runs there"),
    DeletionReason.DRAIN_TIMED_OUT: ("DrainTimedOut", "was not empty when the drain timeout ended; its running requests are cut off"),
    DeletionReason.NEVER_SERVED: ("InstanceDeleted", "is not needed any more and never served"),
    DeletionReason.OUTDATED: ("InstanceReplaced", "does not serve and has an old template"),
    DeletionReason.POD_FAILED: ("InstanceReplaced", "failed permanently"),
    DeletionReason.NOT_WOKEN: ("InstanceReplaced", "did not wake up"),
    DeletionReason.SLEEPS_UNNEEDED: (
        "InstanceDeleted",
        "sleeps and is not needed: more sleep than roles[].warm keeps, or its template is old",
    ),
    DeletionReason.OUT_OF_TURN: ("OutOfTurn", "leaves the shared device, because it is the turn of another pool"),
    DeletionReason.LOST_TOO_LONG: ("InstanceReplaced", "was lost for too long"),
}

_RELEASES = {
    ReleaseReason.NOT_SELECTED: "is no longer selected; the pod stays with its workload, without the pool's labels",
    ReleaseReason.POD_FAILED: "failed permanently; it is left to its workload",
    ReleaseReason.POOL_DELETED: "stays with its workload, without the pool's labels: the pool is deleted",
}


class Applier:
    """Applies the actions of one pool. Unix times come from `clock`."""

    def __init__(
        self,
        identity: PoolIdentity,
        cluster: Cluster,
        recorder: EventRecorder,
        retries: ActionRetries,
        others: OthersActs,
        sleepers: Sleepers,
        *,
        image: str,
        pull_secrets: Sequence[str] = (),
        clock: Callable[[], float],
    ) -> None:
        self._identity = identity
        self._cluster = cluster
        self._recorder = recorder
        self._image = image
        self._pull_secrets = pull_secrets
        self._retries = retries
        self._others = others
        self._sleepers = sleepers
        self._clock = clock

    async def apply(self, actions: Sequence[Action], spec: PoolSpec | None, former: PoolSpec | None = None) -> bool:
        """Apply the actions. Returns whether all were done.

        Instances are created from `spec`, the spec in force. During a halted rollout, an action may need the earlier
        template instead; its instance is then created from `former`, the spec with that template. After one refused
        creation of a role, no other creation of that role is tried. All other actions are still applied, so that
        instances are marked as lost, drained and deleted even while no instance can be created.

        Raises ClusterUnavailable at once if the Kubernetes API cannot be reached, because the remaining actions would
        fail too.
        """
        done = [
            await self._retries.attempt(self._identity, _subject(action), partial(self._apply, action, spec, former)) for action in actions
        ]
        return all(done)

    async def _apply(self, action: Action, spec: PoolSpec | None, former: PoolSpec | None) -> None:
        match action:
            case CreateInstance():
                if spec is None:
                    raise ValueError("instances are created from a valid spec only")
                if former is not None and action.spec_hash == spec_hash(former, action.role) != spec_hash(spec, action.role):
                    await self._create(action, former, " from the former template")
                else:
                    await self._create(action, spec)
            case RecordState():
                await self._record(action)
            case Drain():
                await self._drain(action)
            case EndDrain():
                await self._end_drain(action)
            case FlipRole():
                await self._flip(action)
            case DeleteInstance():
                await self._delete(action)
            case SleepInstance():
                self._sleepers.put_to_sleep(action.instance)
            case WakeInstance():
                await self._wake(action)
            case ReleaseInstance():
                await self._release(action)
            case ScaleWorkload():
                await self._scale(action, spec)

    async def _create(self, action: CreateInstance, spec: PoolSpec, template: str = "") -> None:
        now = format_time(self._clock())
        body = pod(
            self._identity,
            spec,
            role=action.role,
            ordinal=action.ordinal,
            image=self._image,
            reason=action.reason,
            now=now,
            failures=action.failures,
            claim=action.claim,
            pull_secrets=self._pull_secrets,
        )
        resource, kind, name = Resource.PODS, "Pod", body["metadata"]["name"]
        if (nodes := spans(spec, action.role)) > 1:
            resource, kind, body = Resource.LEADER_WORKER_SETS, "LeaderWorkerSet", group(self._identity, spec, body, action.role, nodes)
        made = await self._make(resource, body)
        found = made if made is not None else await self._cluster.get(resource, self._identity.namespace, name)
        await self._require_ours(resource, kind, found, is_fresh=made is not None)
        if made is not None:
            words = f"{action.reason} {action.replaces}" if action.replaces else action.reason
            instance = f"{name}{LEADER}" if nodes > 1 else name
            self._record_event("InstanceCreated", f"{instance} was created{template} ({words})", instance)
            return
        logger.info("instance exists already", extra={"instance": name})

    async def _require_ours(self, resource: Resource, kind: str, found: Mapping[str, Any] | None, *, is_fresh: bool) -> None:
        """Raise NotOwned if the found object has another owner.

        Raise Altered if the pool's object lacks the label by which the operator finds instances. Without this label,
        the object's instance would not be counted, so each round would create another instance. If the object was
        created just now (`is_fresh`), it is deleted. An older object gets its label back, because its instance may
        already serve. An older object without the label exists, for example, if the operator was killed before it could
        delete the object.
        """
        metadata = found["metadata"] if found is not None else {}
        what = f"{kind} {self._identity.namespace}/{metadata.get('name')}"
        if metadata and not is_fresh and not is_owned(metadata, self._identity.uid):
            raise NotOwned(f"{what} exists and is not this pool's; delete it, or no instance can have its name")
        if not metadata or (metadata.get("labels") or {}).get(POOL_LABEL) == self._identity.name:
            return
        if is_fresh:
            await self._cluster.delete(resource, self._identity.namespace, metadata["name"])
        elif not metadata.get("deletionTimestamp"):
            body = {"metadata": {"labels": {POOL_LABEL: self._identity.name}}}
            await self._cluster.patch(resource, self._identity.namespace, metadata["name"], body)
            raise Altered(_UNLABELLED.format(what=what, end="got it back"))
        raise Altered(_UNLABELLED.format(what=what, end="was deleted again"))

    async def _make(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return await self._cluster.create(resource, self._identity.namespace, body)
        except ClusterRefused as refused:
            if resource is Resource.LEADER_WORKER_SETS and refused.status == 404:
                raise ClusterRefused(404, refused.reason, NO_LEADER_WORKER_SETS) from refused
            raise

    async def _wake(self, action: WakeInstance) -> None:
        if action.begins:
            await self._annotate(action.instance, InstanceState.STARTING, WAKING)
            self._record_event("InstanceWoken", f"{action.instance} is woken: one more instance is needed", action.instance)
        self._sleepers.wake(action.instance)

    async def _fell_asleep(self, action: RecordState) -> None:
        body = asleep_patch(format_time(self._clock()), action.reason)
        if await self._cluster.patch(Resource.PODS, self._identity.namespace, action.instance, body):
            words = "was put to sleep by somebody else" if action.reason == SLEPT_BY_OTHERS else "sleeps until it is needed"
            self._record_event("InstanceAsleep", f"{action.instance} {words}; its cache is lost", action.instance)

    async def _record(self, action: RecordState) -> None:
        if action.state is InstanceState.ASLEEP and action.before is not InstanceState.ASLEEP:
            await self._fell_asleep(action)
            return
        warm = {WARMED_ANNOTATION: str(action.restarts)} if action.state is InstanceState.SERVING else _NOTHING_MORE
        if not await self._annotate(action.instance, action.state, action.reason, warm):
            return
        logger.info(
            "instance state", extra={"instance": action.instance, "before": action.before, "after": action.state, "reason": action.reason}
        )
        if action.reason == WOKEN_BY_OTHERS:
            self._record_event("InstanceWoken", f"{action.instance} is awake: somebody else woke it, or it was restarted", action.instance)
        if action.state is InstanceState.LOST:
            self._record_event("InstanceLost", f"{action.instance} is lost ({action.reason})", action.instance)
        elif action.before is InstanceState.LOST and action.state in _HEALTHY:
            self._record_event("InstanceRecovered", f"{action.instance} is no longer lost ({action.reason})", action.instance)
        elif action.state is InstanceState.DRAINING and action.reason != BACK_WHILE_DRAINING and not self._others.is_told(action.instance):
            words = f"{action.instance} takes no new requests: its pod is being deleted, not by Fairlead ({action.reason})"
            self._record_event("PodDeleted", words, action.instance)
            self._others.told(action.instance)

    async def _drain(self, action: Drain) -> None:
        more = {DRAIN_REASON_ANNOTATION: action.reason.value}
        if action.flip_to is not None:
            more[FLIP_ANNOTATION] = action.flip_to.value
        if action.goes_first and (found := await self._cluster.get(Resource.PODS, self._identity.namespace, action.instance)):
            more |= least_cost(found["metadata"])
        await self._annotate(action.instance, InstanceState.DRAINING, action.reason, more)
        aim = f"{action.reason} to {action.flip_to}" if action.flip_to is not None else action.reason
        message = (
            f"{action.instance} takes no new requests and is emptied ({aim}); the drain's cost in disturbed requests: {action.cost:.1f}"
        )
        self._record_event("Draining", message, action.instance)

    async def _end_drain(self, action: EndDrain) -> None:
        found = await self._cluster.get(Resource.PODS, self._identity.namespace, action.instance)
        if found is None:
            return
        body = end_of_drain_patch(found["metadata"], format_time(self._clock()))
        if await self._cluster.patch(Resource.PODS, self._identity.namespace, action.instance, body):
            self._record_event("DrainWithdrawn", f"{action.instance} is no longer drained and takes requests again", action.instance)

    async def _flip(self, action: FlipRole) -> None:
        body = flip_patch(action.role, format_time(self._clock()))
        if await self._cluster.patch(Resource.PODS, self._identity.namespace, action.instance, body):
            words = (
                f"goes on as {action.role}"
                if action.role is not action.before
                else f"stays {action.role}: the other role has enough instances"
            )
            self._record_event("RoleFlipped", f"{action.instance} is empty and {words}", action.instance)

    async def _annotate(self, instance: str, state: InstanceState, reason: str, more: Mapping[str, str] = _NOTHING_MORE) -> bool:
        body = {"metadata": {"annotations": {**state_annotations(state, format_time(self._clock()), reason), **more}}}
        return await self._cluster.patch(Resource.PODS, self._identity.namespace, instance, body)

    async def _delete(self, action: DeleteInstance) -> None:
        resource, name = (Resource.LEADER_WORKER_SETS, action.group) if action.group else (Resource.PODS, action.instance)
        if await self._cluster.delete(resource, self._identity.namespace, name):
            self._others.told(action.instance)
            reason, words = _DELETION_EVENTS[action.reason]
            self._record_event(reason, f"{action.instance} {words}", action.instance)

    async def _release(self, action: ReleaseInstance) -> None:
        if await release(self._cluster, self._identity, action.instance):
            self._others.told(action.instance)
            self._record_event("InstanceReleased", f"{action.instance} {_RELEASES[action.reason]}", action.instance)

    async def _scale(self, action: ScaleWorkload, spec: PoolSpec | None) -> None:
        target = next((role.scale_target_ref for role in spec.roles if role.name is action.role), None) if spec is not None else None
        if target is None:
            raise ValueError("only a workload that the spec names is scaled")
        if await scale_workload(self._cluster, self._identity.namespace, target, action.before, action.replicas):
            words = f"{target.kind} {target.name} is scaled: {action.before} → {action.replicas}"
            self._recorder.record(self._identity, self._clock(), "WorkloadScaled", words)

    def _record_event(self, reason: str, message: str, instance: str) -> None:
        self._recorder.record(self._identity, self._clock(), reason, message, instance=instance)


def _subject(action: Action) -> tuple[Hashable, ...]:
    """Return the key under which an action's refusal is remembered; all creations of a role from one template share one
    key.
    """
    match action:
        case CreateInstance():
            return "create", (action.role, action.spec_hash)
        case ScaleWorkload():
            return "scale", (action.role, action.replicas)
        case RecordState():
            return "record", (action.instance, action.state)
        case Drain():
            return "drain", (action.instance, action.reason, action.flip_to)
        case FlipRole():
            return "flip", (action.instance, action.role)
        case _:
            return type(action).__name__, action.instance
