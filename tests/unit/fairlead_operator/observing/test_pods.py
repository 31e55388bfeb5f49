"""Reading pods and other objects of the Kubernetes API."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.conditions.facts import Trouble
from fairlead.instances import InstanceState
from fairlead.reconciling.observed import PodHealth
from fairlead_operator.observing.field_managers import spec_manager, who_changed
from fairlead_operator.observing.pods import health_reason, pod_health, read_pod, trouble_of, with_engines, with_words_of_kueue
from fairlead_operator.times import format_time, parse_time
from fairlead_testing.examples import examples


def status(
    phase: str, *, ready: str | None = None, ip: str | None = "127.0.0.1", waiting: str | None = None, words: str = ""
) -> dict[str, Any]:
    body: dict[str, Any] = {"phase": phase, "podIP": ip}
    if ready is not None:
        body["conditions"] = [{"type": "Ready", "status": ready}]
    if waiting is not None:
        body["containerStatuses"] = [{"name": "engine", "restartCount": 3, "state": {"waiting": {"reason": waiting, "message": words}}}]
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


def with_conditions(phase: str = "Running", **conditions: str) -> dict[str, Any]:
    """Return a status with conditions; write them as `Ready="False:Reason"`."""
    entries = [{"type": kind, **dict(zip(("status", "reason"), value.split(":"), strict=False))} for kind, value in conditions.items()]
    return {"phase": phase, "podIP": "127.0.0.1", "conditions": entries}


@pytest.mark.parametrize(
    ("document", "health"),
    [
        (with_conditions(Ready="False", ContainersReady="True"), PodHealth.UNREACHABLE),
        (with_conditions(Ready="False:ContainersNotReady", ContainersReady="False:ContainersNotReady"), PodHealth.RUNNING),
        (with_conditions(Ready="False:ReadinessGatesNotReady", ContainersReady="True"), PodHealth.RUNNING),
        (with_conditions(Ready="True", ContainersReady="True"), PodHealth.READY),
    ],
)
def test_a_pod_that_only_the_node_lifecycle_controller_calls_unready_is_on_a_lost_node(document: dict[str, Any], health: PodHealth) -> None:
    assert pod_health(document) is health


def failed(**status: Any) -> dict[str, Any]:
    return {"phase": "Failed", **status}


def ended(reason: str, code: int) -> dict[str, Any]:
    return {"restartCount": 0, "state": {"terminated": {"reason": reason, "exitCode": code}}}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (failed(reason="Evicted", message="The node was low on resource: memory."), "Evicted"),
        (failed(reason="OutOfnvidia.com/gpu"), "OutOfnvidia.com/gpu"),
        (failed(conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]), "DeletionByPodGC"),
        (with_conditions(DisruptionTarget="True:DeletionByTaintManager", Ready="False", ContainersReady="True"), "DeletionByTaintManager"),
        (with_conditions(DisruptionTarget="False:PreemptionByScheduler", Ready="True"), ""),
        (failed(containerStatuses=[ended("Completed", 0), ended("OOMKilled", 137)]), "OOMKilled"),
        (failed(), ""),
        (with_conditions(Ready="False"), ""),
    ],
)
def test_the_reason_of_a_loss_is_kubernetes_own_word(document: dict[str, Any], reason: str) -> None:
    assert health_reason(document) == reason


@pytest.mark.parametrize(("phase", "exit_code", "reason"), [("Succeeded", 0, "Completed"), ("Failed", 3, "Error")])
def test_how_the_containers_of_a_deleted_pod_end_is_no_reason(phase: str, exit_code: int, reason: str) -> None:
    document = status(phase) | {"containerStatuses": [{"state": {"terminated": {"exitCode": exit_code, "reason": reason}}}]}
    assert health_reason(document) == reason
    assert health_reason(document, is_deleted=True) == ""
    evicted = document | {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}
    assert health_reason(evicted, is_deleted=True) == "EvictionByEvictionAPI"


@pytest.mark.parametrize(
    ("document", "trouble"),
    [
        (
            status("Pending", waiting="ImagePullBackOff", words="Back-off pulling image"),
            Trouble(instance="p", reason="ImagePullBackOff", message="Back-off pulling image"),
        ),
        (status("Running", waiting="CrashLoopBackOff"), Trouble(instance="p", reason="CrashLoopBackOff")),
        (status("Pending", waiting="ErrImageNeverPull"), Trouble(instance="p", reason="ErrImageNeverPull")),
        (status("Pending", waiting="SignatureValidationFailed"), Trouble(instance="p", reason="SignatureValidationFailed")),
        (status("Pending", waiting="PreStartHookError"), Trouble(instance="p", reason="PreStartHookError")),
        (status("Pending", waiting="PodInitializing"), None),
        (status("Pending", waiting="ContainerCreating"), None),
        (with_conditions("Pending", PodScheduled="False:Unschedulable"), Trouble(instance="p", reason="Unschedulable")),
        (with_conditions("Pending", PodScheduled="False:SchedulingGated"), None),
    ],
)
def test_what_keeps_a_pod_from_running_is_told_in_kubernetes_own_words(document: dict[str, Any], trouble: Trouble | None) -> None:
    assert trouble_of("p", document) == trouble


def test_a_pods_record_is_read_back() -> None:
    annotations = {
        "fairlead.dev/state": "Draining",
        "fairlead.dev/state-since": format_time(20.5),
        "fairlead.dev/draining-since": format_time(20.5),
        "fairlead.dev/created-at": format_time(10.25),
        "fairlead.dev/spec-hash": "abc",
        "fairlead.dev/failures": "3",
    }
    document = {
        "metadata": {
            "name": "p",
            "uid": "u",
            "creationTimestamp": "1970-01-01T00:00:11Z",
            "annotations": annotations,
            "labels": {"llm-d.ai/role": "both"},
        },
        "spec": {"nodeName": "n", "containers": [{"name": "engine", "ports": [{"name": "http", "containerPort": 8000}]}]},
        "status": status("Running", ready="True", waiting="CrashLoopBackOff"),
    }
    [pod] = with_engines([read_pod(document)], None, {})
    assert (pod.instance.state, pod.instance.state_since, pod.instance.draining_since) == (InstanceState.DRAINING, 20.5, 20.5)
    assert (pod.instance.created_at, pod.instance.spec_hash, pod.node, pod.restarts) == (10.25, "abc", "n", 3)
    assert pod.instance.failures == 3
    assert pod.report().address == "127.0.0.1:8000"
    [on_ipv6] = with_engines([read_pod({**document, "status": status("Running", ready="True", ip="fd00:10:244::5")})], None, {})
    assert on_ipv6.report().address == "[fd00:10:244::5]:8000"
    assert pod.report().reason == "CrashLoopBackOff"


def test_annotations_spoilt_by_hand_fall_back_to_what_the_pod_shows() -> None:
    annotations = {
        "fairlead.dev/state": "Perfect",
        "fairlead.dev/state-since": "yesterday",
        "fairlead.dev/created-at": "",
        "fairlead.dev/failures": "-1",
    }
    document = {"metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:00:11Z", "annotations": annotations}}
    pod = read_pod(document)
    assert (pod.instance.state, pod.instance.state_since, pod.instance.created_at) == (InstanceState.PENDING, 11, 11)
    assert pod.instance.failures == 0


def test_times_survive_being_written_down() -> None:
    assert parse_time(format_time(1_800_000_000.123456)) == pytest.approx(1_800_000_000.123456, abs=1e-6)


def entry(manager: str, operation: str, fields: dict[str, Any], *, time: str | None = None, subresource: str = "") -> dict[str, Any]:
    """Return an entry of managedFields. A real server writes no time for the scale subresource."""
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


def test_who_wrote_the_replicas_of_one_role_is_who_owns_them_in_the_list() -> None:
    def of_role(role: str) -> dict[str, Any]:
        return {"f:spec": {"f:roles": {f'k:{{"name":"{role}"}}': {"f:replicas": {}}}}}

    metadata = {
        "managedFields": [
            entry("gitops", "Apply", of_role("prefill"), time="2026-01-01T00:01:00Z"),
            entry("somebody", "Update", of_role("decode"), time="2026-01-01T00:00:00Z"),
        ]
    }
    assert spec_manager(metadata, "roles", "prefill", "replicas") == "gitops"
    assert spec_manager(metadata, "roles", "decode", "replicas") == "somebody"
    assert spec_manager(metadata, "roles", "decode", "template") == "gitops", "nobody owns it: the last writer"


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


def gated(labels: dict[str, str], uid: str = "u-1") -> dict[str, Any]:
    said = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "blocked"}
    return {"metadata": {"name": "p", "uid": uid, "labels": labels}, "status": {"phase": "Pending", "conditions": [said]}}


def workload(uid: str, **conditions: tuple[str, str]) -> dict[str, Any]:
    said = [{"type": kind, "status": status, "message": message} for kind, (status, message) in conditions.items()]
    return {"metadata": {"labels": {"kueue.x-k8s.io/job-uid": uid}}, "status": {"conditions": said}}


@pytest.mark.parametrize(
    ("workloads", "message"),
    [
        ([], "Kueue has not admitted it yet"),
        ([workload("another", QuotaReserved=("False", "no quota"))], "Kueue has not admitted it yet"),
        (
            [workload("u-1", QuotaReserved=("False", "insufficient unused quota for nvidia.com/gpu"))],
            "insufficient unused quota for nvidia.com/gpu",
        ),
        ([workload("u-1", QuotaReserved=("True", "reserved"), Admitted=("False", "a check waits"))], "a check waits"),
    ],
)
def test_a_pod_that_kueue_does_not_admit_waits_for_quota_with_kueues_words(workloads: list[dict[str, Any]], message: str) -> None:
    [pod] = with_words_of_kueue([read_pod(gated({"kueue.x-k8s.io/managed": "true"}))], workloads)
    assert pod.trouble == Trouble(instance="p", reason="WaitingForQuota", message=message)


def test_a_pod_that_somebody_else_keeps_from_the_scheduler_waits_for_no_quota() -> None:
    [pod] = with_words_of_kueue([read_pod(gated({"kueue.x-k8s.io/queue-name": "q"}))], [workload("u-1", QuotaReserved=("False", "no"))])
    assert pod.trouble is None


@given(counts=st.dictionaries(st.sampled_from(["engine", "proxy", "exporter", "app"]), st.integers(0, 9), min_size=1), named=st.booleans())
@examples(50)
def test_restarts_are_those_of_the_engines_container_whatever_runs_beside_it(counts: dict[str, int], named: bool) -> None:
    names = sorted(counts, key=lambda name: name != "app")  # the first container serves unless one is named engine
    metadata = {"name": "p", "annotations": {"kubectl.kubernetes.io/default-container": names[-1]} if named else {}}
    statuses = [{"name": name, "restartCount": count} for name, count in sorted(counts.items())]
    document = {"metadata": metadata, "spec": {"containers": [{"name": name} for name in names]}, "status": {"containerStatuses": statuses}}
    engine = "engine" if "engine" in counts else names[-1] if named else names[0]
    assert read_pod(document).restarts == read_pod(document).instance.restarts == counts[engine]
