"""LeaderWorkerSets: groups of pods. Each group has a leader and workers, which start and end together.

This module follows pkg/controllers and pkg/webhooks of kubernetes-sigs/lws (API leaderworkerset.x-k8s.io/v1). A set
makes a headless Service and a StatefulSet of leaders. Each leader gets a StatefulSet of its workers, which is deleted
with the leader. Not implemented: separate revisions (the StatefulSet of leaders rolls a changed template out), surge,
subgroups, exclusive topologies, a Service for each group, TPUs, gang schedulers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from processkube.kubernetes_api.objects.objects import Object, at_path, canonical, copy_of
from processkube.kubernetes_api.workloads.conditions import with_condition
from processkube.kubernetes_api.workloads.owners import controller_of, is_controlled_by, reference_to
from processkube.kubernetes_api.workloads.plans import Change, ChangeStatus, Create, Delete, Plan, Write
from processkube.kubernetes_api.workloads.pod_states import is_deleted
from processkube.kubernetes_api.writing.pod_admission import GROUP_INDEX, GROUP_KEY, LEADER_NAME, REVISION, SET_NAME, SIZE, WORKER_INDEX
from processkube.kubernetes_api.writing.pods import is_ready

REPLICAS = "leaderworkerset.sigs.k8s.io/replicas"

_RECREATES = frozenset({"RecreateGroupOnPodRestart", "RecreateGroupAfterStart"})


def decide_leader_worker_set(
    item: Object, service: Object | None, leaders: Object | None, pods: Sequence[Object], workers: Mapping[str, Object], now: str
) -> Plan:
    """Return the writes of a set's next step. `leaders` is its StatefulSet of leaders; `workers` are the StatefulSets
    of workers by the name of their leader; `pods` are the pods of all groups. `now` is in RFC 3339.
    """
    if is_deleted(item) or (leaders is not None and is_deleted(leaders)):
        return Plan()
    writes: list[Write] = [] if service is not None else [Create(item=_service(item))]
    wanted = _leader_set(item)
    if leaders is None:
        writes.append(Create(item=wanted))
    elif _differs(leaders, wanted):
        spec = {**leaders["spec"], **{name: wanted["spec"][name] for name in ("replicas", "template")}}
        metadata = {**leaders["metadata"], "labels": wanted["metadata"]["labels"]}
        writes.append(Change(item={**leaders, "metadata": metadata, "spec": spec}))
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    for pod in pods:
        writes += _of_pod(item, pod, by_name, workers)
    status = _status(item, leaders, pods, workers, now)
    if status != item.get("status"):
        writes.append(ChangeStatus(item={**item, "status": status}))
    return Plan(writes=tuple(writes))


def _differs(leaders: Object, wanted: Object) -> bool:
    """Return whether the set was changed since its StatefulSet of leaders was written. Only the template's revision and
    the number of replicas are compared.
    """
    revision = leaders["metadata"].get("labels", {}).get(REVISION)
    return bool(revision != wanted["metadata"]["labels"][REVISION] or leaders["spec"].get("replicas") != wanted["spec"]["replicas"])


def _of_pod(item: Object, pod: Object, pods: Mapping[str, Object], workers: Mapping[str, Object]) -> list[Write]:
    name, is_leader = pod["metadata"]["name"], pod["metadata"]["labels"].get(WORKER_INDEX) == "0"
    leader = pod if is_leader else pods.get(name.rpartition("-")[0])
    if _restarts_its_group(item, pod) and leader is not None and (is_leader or _belongs(pod, leader, workers)):
        return [] if is_deleted(leader) else [Delete(item=leader, propagation="Foreground")]
    waits = item["spec"].get("startupPolicy") == "LeaderReady" and not is_ready(pod)
    if is_leader and not is_deleted(pod) and not waits and name not in workers and _size(item) > 1:
        return [Create(item=_worker_set(item, pod))]
    return []


def _restarts_its_group(item: Object, pod: Object) -> bool:
    if item["spec"]["leaderWorkerTemplate"].get("restartPolicy") not in _RECREATES:
        return False
    status = pod.get("status", {})
    restarted = any(one.get("restartCount") for name in ("initContainerStatuses", "containerStatuses") for one in status.get(name, ()))
    return is_deleted(pod) or (restarted and status.get("phase") in {"Running", "Pending"})


def _belongs(worker: Object, leader: Object, workers: Mapping[str, Object]) -> bool:
    """Return whether a worker belongs to the group of this leader, and not to the group of an earlier leader with this
    name.
    """
    of_group = workers.get(leader["metadata"]["name"])
    return of_group is not None and is_controlled_by(worker, of_group) and is_controlled_by(of_group, leader)


def _service(item: Object) -> Object:
    name = item["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(item, name, {SET_NAME: name}, item),
        "spec": {"clusterIP": "None", "selector": {SET_NAME: name}, "publishNotReadyAddresses": True},
    }


def _leader_set(item: Object) -> Object:
    template = item["spec"]["leaderWorkerTemplate"]
    name, labels = item["metadata"]["name"], {SET_NAME: item["metadata"]["name"], REVISION: _revision(item)}
    own = template.get("leaderTemplate") or template["workerTemplate"]
    spec = {
        "serviceName": name,
        "replicas": item["spec"]["replicas"],
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {SET_NAME: name, WORKER_INDEX: "0"}},
        "template": _template(own, {**labels, WORKER_INDEX: "0"}, {SIZE: str(_size(item))}),
    }
    metadata = _metadata(item, name, {**item["metadata"].get("labels", {}), **labels}, item)
    metadata["annotations"] = {**item["metadata"].get("annotations", {}), REPLICAS: str(item["spec"]["replicas"])}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


def _worker_set(item: Object, leader: Object) -> Object:
    name = leader["metadata"]["name"]
    selector = {key: leader["metadata"]["labels"][key] for key in (GROUP_INDEX, SET_NAME, GROUP_KEY)}
    labels = {**selector, REVISION: leader["metadata"]["labels"][REVISION]}
    annotations = {SIZE: str(_size(item)), LEADER_NAME: name}
    spec = {
        "serviceName": item["metadata"]["name"],
        "replicas": _size(item) - 1,
        "podManagementPolicy": "Parallel",
        "ordinals": {"start": 1},
        "selector": {"matchLabels": selector},
        "template": _template(item["spec"]["leaderWorkerTemplate"]["workerTemplate"], labels, annotations),
    }
    metadata = _metadata(item, name, {**item["metadata"].get("labels", {}), **labels}, leader)
    metadata["annotations"] = dict(item["metadata"].get("annotations", {}))
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


def _metadata(item: Object, name: str, labels: Mapping[str, str], owner: Object) -> Object:
    return {
        "name": name,
        "namespace": item["metadata"]["namespace"],
        "labels": dict(labels),
        "ownerReferences": [reference_to({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "metadata": owner["metadata"]})],
    }


def _template(given: Object, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    template: Object = copy_of(given)
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    return template


def _revision(item: Object) -> str:
    return hashlib.sha256(canonical(item["spec"]["leaderWorkerTemplate"]).encode()).hexdigest()[:10]


def _size(item: Object) -> int:
    return int(item["spec"]["leaderWorkerTemplate"]["size"])


def _status(item: Object, leaders: Object | None, pods: Sequence[Object], workers: Mapping[str, Object], now: str) -> Object:
    of_leaders = [pod for pod in pods if pod["metadata"]["labels"].get(WORKER_INDEX) == "0" and controller_of(pod) is not None]
    groups = [pod for pod in of_leaders if _size(item) == 1 or pod["metadata"]["name"] in workers]
    ready = [pod for pod in groups if is_ready(pod) and _are_available(workers.get(pod["metadata"]["name"]))]
    before = item.get("status", {})
    return {
        **before,
        "replicas": at_path(leaders or {}, "status", "replicas", default=0),
        "readyReplicas": len(ready),
        "updatedReplicas": sum(pod["metadata"]["labels"].get(REVISION) == _revision(item) for pod in groups),
        "hpaPodSelector": f"{SET_NAME}={item['metadata']['name']},{WORKER_INDEX}=0",
        "observedGeneration": item["metadata"].get("generation", 1),
        "conditions": _conditions(item, before.get("conditions", []), is_available=len(ready) == item["spec"]["replicas"], now=now),
    }


def _are_available(workers: Object | None) -> bool:
    return workers is None or at_path(workers, "status", "availableReplicas", default=0) == workers["spec"]["replicas"]


def _conditions(item: Object, before: list[Object], *, is_available: bool, now: str) -> list[Object]:
    """Return the conditions Available and Progressing, of which exactly one is true. A condition that was never true is
    left out.
    """
    said = {"Available": ("AllGroupsReady", "All replicas are ready"), "Progressing": ("GroupsProgressing", "Replicas are progressing")}
    true, other = ("Available", "Progressing") if is_available else ("Progressing", "Available")
    conditions = before
    for kind in (true, *(one["type"] for one in before if one["type"] == other)):
        reason, message = said[kind]
        generation = item["metadata"].get("generation", 1)
        status = "True" if kind == true else "False"
        condition = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
        conditions = with_condition(conditions, {**condition, "observedGeneration": generation})
    return conditions
