"""A kubelet for tests: it runs no process, but every pod gets an address and becomes ready, and deleted pods end at
once.
"""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient

_HEARTBEAT_SECONDS = 5.0
_READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def bind(client: KubernetesClient, pod: str, node: str) -> None:
    """Bind a pod to a node. When a pod with a node is deleted, it has its grace period; a pod without one is gone at
    once.
    """
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
    client.call("POST", f"/api/v1/namespaces/default/pods/{pod}/binding", body)


@dataclass(slots=True)
class PodPhases:
    """Advances the phases of pods, except those of `frozen` pods.

    With `starts` off, new pods stay pending. With `ends` off, deleted pods stay terminating. It also reports `nodes` as
    ready.
    """

    client: KubernetesClient
    starts: bool = True
    ends: bool = True
    pause: float = 0.05
    """The seconds between two looks at all pods."""
    frozen: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    selectors: list[str] = field(default_factory=lambda: ["fairlead.dev/pool"])
    """The label selectors of the pods whose phases it advances."""
    addresses: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    ending: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Advance all pods repeatedly until `ending` is set."""
        beaten_at = -_HEARTBEAT_SECONDS
        while not self.ending.wait(self.pause):
            if time.monotonic() - beaten_at >= _HEARTBEAT_SECONDS:
                beaten_at = time.monotonic()
                for node in self.nodes.copy():
                    self.beat(node)
            for selector in self.selectors:
                for pod in self.client.call("GET", f"/api/v1/namespaces/default/pods?labelSelector={selector}")["items"]:
                    self._move(pod)

    def beat(self, node: str) -> None:
        """Report a node as ready, as its kubelet does every few seconds. A node without a report counts as lost after
        40 s.
        """
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
    """Advance all pods of the cluster until the block ends."""
    phases = PodPhases(client=client, pause=pause)
    thread = threading.Thread(target=phases.run, daemon=True)
    thread.start()
    try:
        yield phases
    finally:
        phases.ending.set()
        thread.join()
