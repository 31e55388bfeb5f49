"""A test's kubelet: no process runs, but every pod gets an address and becomes ready, and deleted pods end at once."""

import itertools
import tempfile
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import requests
import yaml

from fairlead_testing.waiting import PATIENCE_SECONDS

_HEARTBEAT_SECONDS = 5.0
_READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@dataclass(frozen=True, slots=True)
class KubernetesClient:
    """Plain HTTP to a Kubernetes API by a kubeconfig file with a token or client certificate."""

    server: str
    session: requests.Session

    @staticmethod
    def of(kubeconfig: str) -> "KubernetesClient":
        document = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
        session = requests.Session()
        session.trust_env = False
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        session.verify = cluster.get("certificate-authority") or _written(cluster["certificate-authority-data"], kubeconfig, "ca.crt")
        if "token" in user:
            session.headers["Authorization"] = f"Bearer {user['token']}"
        else:
            certificate = user.get("client-certificate") or _written(user["client-certificate-data"], kubeconfig, "client.crt")
            session.cert = (certificate, user.get("client-key") or _written(user["client-key-data"], kubeconfig, "client.key"))
        return KubernetesClient(server=cluster["server"], session=session)

    def call(self, method: str, path: str, body: Any = None, *, content: str = "application/json") -> dict[str, Any]:
        """One request; raises AssertionError with the server's message when it is refused."""
        response = self.session.request(method, self.server + path, json=body, headers={"Content-Type": content}, timeout=PATIENCE_SECONDS)
        assert response.ok, f"{method} {path}: {response.status_code} {response.text[:500]}"
        answer: dict[str, Any] = orjson.loads(response.content)
        return answer

    def merge(self, path: str, body: Any) -> dict[str, Any]:
        """A JSON merge patch."""
        return self.call("PATCH", path, body, content="application/merge-patch+json")


def _written(data: str, kubeconfig: str, name: str) -> str:
    path = Path(tempfile.mkdtemp(prefix="fairlead-test-")) / f"{Path(kubeconfig).stem}.{name}"
    path.touch(mode=0o600)
    path.write_bytes(b64decode(data))
    return str(path)


def bind(client: KubernetesClient, pod: str, node: str) -> None:
    """Give a pod a node: one without is gone at once when it is deleted, one with a node has its grace period."""
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
    client.call("POST", f"/api/v1/namespaces/default/pods/{pod}/binding", body)


@dataclass(slots=True)
class PodPhases:
    """Moves pods on. `frozen` pods are left as they are; with `starts` off, new pods stay pending, with `ends`
    off, deleted ones stay terminating. It is the kubelet of `nodes` too, which stay ready by that."""

    client: KubernetesClient
    starts: bool = True
    ends: bool = True
    pause: float = 0.05
    """Seconds between two looks at all pods."""
    frozen: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    addresses: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    ending: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until `ending` is set: look at all pods again and again."""
        beaten_at = -_HEARTBEAT_SECONDS
        while not self.ending.wait(self.pause):
            if time.monotonic() - beaten_at >= _HEARTBEAT_SECONDS:
                beaten_at = time.monotonic()
                for node in self.nodes.copy():
                    self.beat(node)
            for pod in self.client.call("GET", "/api/v1/namespaces/default/pods?labelSelector=fairlead.dev/pool")["items"]:
                self._move(pod)

    def beat(self, node: str) -> None:
        """Say that a node is ready, as its kubelet does every few seconds; a silent one is lost after 40 s."""
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now}
        self.client.session.patch(
            f"{self.client.server}/api/v1/nodes/{node}/status",
            json={"status": {"conditions": [condition]}},
            headers={"Content-Type": "application/merge-patch+json"},
            timeout=PATIENCE_SECONDS,
        )

    def _move(self, pod: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        if pod["metadata"].get("deletionTimestamp"):
            if not self.ends:
                return
            self.client.session.delete(self.client.server + path, json={"gracePeriodSeconds": 0}, timeout=PATIENCE_SECONDS)
        elif pod["metadata"]["name"] not in self.frozen and self.starts and not (pod.get("status") or {}).get("podIP"):
            status = {"phase": "Running", "podIP": f"127.50.0.{next(self.addresses)}", "conditions": [_READY]}
            self.client.session.patch(
                self.client.server + path + "/status",
                json={"status": status},
                headers={"Content-Type": "application/merge-patch+json"},
                timeout=PATIENCE_SECONDS,
            )


@contextmanager
def running_pod_phases(client: KubernetesClient, pause: float = 0.05) -> Iterator[PodPhases]:
    """Moves all pods of the cluster until the block ends."""
    phases = PodPhases(client=client, pause=pause)
    thread = threading.Thread(target=phases.run, daemon=True)
    thread.start()
    try:
        yield phases
    finally:
        phases.ending.set()
        thread.join()
