"""`fairlead up --chart` runs the chart's processes. The tests follow one release through its life."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead_sandbox.chart.values import NAMESPACE, RELEASE, machine_values
from fairlead_sandbox.process_table import ProcessCounts
from fairlead_testing.running import helm_program
from fairlead_testing.running.helm import Helm, HelmRefused, helm_is_installed
from fairlead_testing.running.sandbox import POOLS, PYTHONPATH, ROOT, RunningSandbox, running_sandbox, until
from fairlead_testing.running.shown_commands import DONE, checkout, failures, run_commands
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.kubelet.enclosing import can_enclose

pytestmark = [
    pytest.mark.skipif(not helm_is_installed(), reason="Helm's library is not installed: run scripts/ensure-helm.sh"),
    pytest.mark.skipif(not can_enclose(), reason="this machine forbids user and mount namespaces"),
    pytest.mark.skipif("FAIRLEAD_KUBECONFIG" in os.environ, reason="--chart brings its own Kubernetes API; on a cluster Helm installs"),
]

POOL = {
    "apiVersion": "fairlead.dev/v1alpha1",
    "kind": "InferencePool",
    "metadata": {"name": "chat", "namespace": "default"},
    "spec": {
        "model": "tiny",
        "replicas": 2,
        "engine": {"type": "simulated", "simulated": {"timeScale": 20}},
        "routing": {"policy": "fairlead"},
    },
}
LEFT = {
    ("CustomResourceDefinition", "", "inferencepoolroles.fairlead.dev"),
    ("CustomResourceDefinition", "", "inferencepools.fairlead.dev"),
    ("Lease", NAMESPACE, "fairlead-operator"),
    ("Namespace", "", NAMESPACE),
    ("PersistentVolumeClaim", NAMESPACE, "data-fairlead-postgres-0"),
    ("Secret", NAMESPACE, "fairlead-postgres"),
}
"""Objects that remain of a deleted release by docs/install.md, and the namespace, which is never uninstalled."""
PODS = 5
"""The release's pods by process: one API, one operator, two routers, the database."""
OF_NAMESPACES = ("ServiceAccount", "default")
"""Objects that every namespace has."""
OF_THE_NODE = {("Lease", "kube-node-lease", "sandbox"), ("Node", "", "sandbox")}


@pytest.fixture(scope="module")
def chart_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    with running_sandbox(tmp_path_factory.mktemp("chart"), "--chart") as running:
        yield running


@pytest.fixture(scope="module")
def gateway_key(chart_sandbox: RunningSandbox) -> str:
    """Return the gateway key that the summary shows."""
    (line,) = [line for line in chart_sandbox.note.summary.splitlines() if "export FAIRLEAD_GATEWAY_KEY=" in line]
    return line.partition("=")[2].strip()


def pods(sandbox: RunningSandbox) -> dict[str, dict[str, Any]]:
    """Return the release's pods, by name."""
    items = sandbox.kubernetes("GET", f"/api/v1/namespaces/{NAMESPACE}/pods").json()["items"]
    return {item["metadata"]["name"]: item for item in items}


def uids(sandbox: RunningSandbox) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in pods(sandbox).items()}


def is_whole(sandbox: RunningSandbox) -> bool:
    """Return whether the release has all pods that it wants, and all are ready."""
    now = pods(sandbox).values()
    conditions = [{one["type"]: one["status"] for one in pod["status"].get("conditions", ())} for pod in now]
    return len(now) == PODS and all(one.get("Ready") == "True" for one in conditions)


def everything(sandbox: RunningSandbox) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return every object of the cluster except Events, by kind, namespace and name."""
    groups = sandbox.kubernetes("GET", "/apis").json()["groups"]
    found = {}
    for path in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)):
        for resource in sandbox.kubernetes("GET", path).json()["resources"]:
            if "/" in resource["name"] or "list" not in resource["verbs"] or resource["kind"] == "Event":
                continue
            for item in sandbox.kubernetes("GET", f"{path}/{resource['name']}").json()["items"]:
                found[resource["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]] = item
    return found


def engines(sandbox: RunningSandbox, pool: str) -> dict[str, str]:
    """Return the address and uid of each of the pool's pods."""
    items = sandbox.kubernetes("GET", f"/api/v1/namespaces/default/pods?labelSelector=fairlead.dev/pool={pool}").json()["items"]
    return {f"{item['status']['podIP']}:8000": item["metadata"]["uid"] for item in items}


def ask_engine(address: str) -> int:
    """Return the status of a request sent to an engine directly."""
    body = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    return httpx.post(f"http://{address}/v1/chat/completions", json=body, timeout=PATIENCE_SECONDS, trust_env=False).status_code


def test_the_charts_pods_run_as_the_users_that_it_says(chart_sandbox: RunningSandbox) -> None:
    users: dict[str, list[tuple[int, str]]] = {}
    for pod in pods(chart_sandbox).values():
        (status,) = pod["status"]["containerStatuses"]
        pid = status["containerID"].partition("://")[2].partition("-")[0]
        inside, _, _ = Path(f"/proc/{pid}/uid_map").read_text().split()
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        users.setdefault(component, []).append((int(inside), pod["metadata"]["ownerReferences"][0]["kind"]))
    assert users == {
        "api": [(10001, "ReplicaSet")],
        "operator": [(10001, "ReplicaSet")],
        "router": [(10001, "StatefulSet")] * 2,
        "postgres": [(999, "StatefulSet")],
    }
    running = {process.name for process in chart_sandbox.note.processes if process.pid is not None}
    assert running == {"kubernetes-api", "kubelet", "service-proxy"}


def test_the_ten_minutes_pass_and_the_gateway_wants_its_key(chart_sandbox: RunningSandbox, gateway_key: str) -> None:
    assert chart_sandbox.apply_pool(POOL).status_code in {200, 201}
    chart_sandbox.until_ready("chat", 2)
    (gateway,) = chart_sandbox.routers

    def ask(**headers: str) -> httpx.Response:
        body = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
        url = f"{gateway}/v1/chat/completions"
        return httpx.post(url, json=body, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False)

    assert ask().status_code == 401
    answer = ask(authorization=f"Bearer {gateway_key}")
    assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 4)

    (link,) = [line.strip() for line in chart_sandbox.note.summary.splitlines() if "/login?token=" in line]
    with httpx.Client(follow_redirects=True, timeout=PATIENCE_SECONDS, trust_env=False) as browser:
        assert browser.get(link).status_code == 200
        assert "chat" in browser.get(f"{chart_sandbox.url('api')}/pools/default/chat").text

    assert chart_sandbox.scale_pool("chat", 3).status_code == 200
    chart_sandbox.until_ready("chat", 3)
    actions = {entry["action"] for entry in chart_sandbox.everything("/v1/audit")}
    assert {"pool.created", "operator.ScalingUp"} <= actions


def test_upgrades_and_a_rollback_lose_no_request(chart_sandbox: RunningSandbox, gateway_key: str, tmp_path: Path) -> None:
    """Each upgrade replaces every pod except the database's; the last one is faulty, and Helm rolls it back."""
    output = tmp_path / "replay.json"
    of_the_pool = ("--pool", "default/chat", "--model", "tiny", "--token", gateway_key)
    replay = chart_sandbox.replay(*of_the_pool, "--generate", "conversation", "--rate", "4", "--loop", "--json", str(output))
    helm = Helm(chart_sandbox.kubeconfig, NAMESPACE)
    ports = chart_sandbox.note.ports
    values = machine_values(ProcessCounts(), api_port=ports["api"], gateway_port=ports["router"])

    def is_replaced(before: dict[str, str]) -> bool:
        stayed = {name for name, uid in uids(chart_sandbox).items() if before.get(name) == uid}
        return stayed == {"fairlead-postgres-0"} and is_whole(chart_sandbox)

    before_the_test = helm.releases()[0].get("config", {}).get("log", {}).get("format", "text")
    forms = ("text", "json") if before_the_test == "json" else ("json", "text")  # each upgrade changes something
    for form in forms:
        before = uids(chart_sandbox)
        helm.upgrade(RELEASE, {**values, "log": {"format": form}})
        until(lambda before=before: is_replaced(before), f"every pod writes {form}", 3 * PATIENCE_SECONDS)  # type: ignore[misc]
    faulty = {**values, "log": {"format": forms[-1]}, "api": {**values["api"], "image": {"repository": "fairlead/misspelt"}}}
    with pytest.raises(HelmRefused, match="Deployment/fairlead-system/fairlead-api not ready"):
        helm.upgrade(RELEASE, faulty, wait=True, rollback_on_failure=True, timeout=60)
    until(lambda: is_whole(chart_sandbox), "every pod is as before the fault")
    assert helm.releases()[0]["info"]["status"] == "deployed"
    replay.send_signal(signal.SIGINT)
    said, _ = replay.communicate(timeout=PATIENCE_SECONDS)
    result = json.loads(output.read_text())
    assert (result["failed"], result["rejected"]) == (0, 0), said[-2000:]
    assert result["served"] > 40


def test_a_release_that_goes_leaves_what_the_docs_say_and_engines_that_serve(chart_sandbox: RunningSandbox) -> None:
    helm = Helm(chart_sandbox.kubeconfig, NAMESPACE)
    if helm.releases():  # a second try waits for what the first one has begun
        serving = engines(chart_sandbox, "chat")
        helm.uninstall(RELEASE)
        until(lambda: not pods(chart_sandbox), "the release's pods are gone")
        assert engines(chart_sandbox, "chat") == serving
        assert [ask_engine(address) for address in serving] == [200] * len(serving) != []
        finalized = chart_sandbox.kubernetes("PATCH", f"{POOLS}/chat", {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        assert finalized.status_code == 200
        chart_sandbox.delete_pool("chat")

    def left() -> set[tuple[str, str, str]]:
        found = everything(chart_sandbox).keys() - OF_THE_NODE
        return {one for one in found if one[::2] != OF_NAMESPACES and (one[0] != "Namespace" or one[2] == NAMESPACE)}

    until(lambda: left() <= LEFT, "all else goes")
    assert left() == LEFT


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_the_commands_of_its_page(chart_sandbox: RunningSandbox, tmp_path: Path) -> None:
    """The commands of `docs/on-my-cluster.md`, from the installation to the end of the release.

    The test begins with only the objects that the deleted release of the test before has left.
    """
    ports = chart_sandbox.note.ports
    values = machine_values(ProcessCounts(), api_port=ports["api"], gateway_port=ports["router"])
    variables = {
        "KUBECONFIG": str(chart_sandbox.kubeconfig),
        "HELM_MACHINE_VALUES": json.dumps(values),
        "PYTHONPATH": f"{PYTHONPATH}:{ROOT / 'tests' / 'support'}",
    }
    stand_ins = {
        "make .venv/ready": "source .venv/bin/activate",
        "kubectl -n fairlead-system port-forward": DONE,  # this cluster has none; its load balancer is asked
    }
    folder = checkout(tmp_path / "checkout")
    ran = run_commands(
        "docs/on-my-cluster.md",
        folder,
        stand_ins,
        {"http://127.0.0.1:8000": chart_sandbox.routers[0]},
        helm_program.written_to(tmp_path / "programs"),
        **variables,
    )
    assert failures(ran) == []
    said = {one.command.partition("#")[0].strip(): one.said for one in ran}
    assert '"completion_tokens"' in next(text for command, text in said.items() if command.startswith("curl"))
    assert "chat" in said["kubectl fairlead status chat"]
