"""Pods: binding, grace, logs, eviction under a budget."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from processkube.testing.waiting import PATIENCE_SECONDS

MERGE = {"Content-Type": "application/merge-patch+json"}


def make(api: httpx.Client, core: str, name: str, node: str = "", **extra: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {}), **extra}
    answer = api.post(f"{core}/pods", json={"metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def set_status(api: httpx.Client, core: str, name: str, **status: Any) -> None:
    answer = api.patch(f"{core}/pods/{name}/status", content=json.dumps({"status": status}), headers=MERGE)
    assert answer.status_code == 200, answer.text


def run(api: httpx.Client, core: str, name: str) -> None:
    make(api, core, name, node="n1")
    set_status(api, core, name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])


def evict(api: httpx.Client, core: str, name: str) -> httpx.Response:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return api.post(f"{core}/pods/{name}/eviction", json=body)


def test_a_pod_needs_a_service_account_that_exists_and_pulls_images_as_it_may(api: httpx.Client, core: str, namespace: str) -> None:
    spec = {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}
    refused = api.post(f"{core}/pods", json={"metadata": {"generateName": "p-"}, "spec": spec})
    why = f'error looking up service account {namespace}/robot: serviceaccount "robot" not found'
    assert (refused.status_code, refused.json()["message"]) == (403, f'pods "p-" is forbidden: {why}')
    api.post(f"{core}/serviceaccounts", json={"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "s"}]})
    made = api.post(f"{core}/pods", json={"metadata": {"generateName": "p-"}, "spec": spec}).json()["spec"]
    assert (made["serviceAccount"], made["serviceAccountName"], made["imagePullSecrets"]) == ("robot", "robot", [{"name": "s"}])
    assert make(api, core, "a")["spec"]["serviceAccountName"] == "default"


def test_volumes_and_variables_get_their_defaults(api: httpx.Client, core: str) -> None:
    field = {"fieldRef": {"fieldPath": "metadata.name"}}
    token = {"serviceAccountToken": {"path": "token"}}
    volumes = [{"name": "a"}, {"name": "b", "projected": {"sources": [token, {"downwardAPI": {"items": [{"path": "n", **field}]}}]}}]
    container = {"name": "c", "image": "i", "env": [{"name": "N", "valueFrom": field}]}
    spec = make(api, core, "a", containers=[container], volumes=volumes)["spec"]
    assert spec["volumes"][0] == {"name": "a", "emptyDir": {}}
    of_token, of_pod = spec["volumes"][1]["projected"]["sources"]
    assert of_token["serviceAccountToken"]["expirationSeconds"] == 3600
    assert of_pod["downwardAPI"]["items"][0]["fieldRef"]["apiVersion"] == "v1"
    assert spec["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


def test_requests_are_filled_in_from_limits_in_pods_and_not_in_templates(api: httpx.Client, core: str) -> None:
    resources = {"limits": {"cpu": "1"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    pod = api.post(f"{core}/pods", json={"metadata": {"name": "a"}, "spec": spec}).json()
    assert pod["spec"]["containers"][0]["resources"] == {**resources, "requests": {"cpu": "1"}}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": spec}
    body = {"metadata": {"name": "a"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template}}
    made = api.post(core.replace("/api/v1/", "/apis/apps/v1/") + "/deployments", json=body).json()
    assert made["spec"]["template"]["spec"]["containers"][0]["resources"] == resources


def test_a_pod_is_bound_once(api: httpx.Client, core: str) -> None:
    make(api, core, "a")
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
    assert api.post(f"{core}/pods/a/binding", json=body).status_code == 201
    pod = api.get(f"{core}/pods/a").json()
    assert pod["spec"]["nodeName"] == "n1"
    assert [(one["type"], one["status"]) for one in pod["status"]["conditions"]] == [("PodScheduled", "True")]
    assert api.post(f"{core}/pods/a/binding", json=body).status_code == 409


def test_a_running_pods_spec_stays_but_for_its_images(api: httpx.Client, core: str) -> None:
    make(api, core, "a")
    change = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    strategic = {"Content-Type": "application/strategic-merge-patch+json"}
    assert api.patch(f"{core}/pods/a", content=json.dumps(change), headers=strategic).status_code == 200
    refused = api.patch(f"{core}/pods/a", content=b'{"spec":{"restartPolicy":"Never"}}', headers=strategic)
    assert refused.status_code == 422
    assert "pod updates may not change fields other than" in refused.json()["message"]


def test_a_pod_nowhere_goes_at_once_and_one_on_a_node_waits_for_the_kubelet(api: httpx.Client, core: str) -> None:
    make(api, core, "free")
    api.delete(f"{core}/pods/free")
    assert api.get(f"{core}/pods/free").status_code == 404
    make(api, core, "placed", node="n1", terminationGracePeriodSeconds=20)
    marked = api.delete(f"{core}/pods/placed").json()["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 20
    shorter = api.delete(f"{core}/pods/placed", params={"gracePeriodSeconds": "5"}).json()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < marked["deletionTimestamp"]
    assert api.delete(f"{core}/pods/placed", params={"gracePeriodSeconds": "9"}).json()["metadata"] == shorter
    assert api.delete(f"{core}/pods/placed", params={"gracePeriodSeconds": "0"}).status_code == 200
    assert api.get(f"{core}/pods/placed").status_code == 404


def test_logs_are_read_whole_by_lines_and_by_bytes(api: httpx.Client, core: str, namespace: str, log_folder: Path) -> None:
    make(api, core, "a", node="n1")
    waiting = api.get(f"{core}/pods/a/log")
    assert (waiting.status_code, "waiting to start" in waiting.json()["message"]) == (400, True)
    (log_folder / f"{namespace}_a.log").write_text("one\ntwo\nthree\n")
    assert api.get(f"{core}/pods/a/log").text == "one\ntwo\nthree\n"
    assert api.get(f"{core}/pods/a/log", params={"tailLines": "2", "container": "c"}).text == "two\nthree\n"
    assert api.get(f"{core}/pods/a/log", params={"tailLines": "0"}).text == ""
    assert api.get(f"{core}/pods/a/log", params={"limitBytes": "5"}).text == "one\nt"
    assert api.get(f"{core}/pods/a/log", params={"container": "other"}).status_code == 400
    none = api.get(f"{core}/pods/a/log", params={"previous": "true"})
    assert (none.status_code, none.json()["message"]) == (400, 'previous terminated container "c" in pod "a" not found')
    (log_folder / f"{namespace}_a.previous").write_text("zero\n")
    assert api.get(f"{core}/pods/a/log", params={"previous": "true"}).text == "zero\n"


def test_the_log_of_a_pod_is_that_of_its_init_containers_too(api: httpx.Client, core: str, namespace: str, log_folder: Path) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": "first", "image": "i"}]}
    api.post(f"{core}/pods", json={"metadata": {"name": "a"}, "spec": spec})
    (log_folder / f"{namespace}_a.log").write_text("one\n")
    asked: tuple[dict[str, str], ...] = ({"container": "first"}, {"container": "c"}, {})
    assert [api.get(f"{core}/pods/a/log", params=params).text for params in asked] == ["one\n"] * 3


def test_a_followed_log_goes_on_until_the_pod_ends(api: httpx.Client, core: str, namespace: str, log_folder: Path) -> None:
    run(api, core, "a")
    path = log_folder / f"{namespace}_a.log"
    path.write_text("one\n")
    seen: list[str] = []

    def follow() -> None:
        with api.stream("GET", f"{core}/pods/a/log", params={"follow": "true"}) as answer:
            seen.extend(answer.iter_lines())

    thread = threading.Thread(target=follow)
    thread.start()
    end = time.monotonic() + PATIENCE_SECONDS
    while not seen and time.monotonic() < end:
        time.sleep(0.01)
    with path.open("a") as file:
        file.write("two\n")
    set_status(api, core, "a", phase="Succeeded")
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert seen == ["one", "two"]


@pytest.mark.parametrize(("budget", "allowed"), [({"minAvailable": 2}, 1), ({"maxUnavailable": "34%"}, 2), ({"minAvailable": "100%"}, 0)])
def test_a_budget_limits_evictions_and_says_so(api: httpx.Client, core: str, namespace: str, budget: dict[str, Any], allowed: int) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    body = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, **budget}}
    assert api.post(path, json=body).status_code == 201
    for name in ("a", "b", "c"):
        run(api, core, name)
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and api.get(f"{path}/b").json()["status"]["currentHealthy"] != 3:
        time.sleep(0.02)
    assert api.get(f"{path}/b").json()["status"]["disruptionsAllowed"] == allowed
    answers = [evict(api, core, name) for name in ("a", "b", "c")]
    assert [answer.status_code for answer in answers] == [201] * allowed + [429] * (3 - allowed)
    refused = answers[-1].json()
    assert refused["reason"] == "TooManyRequests"
    assert refused["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert refused["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "Retry-After" not in answers[-1].headers  # with one, clients ask again by themselves and drain does not report it


def test_an_evicted_pod_says_why_it_goes(api: httpx.Client, core: str) -> None:
    make(api, core, "a", node="n1")
    old = {"metadata": {"name": "a"}, "deleteOptions": {"preconditions": {"resourceVersion": "1"}}}
    assert api.post(f"{core}/pods/a/eviction", json=old).status_code == 409
    assert "conditions" not in api.get(f"{core}/pods/a").json()["status"]
    assert api.post(f"{core}/pods/a/eviction", json={"metadata": {"name": "b"}}).status_code == 400
    assert evict(api, core, "a").status_code == 201
    pod = api.get(f"{core}/pods/a").json()
    assert pod["metadata"]["deletionTimestamp"]
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("DisruptionTarget", "True", "EvictionByEvictionAPI")


def test_a_second_deletion_shortens_the_grace_from_when_the_first_began(api: httpx.Client, core: str) -> None:
    make(api, core, "a", node="n1", terminationGracePeriodSeconds=600)
    first = api.delete(f"{core}/pods/a").json()["metadata"]
    second = api.delete(f"{core}/pods/a", params={"gracePeriodSeconds": "300"}).json()["metadata"]
    assert (first["deletionGracePeriodSeconds"], second["deletionGracePeriodSeconds"]) == (600, 300)
    times = [datetime.fromisoformat(one["deletionTimestamp"]) for one in (first, second)]
    assert (times[0] - times[1]).total_seconds() == 300
    longer = api.delete(f"{core}/pods/a", params={"gracePeriodSeconds": "400", "propagationPolicy": "Foreground"}).json()["metadata"]
    assert (longer["deletionTimestamp"], longer.get("finalizers")) == (second["deletionTimestamp"], None)
    soon = api.delete(f"{core}/pods/a", params={"gracePeriodSeconds": "-1"}).json()["metadata"]
    assert soon["deletionGracePeriodSeconds"] == 1  # not 0, which would not wait for the kubelet


def test_a_pod_that_never_ran_is_evicted_whatever_the_budget(api: httpx.Client, core: str, namespace: str) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    api.post(path, json={"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}})
    make(api, core, "a", node="n1")
    assert evict(api, core, "a").status_code == 201


def test_what_needs_a_stream_into_a_container_is_declined(api: httpx.Client, core: str) -> None:
    make(api, core, "a")
    assert api.post(f"{core}/pods/a/exec").status_code == 501
    assert api.get(f"{core}/pods/a/nonsense").status_code == 404
