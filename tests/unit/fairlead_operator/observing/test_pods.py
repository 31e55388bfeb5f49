"""Reading pods and objects."""

from typing import Any

import pytest

from fairlead.instances import InstanceState
from fairlead.reconciling.observed import PodHealth
from fairlead_operator.observing.field_managers import spec_manager, who_changed
from fairlead_operator.observing.pods import pod_health, read_pod
from fairlead_operator.times import format_time, parse_time


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


def entry(manager: str, operation: str, fields: dict[str, Any], *, time: str | None = None, subresource: str = "") -> dict[str, Any]:
    """One entry of managedFields; a real server writes no time for the scale subresource."""
    found = {"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": fields}
    return {**found, "time": time} if time else found


APPLIED_THEN_SCALED = [
    entry("kubectl", "Update", {"f:spec": {"f:replicas": {}}}, subresource="scale"),
    entry("gitops", "Apply", {"f:spec": {"f:model": {}, "f:slo": {"f:ttft": {}}}}, time="2026-01-01T00:01:00Z"),
    entry("somebody", "Update", {"f:spec": {"f:slo": {"f:tpot": {}}}}, time="2026-01-01T00:00:00Z"),
    entry("fairlead-operator", "Update", {"f:status": {"f:replicas": {}}}, time="2026-01-01T00:02:00Z", subresource="status"),
]


def test_who_scaled_is_who_owns_the_replicas_although_the_scale_subresource_writes_no_time() -> None:
    metadata = {"managedFields": APPLIED_THEN_SCALED}
    assert spec_manager(metadata, "replicas") == "kubectl"
    assert spec_manager(metadata, "model") == "gitops"


def test_of_two_owners_of_a_member_the_one_that_wrote_last_is_named() -> None:
    assert spec_manager({"managedFields": APPLIED_THEN_SCALED}, "slo") == "gitops"


def test_a_member_that_nobody_owns_is_the_last_writers() -> None:
    assert spec_manager({"managedFields": APPLIED_THEN_SCALED}, "drain") == "gitops"
    assert spec_manager({"managedFields": APPLIED_THEN_SCALED}) == "gitops"
    assert spec_manager({}, "replicas") == "unknown"


def test_a_change_of_the_replicas_alone_is_told_as_their_owners() -> None:
    def pool(in_force: dict[str, Any] | None) -> dict[str, Any]:
        status = {} if in_force is None else {"specInForce": {"spec": in_force}}
        return {"metadata": {"managedFields": APPLIED_THEN_SCALED}, "spec": {"model": "m", "replicas": 3}, "status": status}

    assert who_changed(pool({"model": "m", "replicas": 2})) == "kubectl"
    assert who_changed(pool({"model": "m", "replicas": 2, "slo": {}})) == "gitops", "more than one member changed"
    assert who_changed(pool(None)) == "gitops"
