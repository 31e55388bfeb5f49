"""A node whose kubelet has stopped reporting, as clients of the API see it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx

from processkube.testing.waiting import PATIENCE_SECONDS

MERGE = {"Content-Type": "application/merge-patch+json"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PODS = "/api/v1/namespaces/default/pods"


def patch(api: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = api.patch(path, content=json.dumps(body), headers=MERGE)
    assert answer.status_code == 200, answer.text
    changed: dict[str, Any] = answer.json()
    return changed


def add_node(api: httpx.Client, name: str) -> None:
    assert api.post("/api/v1/nodes", json={"metadata": {"name": name}}).status_code == 201
    assert api.post(LEASES, json={"metadata": {"name": name}, "spec": {"holderIdentity": name}}).status_code == 201
    report(api, name)


def report(api: httpx.Client, name: str) -> None:
    """Report as a kubelet does: the node is ready, at this time."""
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    patch(api, f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})


def add_pod(api: httpx.Client, name: str, node: str) -> None:
    body = {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}}
    assert api.post(PODS, json=body).status_code == 201
    conditions = [{"type": kind, "status": "True"} for kind in ("ContainersReady", "Ready")]
    patch(api, f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": conditions}})


def conditions(item: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in item["status"]["conditions"]}


def until(claim: Callable[[], bool], keep: Callable[[int], object] = lambda _: None, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for the condition, and call `keep` with a new number meanwhile."""
    deadline = time.monotonic() + seconds
    number = 0
    while not claim():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        keep(number := number + 1)
        time.sleep(0.05)


def test_pods_get_the_tolerations_that_every_cluster_gives_them(api: httpx.Client, core: str) -> None:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    plain = api.post(f"{core}/pods", json={"metadata": {"name": "plain"}, "spec": spec}).json()
    given = {(one["key"], one["operator"], one["effect"], one["tolerationSeconds"]) for one in plain["spec"]["tolerations"]}
    assert given == {(f"node.kubernetes.io/{why}", "Exists", "NoExecute", 300) for why in ("not-ready", "unreachable")}
    own = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]
    pod = api.post(f"{core}/pods", json={"metadata": {"name": "own"}, "spec": {**spec, "tolerations": own}}).json()
    assert [one["tolerationSeconds"] for one in pod["spec"]["tolerations"]] == [5, 300]
    everywhere = [{"operator": "Exists"}]
    pod = api.post(f"{core}/pods", json={"metadata": {"name": "all"}, "spec": {**spec, "tolerations": everywhere}}).json()
    assert pod["spec"]["tolerations"] == everywhere


def test_a_silent_node_is_lost_and_ready_again_when_its_kubelet_reports(impatient_api: httpx.Client) -> None:
    for name in ("lives", "dies"):
        add_node(impatient_api, name)
        add_pod(impatient_api, f"on-{name}", name)
    report(impatient_api, "dies")  # in case it was lost before its pod was ready: only a node that was ready takes its pods with it

    def node(name: str) -> dict[str, Any]:
        found: dict[str, Any] = impatient_api.get(f"/api/v1/nodes/{name}").json()
        return found

    def renew(number: int, name: str = "lives") -> None:
        stamp = f"2026-01-01T00:00:00.{number:06}Z"
        patch(impatient_api, f"{LEASES}/{name}", {"spec": {"renewTime": stamp}})
        report(impatient_api, name)  # in case this machine was too busy to renew in time

    until(lambda: conditions(node("dies"))["Ready"] == "Unknown", renew)
    assert conditions(impatient_api.get(f"{PODS}/on-dies").json()) == {"ContainersReady": "True", "Ready": "False"}
    until(lambda: len(node("dies").get("spec", {}).get("taints", [])) == 2, renew)
    assert {(taint["key"], taint["effect"]) for taint in node("dies")["spec"]["taints"]} == {
        ("node.kubernetes.io/unreachable", effect) for effect in ("NoSchedule", "NoExecute")
    }
    events = impatient_api.get("/api/v1/namespaces/default/events", params={"fieldSelector": "involvedObject.name=on-dies"}).json()["items"]
    assert [(event["type"], event["reason"]) for event in events] == [("Warning", "NodeNotReady")]
    until(lambda: not node("dies").get("spec", {}).get("taints"), lambda number: renew(number, "dies"))
