"""JSON paths, ages and cells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from processkube.kubernetes_api.objects.objects import timestamp
from processkube.kubernetes_api.serving.ages import age_since, duration_text
from processkube.kubernetes_api.serving.builtin_columns import BUILTIN_COLUMNS
from processkube.kubernetes_api.serving.discovery import version_rank
from processkube.kubernetes_api.serving.json_paths import find, parse

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ITEM = {
    "metadata": {"labels": {"app.dev/name": "x"}},
    "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}], "ports": [1, 2]},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        ('.status.conditions[?(@.type != "Ready")].status', ["False"]),
        (".status.conditions[*].type", ["A", "Ready"]),
        (".status.ports[-1]", [2]),
        (".status.ports[7]", []),
        (r".metadata.labels.app\.dev/name", ["x"]),
        (".metadata.labels['app.dev/name']", ["x"]),
        ("{.status.ports[0]}", [1]),
        ("..type", ["A", "Ready"]),
        (".nothing.here", []),
    ],
)
def test_paths_find_what_kubectl_finds(path: str, expected: list[Any]) -> None:
    assert find(ITEM, path) == expected


def test_a_path_that_cannot_be_followed_says_where() -> None:
    with pytest.raises(ValueError, match="not understood at"):
        parse(".a[?(@.b>1)]")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (12000, "3h20m"),
        (28800, "8h"),
        (172800, "2d"),
        (180000, "2d2h"),
        (864000, "10d"),
        (-5, "<invalid>"),
    ],
)
def test_ages_are_short(seconds: int, text: str) -> None:
    assert duration_text(seconds) == text
    assert age_since(timestamp(NOW - timedelta(seconds=seconds)), NOW) == text


@pytest.mark.parametrize("text", ["yesterday", "2025-12-31", "2025-12-31T00:00:00"])
def test_the_age_of_what_is_no_moment_is_invalid(text: str) -> None:
    assert age_since(text, NOW) == "<invalid>"


def test_versions_are_preferred_as_kubernetes_prefers_them() -> None:
    versions = ["v1alpha1", "v1beta2", "v1", "other", "v2", "v1beta10"]
    assert sorted(versions, key=version_rank) == ["v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "other"]


def cells(kind: str, item: dict[str, Any]) -> list[Any]:
    return [column.cell({"metadata": {}, "kind": kind, **item}, NOW) for column in BUILTIN_COLUMNS[kind]]


def test_a_pods_cells_tell_its_state() -> None:
    waiting = {"ready": False, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    waiting["lastState"] = {"terminated": {"finishedAt": timestamp(NOW - timedelta(seconds=10))}}
    pod = {
        "spec": {"containers": [{}], "nodeName": "n1"},
        "status": {"phase": "Running", "podIP": "1.2.3.4", "containerStatuses": [waiting]},
    }
    assert cells("Pod", pod) == ["0/1", "CrashLoopBackOff", "3 (10s ago)", "<unknown>", "1.2.3.4", "n1", "<none>", "<none>"]
    pod["metadata"] = {"deletionTimestamp": timestamp(NOW)}
    assert cells("Pod", pod)[1] == "Terminating"


@pytest.mark.parametrize("kind", sorted(BUILTIN_COLUMNS))
def test_an_empty_object_of_any_kind_has_its_cells(kind: str) -> None:
    assert len(cells(kind, {})) == len(BUILTIN_COLUMNS[kind])


def shown_cells(kind: str, **item: Any) -> list[Any]:
    """Return the cells of an object of this kind, without those that only `-o wide` shows, and without the age."""
    whole = {"kind": kind, "metadata": {}, **item}
    return [column.cell(whole, NOW) for column in BUILTIN_COLUMNS[kind] if not column.priority and column.name != "Age"]


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ([{"waiting": {"reason": "PodInitializing"}}, {"waiting": {"reason": "PodInitializing"}}], "Init:0/2"),
        ([{"terminated": {"exitCode": 0, "reason": "Completed"}}, {"running": {}}], "Init:1/2"),
        ([{"terminated": {"exitCode": 3}}, {}], "Init:ExitCode:3"),
        ([{"terminated": {"exitCode": 3, "reason": "Error"}}, {}], "Init:Error"),
        ([{"waiting": {"reason": "CrashLoopBackOff"}}, {}], "Init:CrashLoopBackOff"),
        ([{"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 0}}], "ContainerCreating"),
    ],
)
def test_a_pod_whose_first_containers_run_says_how_far_they_are(states: list[dict[str, Any]], text: str) -> None:
    spec = {"containers": [{"name": "c"}], "initContainers": [{"name": f"i{number}"} for number in range(2)]}
    first = [{"name": f"i{number}", "state": state} for number, state in enumerate(states)]
    then = [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    status: dict[str, Any] = {"phase": "Pending", "initContainerStatuses": first, "containerStatuses": then}
    assert shown_cells("Pod", spec=spec, status=status)[:2] == ["0/1", text]
    status["conditions"] = [{"type": "Initialized", "status": "True"}]
    assert shown_cells("Pod", spec=spec, status=status)[1] == "ContainerCreating"


COMPLETED = {"terminated": {"exitCode": 0, "reason": "Completed"}}
READY = [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("states", "conditions", "text"),
    [
        ([({"running": {}}, True), (COMPLETED, False)], READY, "Running"),
        ([({"running": {}}, True), (COMPLETED, False)], [], "NotReady"),
        ([(COMPLETED, False), ({"terminated": {"exitCode": 1, "reason": "Error"}}, False)], [], "Error"),
        ([({"terminated": {"exitCode": 137, "signal": 9}}, False)], [], "Signal:9"),
        ([(COMPLETED, False)], [], "Completed"),
        ([], [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}], "SchedulingGated"),
    ],
)
def test_what_one_container_says_is_weighed_against_the_others(states: list[tuple[Any, bool]], conditions: list[Any], text: str) -> None:
    containers = [{"name": f"c{number}", "state": state, "ready": ready} for number, (state, ready) in enumerate(states)]
    status = {"phase": "Running", "containerStatuses": containers, "conditions": conditions}
    assert shown_cells("Pod", spec={"containers": containers}, status=status)[1] == text


@pytest.mark.parametrize(("phase", "text"), [("Running", "Terminating"), ("Succeeded", "Completed"), ("Failed", "Failed")])
def test_a_pod_that_ended_keeps_its_word_while_it_is_deleted(phase: str, text: str) -> None:
    status: dict[str, Any] = {"phase": phase}
    if phase != "Failed":
        status["containerStatuses"] = [{"name": "c", "state": COMPLETED}]
    assert shown_cells("Pod", metadata={"deletionTimestamp": timestamp(NOW)}, spec={"containers": [{}]}, status=status)[1] == text


def test_a_sidecar_counts_among_the_containers_and_their_restarts() -> None:
    spec = {"containers": [{"name": "c"}], "initContainers": [{"name": "once"}, {"name": "side", "restartPolicy": "Always"}]}
    first = [
        {"name": "once", "restartCount": 5, "state": COMPLETED},
        {"name": "side", "restartCount": 2, "started": True, "ready": True, "state": {"running": {}}},
    ]
    then = [{"name": "c", "restartCount": 1, "ready": True, "state": {"running": {}}}]
    status: dict[str, Any] = {"phase": "Running", "initContainerStatuses": first, "containerStatuses": then}
    assert shown_cells("Pod", spec=spec, status=status) == ["2/2", "Running", "3"]
    first[1] |= {"started": False, "ready": False}
    assert shown_cells("Pod", spec=spec, status=status) == ["0/2", "Init:1/2", "7"]


def test_a_job_says_whether_it_ended_and_how_long_it_took() -> None:
    start = timestamp(NOW - timedelta(minutes=5))
    assert shown_cells("Job", spec={"completions": 2}) == ["Running", "0/2", ""]
    assert shown_cells("Job", spec={"parallelism": 3}, status={"startTime": start, "succeeded": 1}) == ["Running", "1/1 of 3", "5m"]
    ended = {"startTime": start, "completionTime": timestamp(NOW - timedelta(minutes=4)), "succeeded": 1}
    done = {**ended, "conditions": [{"type": "Complete", "status": "True"}]}
    assert shown_cells("Job", spec={"completions": 1}, status=done) == ["Complete", "1/1", "60s"]
    failed = {"conditions": [{"type": "Suspended", "status": "False"}, {"type": "Failed", "status": "True"}]}
    assert shown_cells("Job", spec={"completions": 1}, status=failed)[0] == "Failed"
    assert shown_cells("Job", spec={"completions": 1}, metadata={"deletionTimestamp": start})[0] == "Terminating"


def test_a_claim_and_an_ingress_are_shown_as_the_real_server_shows_them() -> None:
    bound = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}
    assert shown_cells("PersistentVolumeClaim", spec={"storageClassName": "fast"}, status=bound) == [
        "Bound",
        "",
        "1Gi",
        "RWO,RWX",
        "fast",
        "<unset>",
    ]
    assert shown_cells("Ingress", spec={}) == ["<none>", "*", "", "80"]
    rules = [{"host": "a"}, {}, {"host": "b"}, {"host": "c"}, {"host": "d"}]
    status = {"loadBalancer": {"ingress": [{"hostname": "lb"}, {"ip": "10.0.0.1"}]}}
    wanted = ["nginx", "a,b,c + 2 more...", "10.0.0.1,lb", "80, 443"]
    assert shown_cells("Ingress", spec={"ingressClassName": "nginx", "rules": rules, "tls": [{}]}, status=status) == wanted
