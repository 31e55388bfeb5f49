"""Makes a pod's status for the API from the kubelet's state. This module is pure; `stamp` is the current time in RFC
3339.
"""

from collections.abc import Mapping
from typing import Any

from processkube.kubelet.container_states import ContainerState, PodState, Termination, is_terminated
from processkube.kubelet.pod_specs import PodSpec

HOST_IP = "127.0.0.1"
_ENDS = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}
_CREATING, _INITIALIZING = "ContainerCreating", "PodInitializing"
"""The waiting reasons of a container that was never started. The second reason applies while the container waits for
init containers.
"""


def pod_status(pod: PodSpec, state: PodState, previous: Mapping[str, Any], stamp: str, *, live: Mapping[str, Any]) -> dict[str, Any]:
    """Return the complete status of a pod.

    Conditions that do not change keep their transition times from the status `previous`. The conditions that readiness
    gates need are read from `live`, the status in the API.
    """
    is_over = is_terminated(pod, state)
    phase = _phase(pod, state)
    serving = [state.container(spec.name) for spec in pod.containers]
    ready_containers = phase == "Running" and all(container.ready for container in serving)
    unready = " ".join(container.name for container in serving if not container.ready)
    first = [state.container(spec.name) for spec in pod.init_containers]
    unfinished = " ".join(container.name for container in first if not container.succeeded)
    gates = {condition["type"]: condition.get("status") for condition in live.get("conditions") or ()}
    closed = ", ".join(_closed_gate(gate, gates.get(gate)) for gate in pod.readiness_gates if gates.get(gate) != "True")
    not_ready = ("ContainersNotReady", f"containers with unready status: [{unready}]")
    if phase in _ENDS:
        not_ready = (_ENDS[phase], "")
    conditions = [
        _condition("PodScheduled", True),
        _condition("PodReadyToStartContainers", not is_over),
        _condition("Initialized", not unfinished, "ContainersNotInitialized", f"containers with incomplete status: [{unfinished}]"),
        _condition("ContainersReady", ready_containers, *not_ready),
        _condition("Ready", ready_containers and not closed, *(("ReadinessGatesNotReady", closed) if ready_containers else not_ready)),
    ]
    return {
        "phase": phase,
        "conditions": [_with_transition_time(condition, previous, stamp) for condition in conditions],
        "hostIP": HOST_IP,
        "hostIPs": [{"ip": HOST_IP}],
        "podIP": state.ip,
        "podIPs": [{"ip": state.ip}],
        "startTime": state.start_time,
        "qosClass": live.get("qosClass", "BestEffort"),
        **(
            {"initContainerStatuses": [_first_status(spec.image, state.container(spec.name)) for spec in pod.init_containers]}
            if first
            else {}
        ),
        "containerStatuses": [
            _container_status(
                spec.image, state.container(spec.name), creating=_INITIALIZING if first else _CREATING, lost=is_over and not unfinished
            )
            for spec in pod.containers
        ],
    }


def readiness(status: Mapping[str, Any]) -> str | None:
    """Return the status of the pod's condition Ready, such as "True"; None if the pod has no such condition."""
    return next((condition.get("status") for condition in status.get("conditions") or () if condition.get("type") == "Ready"), None)


def unscheduled_status(message: str, previous: Mapping[str, Any], stamp: str) -> dict[str, Any]:
    """Return the status of a pod that the node cannot accept now."""
    condition = _condition("PodScheduled", False, "Unschedulable", message)
    return {"phase": "Pending", "conditions": [_with_transition_time(condition, previous, stamp)]}


def unscheduled_message(status: Mapping[str, Any]) -> str | None:
    """Return the reported reason why the node cannot accept the pod, from its status; None if none is reported."""
    scheduled: Mapping[str, Any] = next((one for one in status.get("conditions") or () if one.get("type") == "PodScheduled"), {})
    return scheduled.get("message") if scheduled.get("status") == "False" else None


def refused_status(
    containers: list[Mapping[str, Any]], reason: str, message: str, previous: Mapping[str, Any], stamp: str
) -> dict[str, Any]:
    """Return the status of a pod that this kubelet cannot run."""
    conditions = [
        _condition("PodScheduled", True),
        _condition("ContainersReady", False, reason, message),
        _condition("Ready", False, reason, message),
    ]
    return {
        "phase": "Pending",
        "conditions": [_with_transition_time(condition, previous, stamp) for condition in conditions],
        "hostIP": HOST_IP,
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": message}},
            }
            for container in containers
        ],
    }


def _phase(pod: PodSpec, state: PodState) -> str:
    if any(container.ended and not container.succeeded for container in (state.container(spec.name) for spec in pod.init_containers)):
        return "Failed"
    containers = [state.container(spec.name) for spec in pod.containers]
    if all(container.ended for container in containers):
        return "Succeeded" if all(container.last is None or container.last.exit_code == 0 for container in containers) else "Failed"
    if is_terminated(pod, state):
        return "Failed"  # a container that never ran, or waited to run again, is lost
    if any(container.process is None and container.last is None for container in containers):
        return "Pending"
    return "Running"


def _closed_gate(gate: str, status: str | None) -> str:
    if status is None:
        return f'corresponding condition of pod readiness gate "{gate}" does not exist.'
    return f'the status of pod readiness gate "{gate}" is not "True", but {status}'


def _first_status(image: str, container: ContainerState) -> dict[str, Any]:
    """Return the status of an init container. It counts as ready once it has succeeded."""
    return {**_container_status(image, container, creating=_INITIALIZING), "ready": container.succeeded}


def _container_status(image: str, container: ContainerState, *, creating: str, lost: bool = False) -> dict[str, Any]:
    if container.process is not None:
        current: dict[str, Any] = {"running": {"startedAt": container.started_at}}
    elif container.ended and container.last is not None:
        current = {"terminated": _terminated(container.last)}
    elif lost:
        message = "The container could not be located when the pod was terminated"
        current = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": message}}
    else:
        reason = creating if container.waiting_reason == _CREATING else container.waiting_reason
        current = {"waiting": {"reason": reason, "message": container.waiting_message}}
    status: dict[str, Any] = {
        "name": container.name,
        "image": image,
        "imageID": f"sandbox://{image}" if image else "",
        "ready": container.ready,
        "started": container.started,
        "restartCount": container.restarts,
        "state": current,
        "lastState": {"terminated": _terminated(container.last)} if container.last is not None and not container.ended else {},
    }
    if container.process is not None:
        status["containerID"] = f"process://{container.process.pid}-{container.process.started_ticks}"
    return status


def _terminated(termination: Termination) -> dict[str, Any]:
    document: dict[str, Any] = {
        "exitCode": termination.exit_code,
        "reason": termination.reason,
        "finishedAt": termination.finished_at,
    }
    if termination.signal:
        document["signal"] = termination.signal
    if termination.message:
        document["message"] = termination.message
    if termination.started_at:
        document["startedAt"] = termination.started_at
    return document


def _condition(kind: str, true: bool, reason: str = "", message: str = "") -> dict[str, Any]:
    if true:
        return {"type": kind, "status": "True"}
    return {"type": kind, "status": "False", "reason": reason, "message": message}


def _with_transition_time(condition: dict[str, Any], previous: Mapping[str, Any], stamp: str) -> dict[str, Any]:
    for old in previous.get("conditions") or ():
        if old.get("type") == condition["type"] and old.get("status") == condition["status"]:
            return {**condition, "lastTransitionTime": old.get("lastTransitionTime") or stamp}
    return {**condition, "lastTransitionTime": stamp}
