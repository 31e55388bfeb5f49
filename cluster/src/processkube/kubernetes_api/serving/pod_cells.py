"""The cells of a pod in `kubectl get pods`, as `printPod` of Kubernetes 1.36 makes them."""

from __future__ import annotations

from datetime import datetime

from processkube.kubernetes_api.objects.objects import Object, at_path
from processkube.kubernetes_api.serving.ages import age_since
from processkube.kubernetes_api.writing.pods import FINISHED


def _first_containers(pod: Object) -> tuple[list[Object], str]:
    """Return the states of the init containers, up to and including the first that has neither succeeded nor, as a
    sidecar, started. Also return the pod's status in words, such as `Init:0/2`; "" if there is no such container.
    """
    declared = {one["name"]: one for one in at_path(pod, "spec", "initContainers", default=[])}
    seen: list[Object] = []
    for done, container in enumerate(at_path(pod, "status", "initContainerStatuses", default=[])):
        seen.append(container)
        state = container.get("state", {})
        ended, waiting = state.get("terminated"), at_path(state, "waiting", "reason", default="")
        if (ended is not None and not ended.get("exitCode")) or (_is_sidecar(declared.get(container["name"])) and container.get("started")):
            continue
        if ended is not None:
            return seen, f"Init:{_ending(ended)}"
        return seen, f"Init:{waiting}" if waiting not in {"", "PodInitializing"} else f"Init:{done}/{len(declared)}"
    return seen, ""


def _is_sidecar(container: Object | None) -> bool:
    return (container or {}).get("restartPolicy") == "Always"


def _ending(ended: Object) -> str:
    """Return a word for the reason why a container ended."""
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _true_conditions(pod: Object) -> set[str]:
    return {str(one.get("type")) for one in at_path(pod, "status", "conditions", default=[]) if one.get("status") == "True"}


def _counted(pod: Object) -> tuple[list[Object], list[Object], str]:
    """Return three values for the cells of a pod: the states of the init containers that count, the states of the other
    containers that count, and the pod's status in words, such as `Init:0/2`.

    Until the pod is initialized, the other containers do not count. Afterwards only sidecars count among the init
    containers, and the status is usually "".
    """
    seen, initializing = _first_containers(pod)
    if initializing and "Initialized" not in _true_conditions(pod):
        return seen, [], initializing
    sidecars = {one["name"] for one in at_path(pod, "spec", "initContainers", default=[]) if _is_sidecar(one)}
    return [one for one in seen if one["name"] in sidecars], at_path(pod, "status", "containerStatuses", default=[]), initializing


def pod_ready(pod: Object, _now: datetime) -> str:
    sidecars = {one["name"] for one in at_path(pod, "spec", "initContainers", default=[]) if _is_sidecar(one)}
    first, containers, _ = _counted(pod)
    ready = sum(bool(one["name"] in sidecars and one.get("started") and one.get("ready")) for one in first)
    ready += sum(bool(one.get("ready")) and _runs(one) for one in containers)
    return f"{ready}/{len(at_path(pod, 'spec', 'containers', default=[])) + len(sidecars)}"


def _runs(container: Object) -> bool:
    return "running" in container.get("state", {})


def pod_status(pod: Object, _now: datetime) -> str:
    """Return the pod's status in a word. It names the first container that waits or has ended; init containers come
    before the other containers.
    """
    status = pod.get("status", {})
    text = str(status.get("reason") or status.get("phase", "Unknown"))
    if any(one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in status.get("conditions", ())):
        text = "SchedulingGated"
    _, containers, initializing = _counted(pod)
    text = initializing or text
    failed, running = "", False
    for container in reversed(containers):
        state = container.get("state", {})
        ended = state.get("terminated")
        if waiting := at_path(state, "waiting", "reason", default=""):
            text = waiting
        elif ended is not None:
            text = _ending(ended)
            failed = text if ended.get("exitCode") else failed
        elif container.get("ready") and _runs(container):
            running = True
    if text == "Completed":  # one container did; what the others do says more
        text = "Running" if running and "Ready" in _true_conditions(pod) else failed or ("NotReady" if running else text)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in FINISHED:
            return "Terminating"
    return text


def pod_restarts(pod: Object, now: datetime) -> str:
    first, containers, _ = _counted(pod)
    statuses = [*first, *containers]
    count = sum(one.get("restartCount", 0) for one in statuses)
    ended = [at_path(one, "lastState", "terminated", "finishedAt") for one in statuses]
    latest = max((time for time in ended if time), default=None)
    return f"{count} ({age_since(latest, now)} ago)" if count and latest else str(count)


def readiness_gates(pod: Object, _now: datetime) -> str:
    gates = at_path(pod, "spec", "readinessGates", default=[])
    conditions = {one.get("type"): one.get("status") for one in at_path(pod, "status", "conditions", default=[])}
    passed = sum(conditions.get(gate.get("conditionType")) == "True" for gate in gates)
    return f"{passed}/{len(gates)}" if gates else "<none>"
