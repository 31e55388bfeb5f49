"""A pod's status as kubectl and the operator read it."""

from dataclasses import replace
from typing import Any

import pytest

from processkube.identities import ProcessIdentity
from processkube.kubelet.container_states import ContainerState, PodState, after_answer, after_exit, after_start
from processkube.kubelet.pod_specs import ContainerSpec, PodSpec
from processkube.kubelet.probe_specs import ProbeSpec
from processkube.kubelet.statuses import pod_status

SPEC = ContainerSpec(name="engine", image="acme/engine:1", readiness=ProbeSpec(port=8000, path="/health"))
POD = PodSpec(uid="u1", namespace="default", name="chat-b1", node="sandbox", containers=(SPEC,))
FRESH = PodState(
    uid="u1", namespace="default", name="chat-b1", ip="127.40.0.1", start_time="t0", containers=(ContainerState(name="engine"),)
)


def running(*, ready: bool) -> PodState:
    started = after_start(FRESH.containers[0], SPEC, process=ProcessIdentity(pid=7, started_ticks=1), stamp="t1", now=1.0)
    return FRESH.with_container(after_answer(started, SPEC, "readiness", ok=ready, detail="503", now=2.0))


def status(state: PodState, previous: dict[str, Any] | None = None, stamp: str = "t9", pod: PodSpec = POD) -> dict[str, Any]:
    return pod_status(pod, state, previous or {}, stamp, live=previous or {})


def condition(document: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in document["conditions"] if item["type"] == kind)
    return found


def test_a_pod_that_has_not_started_is_pending_and_says_which_container_is_missing() -> None:
    document = status(FRESH)
    assert document["phase"] == "Pending"
    assert condition(document, "Ready")["message"] == "containers with unready status: [engine]"
    assert document["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating", "message": ""}}


def test_containers_wait_for_those_that_come_first_and_these_are_ready_once_they_are_through() -> None:
    first = ContainerSpec(name="first", image="acme/engine:1")
    pod = replace(POD, init_containers=(first,))
    state = replace(FRESH, containers=(ContainerState(name="first"), *FRESH.containers))
    before = status(state, pod=pod)
    waiting = {"waiting": {"reason": "PodInitializing", "message": ""}}
    assert [one["state"] for one in before["initContainerStatuses"] + before["containerStatuses"]] == [waiting, waiting]
    begun = after_start(state.containers[0], first, process=ProcessIdentity(pid=7, started_ticks=1), stamp="t1", now=1.0)
    assert not status(state.with_container(begun), pod=pod)["initContainerStatuses"][0]["ready"]
    through = after_exit(begun, exit_code=0, signal=0, message="", restarts_allowed=False, stamp="t2", now=2.0)
    assert status(state.with_container(through), pod=pod)["initContainerStatuses"][0]["ready"]
    failed = after_exit(begun, exit_code=1, signal=0, message="", restarts_allowed=False, stamp="t2", now=2.0)
    assert condition(status(state.with_container(failed), pod=pod), "Ready")["reason"] == "PodFailed"


def test_a_pod_whose_probe_passed_is_ready_at_its_address() -> None:
    document = status(running(ready=True))
    assert document["phase"] == "Running"
    assert condition(document, "Ready")["status"] == "True"
    assert document["podIP"] == "127.40.0.1"
    assert document["containerStatuses"][0]["state"] == {"running": {"startedAt": "t1"}}


def test_a_condition_keeps_its_transition_time_until_it_changes() -> None:
    before = status(running(ready=False), stamp="t2")
    same = status(running(ready=False), before, stamp="t3")
    changed = status(running(ready=True), before, stamp="t4")
    assert condition(same, "Ready")["lastTransitionTime"] == "t2"
    assert condition(changed, "Ready")["lastTransitionTime"] == "t4"
    assert condition(changed, "PodScheduled")["lastTransitionTime"] == "t2"


def test_a_crash_is_shown_as_back_off_with_its_last_state() -> None:
    crashed = after_exit(running(ready=True).containers[0], exit_code=0, signal=9, message="", restarts_allowed=True, stamp="t5", now=3.0)
    container = status(FRESH.with_container(crashed))["containerStatuses"][0]
    assert container["restartCount"] == 1
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container["lastState"]["terminated"] == {
        "exitCode": 137,
        "signal": 9,
        "reason": "Error",
        "startedAt": "t1",
        "finishedAt": "t5",
    }
    assert not container["ready"]


def test_a_closed_readiness_gate_keeps_a_running_pod_unready() -> None:
    gated = replace(POD, readiness_gates=("acme.dev/warm",))
    closed = status(running(ready=True), pod=gated)
    assert condition(closed, "Ready")["reason"] == "ReadinessGatesNotReady"
    assert condition(closed, "Ready")["message"] == 'corresponding condition of pod readiness gate "acme.dev/warm" does not exist.'
    still = status(running(ready=True), {"conditions": [{"type": "acme.dev/warm", "status": "False"}]}, pod=gated)
    assert condition(still, "Ready")["message"] == 'the status of pod readiness gate "acme.dev/warm" is not "True", but False'
    opened = status(running(ready=True), {"conditions": [{"type": "acme.dev/warm", "status": "True"}]}, pod=gated)
    assert condition(opened, "Ready")["status"] == "True"


DELETED = replace(POD, deletion_at=5.0)


@pytest.mark.parametrize(("exit_code", "signal", "phase"), [(0, 0, "Succeeded"), (0, 15, "Failed"), (3, 0, "Failed")])
def test_a_deleted_pod_ends_with_a_phase_and_its_containers_say_how(exit_code: int, signal: int, phase: str) -> None:
    ended = after_exit(
        running(ready=True).containers[0], exit_code=exit_code, signal=signal, message="", restarts_allowed=False, stamp="t5", now=3.0
    )
    document = status(FRESH.with_container(ended), pod=DELETED)
    assert (document["phase"], condition(document, "Ready")["status"]) == (phase, "False")
    assert document["containerStatuses"][0]["state"]["terminated"]["exitCode"] == (128 + signal if signal else exit_code)


def test_a_deleted_pod_that_waits_to_run_again_or_never_ran_ends_as_failed() -> None:
    crashed = after_exit(running(ready=True).containers[0], exit_code=0, signal=0, message="", restarts_allowed=True, stamp="t5", now=3.0)
    for state in (FRESH, FRESH.with_container(crashed)):
        document = status(state, pod=DELETED)
        assert document["phase"] == "Failed"
        assert document["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"


def test_a_deleted_pod_that_still_runs_is_running() -> None:
    assert status(running(ready=True), pod=DELETED)["phase"] == "Running"
