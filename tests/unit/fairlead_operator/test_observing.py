"""Reading pods and objects."""

from typing import Any

import pytest

from fairlead.instances import InstanceState
from fairlead.reconciling.observed import PodHealth
from fairlead_operator.observing import format_time, last_spec_manager, parse_time, pod_health, read_pod


def status(phase: str, *, ready: str | None = None, ip: str | None = "127.0.0.1", waiting: str | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"phase": phase, "podIP": ip}
    if ready is not None:
        body["conditions"] = [{"type": "Ready", "status": ready}]
    if waiting is not None:
        body["containerStatuses"] = [{"restartCount": 3, "state": {"waiting": {"reason": waiting}}}]
    return body


@pytest.mark.parametrize(
    ("document", "health"),
    [
        ({}, PodHealth.PENDING),
        (status("Pending", ip=None), PodHealth.PENDING),
        (status("Running", ip=None), PodHealth.PENDING),
        (status("Running"), PodHealth.RUNNING),
        (status("Running", ready="False"), PodHealth.RUNNING),
        (status("Running", ready="True"), PodHealth.READY),
        (status("Running", ready="Unknown"), PodHealth.UNREACHABLE),
        (status("Unknown", ready="True"), PodHealth.UNREACHABLE),
        (status("Failed"), PodHealth.FAILED),
        (status("Succeeded"), PodHealth.FAILED),
    ],
)
def test_a_pods_status_is_one_word(document: dict[str, Any], health: PodHealth) -> None:
    assert pod_health(document) is health


def test_a_pods_record_is_read_back() -> None:
    annotations = {
        "fairlead.dev/state": "Draining",
        "fairlead.dev/state-since": format_time(20.5),
        "fairlead.dev/draining-since": format_time(20.5),
        "fairlead.dev/created-at": format_time(10.25),
        "fairlead.dev/spec-hash": "abc",
    }
    document = {
        "metadata": {
            "name": "p",
            "uid": "u",
            "creationTimestamp": "1970-01-01T00:00:11Z",
            "annotations": annotations,
            "labels": {"llm-d.ai/role": "both"},
        },
        "spec": {"nodeName": "n"},
        "status": status("Running", ready="True", waiting="CrashLoopBackOff"),
    }
    pod = read_pod(document)
    assert (pod.instance.state, pod.instance.state_since, pod.instance.draining_since) == (InstanceState.DRAINING, 20.5, 20.5)
    assert (pod.instance.created_at, pod.instance.spec_hash, pod.node, pod.restarts) == (10.25, "abc", "n", 3)
    assert pod.report(8000).address == "127.0.0.1:8000"
    assert pod.report(8000).reason == "CrashLoopBackOff"


def test_annotations_spoilt_by_hand_fall_back_to_what_the_pod_shows() -> None:
    annotations = {"fairlead.dev/state": "Perfect", "fairlead.dev/state-since": "yesterday", "fairlead.dev/created-at": ""}
    document = {"metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:00:11Z", "annotations": annotations}}
    pod = read_pod(document)
    assert (pod.instance.state, pod.instance.state_since, pod.instance.created_at) == (InstanceState.PENDING, 11, 11)


def test_times_survive_being_written_down() -> None:
    assert parse_time(format_time(1_800_000_000.123456)) == pytest.approx(1_800_000_000.123456, abs=1e-6)


def test_the_last_writer_of_the_spec_is_found_also_behind_the_scale_subresource() -> None:
    def entry(manager: str, time: str, field: str, subresource: str = "") -> dict[str, Any]:
        return {"manager": manager, "time": time, "fieldsV1": {field: {}}, "subresource": subresource}

    fields = [
        entry("kubectl-client-side-apply", "2026-01-01T00:00:00Z", "f:spec"),
        entry("kubectl", "2026-01-01T00:01:00Z", "f:spec", "scale"),
        entry("fairlead-operator", "2026-01-01T00:02:00Z", "f:status", "status"),
    ]
    assert last_spec_manager({"managedFields": fields}) == "kubectl"
    assert last_spec_manager({}) == "unknown"
