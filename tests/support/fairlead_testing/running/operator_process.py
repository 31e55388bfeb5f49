"""The operator as a real process against a real HTTP Kubernetes API, with a fake control API and a fake kubelet."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from fairlead.pool_states import PoolState
from fairlead.tables import PoolKey
from fairlead_testing.fakes.system_api import OPERATOR_TOKEN, FakeSystemApi
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.pod_phases import PodPhases
from processkube.testing.clients import KubernetesClient

Value = TypeVar("Value")

ROOT = Path(__file__).resolve().parents[4]
KUBECONFIG_VARIABLE = "FAIRLEAD_TEST_KUBECONFIG"
"""The environment variable with the kubeconfig of a cluster for the tests of operator, definitions, workloads and
chart.

Never name a cluster in production: these tests change and delete its objects.
"""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools"
ROLES = "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepoolroles"
STAYS_SECONDS = 0.2
"""The pause between two looks at a state that lasts once it is reached.

Each look costs the operator's cluster a request. Looks every 0.03 s took more processor time than the operator.
"""


def eventually(look: Callable[[], Value | None], wish: str, seconds: float = PATIENCE_SECONDS, pause: float = 0.03) -> Value:
    """Return the first truthy value of `look`. Raises AssertionError with the wish if there is none within `seconds`.

    The default `pause` between two looks is short enough to see passing states; a lasting state can be looked at less
    often.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = look()
        if value:
            return value
        assert time.monotonic() < deadline, f"it never came to this: {wish}"
        time.sleep(pause)


def install_definitions(client: KubernetesClient) -> None:
    """Server-side apply our CRDs and wait until they are served."""
    for file in sorted((ROOT / "crds").glob("*.yaml")):
        definition = yaml.safe_load(file.read_text(encoding="utf-8"))
        path = f"{DEFINITIONS}/{definition['metadata']['name']}?fieldManager=fairlead-tests&force=true"
        client.call("PATCH", path, definition, content="application/apply-patch+yaml")
    for served in (POOLS, ROLES):
        eventually(lambda path=served: client.session.get(client.server + path, timeout=PATIENCE_SECONDS).ok, "the CRD is served")  # type: ignore[misc]


def remove_ours(client: KubernetesClient) -> None:
    """Delete every pool and role of the namespace, even with finalizers, because the next tests use the same names."""
    for kind in (POOLS, ROLES):
        for item in client.call("GET", kind)["items"]:
            path = f"{kind}/{item['metadata']['name']}"
            client.merge(path, {"metadata": {"finalizers": None}})
            client.session.delete(client.server + path, timeout=PATIENCE_SECONDS)


def skip_where_kubelets_run(client: KubernetesClient) -> None:
    """Skip the test if a node is Ready.

    A node that a sandbox left in the cluster does not count, because it has no kubelet and so is not Ready.
    """
    nodes = [
        node["metadata"]["name"]
        for node in client.call("GET", "/api/v1/nodes")["items"]
        if any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", ()))
    ]
    if nodes:
        pytest.skip(f"the cluster has nodes ({', '.join(nodes[:3])}), whose kubelets would run the pods pretended here")


@contextmanager
def running_kubernetes_api(folder: Path) -> Iterator[str]:
    """Yield the kubeconfig of a Kubernetes API with our CRDs: the one that the environment names, or the sandbox's."""
    given = os.environ.get(KUBECONFIG_VARIABLE)
    if given:
        client = KubernetesClient.of(given)
        install_definitions(client)
        try:
            yield given
        finally:
            remove_ours(client)
        return
    kubeconfig = folder / "kubeconfig"
    command = [
        sys.executable,
        "-m",
        "processkube.kubernetes_api.main",
        "--state-dir",
        str(folder),
        "--host",
        "127.0.0.1",
        "--port",
        "0",
    ]
    with (folder / "kubernetes.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            eventually(
                lambda: process.poll() is None and b"ready" in (folder / "kubernetes.log").read_bytes(), "the Kubernetes API is ready"
            )
            install_definitions(KubernetesClient.of(str(kubeconfig)))
            yield str(kubeconfig)
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE_SECONDS)


def health(port: int, path: str) -> tuple[int, dict[str, str]] | None:
    """Return status and document of a health endpoint; None if no process listens on the port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return None


_PATIENT = """
import sys
from fairlead_operator.settings import Pace
Pace.__init__.__kwdefaults__["finalizing_drain"] = float(sys.argv.pop())
from fairlead_operator.main import main
main(prog_name="python -m fairlead_operator.main")
"""


@dataclass(slots=True)
class OperatorProcess:
    """The operator's process, which a test can start and kill."""

    kubeconfig: str
    api_url: str
    log: Path
    settings: dict[str, str] = field(default_factory=dict)
    """Additional environment variables."""
    finalizing_drain: float | None = None
    """The longest drain of a deleted pool in seconds, for tests that observe it; None for the usual 15 s. No setting
    changes it.
    """
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {
            **os.environ,
            "KUBECONFIG": self.kubeconfig,
            "FAIRLEAD_API_URL": self.api_url,
            "FAIRLEAD_API_TOKEN": OPERATOR_TOKEN,
            "FAIRLEAD_OPERATOR_RESYNC_SECONDS": "2",
            "FAIRLEAD_OPERATOR_IDENTITY": "under-test",
            **self.settings,
        }
        with self.log.open("ab") as log:
            started = ["-m", "fairlead_operator.main"] if self.finalizing_drain is None else ["-c", _PATIENT, str(self.finalizing_drain)]
            command = [sys.executable, *started]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(timeout=PATIENCE_SECONDS)

    def drain_patiently(self) -> None:
        """Restart the operator with so long a drain for deleted pools that it ends only when their requests have
        ended.
        """
        self.kill()
        self.finalizing_drain = PATIENCE_SECONDS
        self.start()

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=PATIENCE_SECONDS)


@dataclass(slots=True)
class Stage:
    """The objects that a test of the operator uses."""

    client: KubernetesClient
    api: FakeSystemApi
    phases: PodPhases
    operator: OperatorProcess
    made: list[str] = field(default_factory=list)

    def told_state(self, pool: str) -> PoolState | None:
        """Return the newest state of `namespace/name` that the operator reported; None if it reported none."""
        return self.api.state.states.get(PoolKey.parse(pool))

    def told_reasons(self) -> list[str]:
        """Return the reasons of all events that the operator reported, in order."""
        return [event.reason for event in self.api.state.events]

    def told_transitions(self, instance: str) -> list[str]:
        """Return the states in which the operator reported an instance, in order, without repetitions."""
        return list(self.api.state.transitions.get(instance, ()))

    def apply(self, name: str, **spec: Any) -> dict[str, Any]:
        """Create a pool of two replicas; `spec` overrides its fields."""
        body = {
            "apiVersion": "fairlead.dev/v1alpha1",
            "kind": "InferencePool",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"model": f"model-{name}", "replicas": 2, **spec},
        }
        self.made.append(name)
        return self.client.call("POST", POOLS, body)

    def edit(self, name: str, spec: dict[str, Any]) -> None:
        self.client.merge(f"{POOLS}/{name}", {"spec": spec})

    def pool(self, name: str) -> dict[str, Any] | None:
        response = self.client.session.get(f"{self.client.server}{POOLS}/{name}", timeout=PATIENCE_SECONDS)
        document: dict[str, Any] | None = response.json() if response.ok else None
        return document

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = (self.pool(name) or {}).get("status") or {}
        return status

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        return next((item for item in self.status(name).get("conditions") or [] if item["type"] == kind), {})

    def pods(self, name: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.client.call("GET", f"/api/v1/namespaces/default/pods?labelSelector=fairlead.dev/pool={name}")[
            "items"
        ]
        return items

    def names(self, name: str) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods(name)}

    def marked(self, name: str) -> set[str]:
        """Return the names of the pool's pods that have the drain annotation."""
        return {
            pod["metadata"]["name"] for pod in self.pods(name) if "fairlead.dev/draining-since" in pod["metadata"].get("annotations", {})
        }

    def kubernetes_events(self, name: str) -> set[str]:
        items = self.client.call("GET", "/api/v1/namespaces/default/events")["items"]
        return {item["reason"] for item in items if item["involvedObject"]["name"] == name}

    def settle(self, name: str, replicas: int) -> None:
        """Wait until the pool has exactly this many instances, all of them serve, and its status says so."""
        eventually(lambda: self._is_settled(name, replicas), f"{name} settles at {replicas} instances", pause=STAYS_SECONDS)

    def _is_settled(self, name: str, replicas: int) -> bool:
        pool = self.pool(name) or {}
        status = pool.get("status") or {}
        return (
            status.get("observedGeneration") == pool["metadata"]["generation"]
            and status.get("serving") == replicas == len(self.pods(name))
            and self.condition(name, "Ready").get("status") == "True"
            and self.condition(name, "Progressing").get("status") == "False"
        )

    def delete(self, name: str) -> None:
        self.client.call("DELETE", f"{POOLS}/{name}", {"propagationPolicy": "Background"})
