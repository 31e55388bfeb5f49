"""`kubectl fairlead`, by an unmodified kubectl, through the API server of a cluster in which the control API runs."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvicorn
import yaml

from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.fakes.public_data.world import World
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient
from processkube.testing.serving import serving

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")

SYSTEM = "/api/v1/namespaces/fairlead-system"
Ran = subprocess.CompletedProcess[str]
Kubectl = Callable[..., Ran]


@pytest.fixture(scope="module")
def control_api() -> Iterator[tuple[FakePublicApi, int]]:
    """Yield the fake control API, served over the network, and its port."""
    api = FakePublicApi(World(now=datetime.now(UTC)))
    server = uvicorn.Server(uvicorn.Config(api.app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.05)
    yield api, server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def kubeconfig(control_api: tuple[FakePublicApi, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a cluster with the control API's Service and a ready pod; its context has the namespace `research`."""
    with serving(tmp_path_factory.mktemp("cluster"), service_accounts=("shop/nobody",)) as cluster:
        client = KubernetesClient.of(str(cluster.kubeconfig))
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": "fairlead-system"}})
        labels = {"app": "api"}
        container = {"name": "api", "image": "i:1", "ports": [{"name": "http", "containerPort": control_api[1]}]}
        client.call("POST", f"{SYSTEM}/pods", {"metadata": {"name": "api", "labels": labels}, "spec": {"containers": [container]}})
        pod = client.call("GET", f"{SYSTEM}/pods/api")
        pod["status"] = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
        client.call("PUT", f"{SYSTEM}/pods/api/status", pod)
        ports = [{"name": "http", "port": 8080, "targetPort": "http"}]
        client.call("POST", f"{SYSTEM}/services", {"metadata": {"name": "fairlead-api"}, "spec": {"selector": labels, "ports": ports}})
        document = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
        document["contexts"][0]["context"]["namespace"] = "research"
        cluster.kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
        yield cluster.kubeconfig


@pytest.fixture
def kubectl(kubeconfig: Path, tmp_path: Path) -> Kubectl:
    """Return a function that runs kubectl as any user, with the plugin on PATH; `token` is Fairlead's."""
    programs = Path(sys.executable).parent

    def run(*words: str, token: str | None = "admin-token", **environment: str) -> Ran:
        variables = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig), **environment}
        if token is not None:
            variables["FAIRLEAD_TOKEN"] = token
        command = ["kubectl", *words]
        return subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)

    return run


def test_all_pools_and_one_at_a_glance_are_seen_without_a_forwarded_port(kubectl: Kubectl) -> None:
    listed = kubectl("fairlead", "status")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "default/chat" in listed.stdout and "research/code" in listed.stdout
    shown = kubectl("fairlead", "status", "default/chat")
    assert shown.stdout.startswith("default/chat: ") and INSTANCES[CHAT][0] in shown.stdout
    assert "kubectl fairlead why default/chat" in shown.stdout
    found = json.loads(kubectl("fairlead", "status", "chat", "-n", "default", "-o", "json").stdout)
    assert (found["pool"]["name"], len(found["instances"])) == ("chat", len(INSTANCES[CHAT]))


def test_a_name_is_of_the_contexts_namespace(kubectl: Kubectl) -> None:
    assert kubectl("fairlead", "status", "code").stdout.startswith("research/code: ")
    wrong = kubectl("fairlead", "status", "chat")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1) and "research/chat" in wrong.stderr


def test_a_change_is_planned_applied_and_undone(kubectl: Kubectl, control_api: tuple[FakePublicApi, int]) -> None:
    planned = kubectl("fairlead", "plan", "scale", "chat", "9", "-n", "default", "-o", "json")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert (plan["done"], plan["state"], control_api[0].book.applied) == ("planned", "open", [])
    applied = kubectl("fairlead", "apply", plan["id"], "--yes", "--reason", "more", "-o", "json")
    assert (json.loads(applied.stdout)["done"], json.loads(applied.stdout)["state"]) == ("applied", "applied")
    assert control_api[0].world.spec(CHAT)["replicas"] == 9
    undone = kubectl("fairlead", "undo", plan["id"], "--yes", "--reason", "less")
    assert undone.returncode == 0 and "`kubectl fairlead change undo " in undone.stdout and "http" not in undone.stdout
    assert control_api[0].world.spec(CHAT)["replicas"] == 8


def test_an_instance_is_drained_and_a_decision_is_read(kubectl: Kubectl, control_api: tuple[FakePublicApi, int]) -> None:
    drained = kubectl("fairlead", "drain", "default/chat", INSTANCES[CHAT][0], "--yes", "--reason", "node", "-o", "json")
    assert json.loads(drained.stdout)["done"] == "applied", drained.stderr
    [first, *_] = json.loads(kubectl("fairlead", "decisions", "list", "-o", "json").stdout)
    assert first["explanation"] in kubectl("fairlead", "logs", first["id"]).stdout
    assert kubectl("fairlead", "why", "default/chat").returncode == 0


def test_options_of_kubectl_may_stand_anywhere(kubectl: Kubectl, kubeconfig: Path) -> None:
    asked = ("status", "default/chat", "--kubeconfig", str(kubeconfig))
    assert kubectl("fairlead", *asked, KUBECONFIG="/none").returncode == 0
    wrong = kubectl("fairlead", "status", "--context=nowhere")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    assert "nowhere" in wrong.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("status", "--service", "fairlead-api"), 2, "--service: 'fairlead-api' cannot be used; write NAMESPACE/NAME:PORT"),
        (("status", "--service", "fairlead-system/none:http"), 1, 'the Kubernetes API answered 404: services "none" not found'),
        (("status", "--service", "fairlead-system/fairlead-api:1"), 1, "no service port 1 found"),
        (("status", "--context", ""), 2, "--context: '' cannot be used; write a value"),
        (("plan", "scale", "chat", "many"), 2, "REPLICAS: 'many' "),
        (("nonsense",), 2, "No such command 'nonsense'"),
    ],
)
def test_what_is_wrong_is_one_line(kubectl: Kubectl, words: tuple[str, ...], code: int, told: str) -> None:
    wrong = kubectl("fairlead", *words)
    assert wrong.stderr.count("\n") in {1, 2}, wrong.stderr  # kubectl adds `error: exit status` where a plugin fails
    assert (wrong.returncode, wrong.stdout) == (code, "") and told in wrong.stderr


def test_without_a_token_kubectls_own_is_shown_to_fairlead_and_judged_there(kubectl: Kubectl) -> None:
    """The fake has no tokens of the cluster and refuses; the real API asks the cluster."""
    refused = kubectl("fairlead", "status", token=None)
    assert refused.returncode == 1 and "--token or FAIRLEAD_TOKEN" in refused.stderr


def test_an_address_of_the_plain_command_line_is_not_taken(kubectl: Kubectl) -> None:
    assert kubectl("fairlead", "status", FAIRLEAD_URL="http://127.0.0.1:1").returncode == 0
    assert kubectl("fairlead", "status", "--url", "http://127.0.0.1:1").returncode == 1


def test_kubectl_completes_commands_and_options(kubectl: Kubectl) -> None:
    completed = kubectl("__complete", "fairlead", "sta")
    assert completed.stdout.splitlines()[0].startswith("status\t")
    assert ":4" in completed.stdout.splitlines()
    assert "ttft" not in completed.stdout
    assert "drain" in kubectl("__complete", "fairlead", "change", "instance", "d").stdout
