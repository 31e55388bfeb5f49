"""Reads pods into the types of the planner and the control API. Pure: nothing here calls the cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead.addresses import joined
from fairlead.conditions.facts import NoRoom, Trouble
from fairlead.instance_marks import CORDONED_ANNOTATION, DRAIN_ANNOTATION, REVISION_ANNOTATION, WEIGHT_ANNOTATION, engine_container_of
from fairlead.instances import InstanceState, Role, weight_of
from fairlead.pool_states import InstanceReport
from fairlead.pools import PoolSpec
from fairlead.reconciling.actions import DrainReason
from fairlead.reconciling.observed import WAKING, ObservedInstance, PodHealth
from fairlead_operator.observing.adopted_pods import is_adopted, selected_role
from fairlead_operator.observing.groups import GROUP, WORKERS, group_of, is_leaderless
from fairlead_operator.observing.pod_engines import NO_PORTS, UNKNOWN_ENGINE, PodEngine, ShownPorts, by_template, pod_engine, shown_ports
from fairlead_operator.observing.workloads import place_of, template_of
from fairlead_operator.pod_marks import (
    ADOPTED_ROLE_LABEL,
    CREATED_ANNOTATION,
    DRAIN_REASON_ANNOTATION,
    DRAINING_ANNOTATION,
    FAILURES_ANNOTATION,
    FLIP_ANNOTATION,
    HASH_ANNOTATION,
    ORDINAL_ANNOTATION,
    ROLE_LABEL,
    STATE_ANNOTATION,
    STATE_REASON_ANNOTATION,
    STATE_SINCE_ANNOTATION,
    WARMED_ANNOTATION,
)
from fairlead_operator.pod_templates import SELECTED_HASH, shared_claim
from fairlead_operator.times import parse_time

TROUBLES = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "PostStartHookError",
        "PreCreateHookError",
        "PreStartHookError",
        "RegistryUnavailable",
        "RunContainerError",
        "SignatureValidationFailed",
    }
)
"""Waiting reasons of a container that persist until somebody changes something: all reasons that a kubelet gives,
except the reasons in a normal start.
"""


GATED = "SchedulingGated"
"""Kubernetes' reason for a pod with a scheduling gate, which keeps it from the scheduler."""
KUEUE_LABEL = "kueue.x-k8s.io/managed"
"""Label that Kueue's webhook sets on a pod whose admission Kueue decides."""
KUEUE_JOB_LABEL = "kueue.x-k8s.io/job-uid"
"""The label of a Workload with the uid of the object that it represents."""

_ENDED = frozenset({"Failed", "Succeeded"})
_RECORDED = frozenset(InstanceState) - {InstanceState.GONE}
"""The states that may be recorded on a pod: all states except Gone, because the pod exists."""
_MOST_DIGITS = 9
_SAYS_NOTHING = frozenset({"", "Error", "Completed"})
"""Kubernetes' reasons for the end of a container that add nothing to its exit code."""
_SIGKILL = 9
_KILLED = 128 + _SIGKILL
"""The exit code of a process that SIGKILL ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod of a pool, as read from the cluster. `reason` was recorded on the pod together with the state; `trouble`
    says why the pod cannot run, None if it can.
    """

    instance: ObservedInstance
    uid: str
    ip: str | None
    node: str | None
    restarts: int
    weight: float
    """The instance's share of the keys on the hash ring, relative to an instance of weight 1."""
    reason: str
    trouble: Trouble | None
    revision: str = ""
    """The KV revision: two instances with the same value can hand KV blocks to each other."""
    queued_as: str = ""
    """The uid of the object that Kueue queues: the pod, or the LeaderWorkerSet of a group."""
    is_leaderless: bool = False
    """Whether the instance's LeaderWorkerSet has no leader pod yet."""
    shown: ShownPorts = NO_PORTS
    engine: PodEngine = UNKNOWN_ENGINE

    @property
    def address(self) -> str | None:
        """The address of the pod's engine as host:port; None while it is not known."""
        return joined(self.ip, self.engine.port) if self.ip and self.engine.port is not None else None

    def report(self, share: float = 1.0, *, stays: bool = True) -> InstanceReport:
        """Return the report of the instance to the control API. `share` (0-1) reduces the reported weight while the
        instance warms. `stays` is False if the instance will be drained soon.
        """
        return InstanceReport(
            id=self.instance.id,
            pod_uid=self.uid,
            address=self.address,
            role=self.instance.role,
            state=self.instance.state,
            reason=self.trouble.reason if self.trouble is not None else self.reason,
            node=self.node,
            weight=self.weight * share,
            restarts=self.restarts,
            revision=self.revision,
            created_at=self.instance.created_at,
            engine=self.engine.engine,
            stays=stays,
        )


def read_pods(documents: Iterable[Mapping[str, Any]], owner_uid: str, spec: PoolSpec | None = None) -> tuple[Pod, ...]:
    """Return the pods that this pool owns or adopted, by name.

    Pods with the pool's label but another owner are left out, such as pods of a deleted pool with the same name.
    """
    found = []
    for document in documents:
        metadata = document["metadata"]
        if any(owner.get("uid") == owner_uid for owner in metadata.get("ownerReferences") or []):
            found.append(read_pod(document))
        elif is_adopted(metadata, owner_uid):
            found.append(_read_adopted(document, spec))
    return tuple(sorted(found, key=lambda pod: pod.instance.id))


def with_engines(pods: Iterable[Pod], present: PoolSpec | None, formers: Mapping[str, PoolSpec]) -> tuple[Pod, ...]:
    """Return the pods, each with the facts of its own engine; see `pod_engine`."""
    made_from = {**formers, **by_template(present)}
    return tuple(replace(pod, engine=pod_engine(pod.instance.spec_hash, pod.shown, present, made_from)) for pod in pods)


def _read_adopted(document: Mapping[str, Any], spec: PoolSpec | None) -> Pod:
    """Read an adopted pod. If a role of the spec selects the pod, the pod counts as up to date; otherwise its template
    hash is empty, which means unknown. The pod's KV revision follows from the model and the pod's image: it decides
    with which other instances the pod can exchange KV blocks.
    """
    pod, labels = read_pod(document), document["metadata"].get("labels") or {}
    role = selected_role(labels, spec)
    known = labels.get(ADOPTED_ROLE_LABEL)
    before = Role(known) if known in set(Role) else Role.BOTH
    instance = replace(pod.instance, role=role or before, spec_hash=SELECTED_HASH if role is not None else "", adopted=True)
    instance = replace(instance, place=place_of(document["metadata"]), template=template_of(document["metadata"]))
    model = spec.model if spec is not None else ""
    return replace(pod, instance=instance, revision=pod.revision or f"{model} {_engine_status(document).get('image', '')}")


def _engine_status(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of the container that runs the pod's engine; empty if the pod shows none."""
    statuses = {str(one.get("name")): one for one in (document.get("status") or {}).get("containerStatuses") or ()}
    names = [str(one.get("name")) for one in (document.get("spec") or {}).get("containers") or ()] or list(statuses)
    return statuses.get(engine_container_of(names, document["metadata"].get("annotations")), {}) if names else {}


def read_pod(document: Mapping[str, Any]) -> Pod:
    """Read one pod. Missing or unreadable annotations (edited by hand) are replaced by values that the pod itself
    shows.
    """
    metadata, status = document["metadata"], document.get("status") or {}
    annotations = metadata.get("annotations") or {}
    created_at = parse_time(annotations.get(CREATED_ANNOTATION)) or parse_time(metadata.get("creationTimestamp")) or 0.0
    recorded = annotations.get(STATE_ANNOTATION)
    state = InstanceState(recorded) if recorded in _RECORDED else InstanceState.PENDING
    role = (metadata.get("labels") or {}).get(ROLE_LABEL)
    flip_to = annotations.get(FLIP_ANNOTATION)
    engine = _engine_status(document)
    restarts = int(engine.get("restartCount") or 0)  # a side-car's restart loses no cache
    warmed = _count(annotations, WARMED_ANNOTATION) if WARMED_ANNOTATION in annotations else None
    deleted = bool(metadata.get("deletionTimestamp"))
    instance = ObservedInstance(
        id=metadata["name"],
        role=Role(role) if role in set(Role) else Role.BOTH,
        health=pod_health(status),
        state=state,
        state_since=parse_time(annotations.get(STATE_SINCE_ANNOTATION)) or created_at,
        spec_hash=annotations.get(HASH_ANNOTATION, ""),
        created_at=created_at,
        terminating=deleted,
        draining_since=parse_time(annotations.get(DRAINING_ANNOTATION)),
        flip_to=Role(flip_to) if flip_to in set(Role) else None,
        cordoned=annotations.get(CORDONED_ANNOTATION) == "true",
        drain_requested=annotations.get(DRAIN_ANNOTATION) == "true",
        drained_on_request=annotations.get(DRAIN_REASON_ANNOTATION) == DrainReason.REQUESTED,
        drained_as_surplus=annotations.get(DRAIN_REASON_ANNOTATION) == DrainReason.SCALED_DOWN,
        ordinal=_count(annotations, ORDINAL_ANNOTATION),
        failures=_count(annotations, FAILURES_ANNOTATION),
        restarts=restarts,
        warmed_restarts=warmed,
        health_reason=health_reason(status, is_deleted=deleted) or ("" if deleted else end_of_engine(engine, warmed)),
        group=group_of(document),
        claim=shared_claim(document.get("spec") or {}),
        waking=annotations.get(STATE_ANNOTATION) == InstanceState.STARTING and annotations.get(STATE_REASON_ANNOTATION) == WAKING,
    )
    return Pod(
        instance=instance,
        uid=metadata.get("uid", ""),
        ip=status.get("podIP") or None,
        node=(document.get("spec") or {}).get("nodeName"),
        weight=weight_of(annotations.get(WEIGHT_ANNOTATION)),
        restarts=restarts,
        reason=annotations.get(STATE_REASON_ANNOTATION, "Unknown"),
        trouble=next((found for one in (document, *document.get(WORKERS, ())) if (found := _trouble(one)) is not None), None),
        queued_as=str((document.get(GROUP) or document)["metadata"].get("uid", "")),
        is_leaderless=is_leaderless(document),
        revision=annotations.get(REVISION_ANNOTATION, ""),
        shown=shown_ports(document.get("spec") or {}, annotations),
    )


def _trouble(document: Mapping[str, Any]) -> Trouble | None:
    metadata, status = document["metadata"], document.get("status") or {}
    if KUEUE_LABEL in (metadata.get("labels") or {}) and _condition(status, "PodScheduled").get("reason") == GATED:
        return Trouble(instance=metadata["name"], reason=NoRoom.QUOTA, message="Kueue has not admitted it yet")
    return trouble_of(metadata["name"], status)


def with_words_of_kueue(pods: Iterable[Pod], workloads: Iterable[Mapping[str, Any]]) -> tuple[Pod, ...]:
    """Return the pods, with the messages of Kueue's Workloads for pods that wait for quota."""
    words = {(one["metadata"].get("labels") or {}).get(KUEUE_JOB_LABEL): _refusal(one.get("status") or {}) for one in workloads}

    def told(pod: Pod) -> Pod:
        said = words.get(pod.queued_as) if waits_for_quota(pod) else None
        return replace(pod, trouble=replace(pod.trouble, message=said)) if said and pod.trouble is not None else pod

    return tuple(told(pod) for pod in pods)


def waits_for_quota(pod: Pod) -> bool:
    """Return whether Kueue keeps the pod from the scheduler."""
    return pod.trouble is not None and pod.trouble.reason == NoRoom.QUOTA


def _refusal(status: Mapping[str, Any]) -> str:
    """Return Kueue's reason for not admitting a Workload: it has no quota, or it has quota but has not passed a further
    check. Empty if Kueue gave no reason.
    """
    conditions = (_condition(status, kind) for kind in ("QuotaReserved", "Admitted"))
    return next((str(one.get("message") or "") for one in conditions if one.get("status") == "False"), "")


def pod_health(status: Mapping[str, Any]) -> PodHealth:
    """Return the health of a pod, computed from its status."""
    phase = status.get("phase")
    if phase in _ENDED:
        return PodHealth.FAILED
    ready = _condition(status, "Ready")
    if phase == "Unknown" or ready.get("status") == "Unknown" or _is_marked_by_node_lifecycle(status):
        return PodHealth.UNREACHABLE
    if not status.get("podIP") or phase != "Running":
        return PodHealth.PENDING
    return PodHealth.READY if ready.get("status") == "True" else PodHealth.RUNNING


def health_reason(status: Mapping[str, Any], *, is_deleted: bool = False) -> str:
    """Return Kubernetes' reason why a pod ended or is disturbed, such as `Evicted`; empty if Kubernetes gives no
    reason. The ends of the containers of a deleted pod are ignored.
    """
    if status.get("reason"):
        return str(status["reason"])
    disruption = _condition(status, "DisruptionTarget")
    if disruption.get("status") == "True" and disruption.get("reason"):
        return str(disruption["reason"])
    if status.get("phase") in _ENDED and not is_deleted:
        for container in _containers(status):
            ended = (container.get("state") or {}).get("terminated") or {}
            if ended.get("reason") and (ended.get("exitCode") or status["phase"] == "Succeeded"):
                return str(ended["reason"])
    return ""


def end_of_engine(container: Mapping[str, Any], warmed_restarts: int | None) -> str:
    """Return one word for the end of the engine in this container: Kubernetes' reason, such as `OOMKilled`, or
    `EngineKilled` (SIGKILL), `EngineFailed` or `EngineEnded` if Kubernetes gives no useful reason.

    Empty if the engine serves, or has not ended since it last served. `warmed_restarts` is the container's number of
    restarts at the time when it last served.
    """
    now = (container.get("state") or {}).get("terminated")
    before = (container.get("lastState") or {}).get("terminated")
    restarted = warmed_restarts is not None and int(container.get("restartCount") or 0) > warmed_restarts
    ended = now or (before if restarted else None)
    if not ended or container.get("ready"):
        return ""
    reason, code = str(ended.get("reason") or ""), int(ended.get("exitCode") or 0)
    if reason not in _SAYS_NOTHING:
        return reason
    return "EngineKilled" if code == _KILLED or ended.get("signal") == _SIGKILL else "EngineFailed" if code else "EngineEnded"


def _is_marked_by_node_lifecycle(status: Mapping[str, Any]) -> bool:
    """Return whether the node lifecycle controller marked the pod not ready, because its node does not report.

    It only sets Ready to False (MarkPodsNotReady); a kubelet that finds a container not ready also sets ContainersReady
    to False, and an unmet readiness gate sets a reason in the condition.
    """
    ready = _condition(status, "Ready")
    return (
        ready.get("status") == "False"
        and _condition(status, "ContainersReady").get("status") == "True"
        and ready.get("reason") != "ReadinessGatesNotReady"
    )


def trouble_of(name: str, status: Mapping[str, Any]) -> Trouble | None:
    """Return the permanent problem because of which this pod does not run; None if it runs or the problem is
    temporary.
    """
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in TROUBLES:
            return Trouble(instance=name, reason=str(waiting["reason"]), message=str(waiting.get("message") or ""))
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == NoRoom.NODES:
        return Trouble(instance=name, reason=NoRoom.NODES, message=str(scheduled.get("message") or ""))
    return None


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((item for item in status.get("conditions") or [] if item.get("type") == kind), {})


def _count(annotations: Mapping[str, str], name: str) -> int:
    """Return a number in an annotation; 0 if it is missing, invalid or has too many digits."""
    text = annotations.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0
