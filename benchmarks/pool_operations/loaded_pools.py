"""A pool of the sandbox under load, and the operations on it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
from benchmarks.pool_operations.work import Work
from prometheus_client.parser import text_string_to_metric_families

from fairlead_simulator.replay.outcomes import RequestOutcome
from fairlead_testing.running.sandbox import POOLS, RunningSandbox

ROLES = ("prefill", "decode")
PODS = "/api/v1/namespaces/default/pods"
ROLE_OBJECTS = "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepoolroles"
MERGE = "application/merge-patch+json"


class NeverCame(SystemExit):
    """An awaited event did not happen; ends the program with this message."""


def wait_until(seen: Callable[[], bool], what: str, seconds: float, pause: float = 1.0) -> None:
    """Wait until `seen` returns true, checking every `pause` seconds. Raises NeverCame."""
    deadline = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > deadline:
            raise NeverCame(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause)


@dataclass(slots=True, kw_only=True)
class LoadedPool:
    """A pool of the sandbox under load. `began` is the time of its first request, in seconds of the monotonic clock."""

    sandbox: RunningSandbox
    name: str
    manifest: Mapping[str, Any]
    rows_file: Path
    load: subprocess.Popen[str] | None = None
    began: float = 0.0
    served: list[RequestOutcome] = field(default_factory=list)
    """Every request, in the order in which the requests ended; empty until the load has ended."""

    # ── its life ──

    def create(self, numbers: Mapping[str, int]) -> None:
        """Create the pool and wait until this number of instances of each role serve."""
        answer = self.sandbox.apply_pool(self.manifest)
        if answer.status_code not in {200, 201}:
            raise NeverCame(f"pool {self.name} was refused: {answer.text[:500]}")
        if len(numbers) > 1:  # the number of a lone role is the pool's
            path = f"{ROLE_OBJECTS}/{self.name}-prefill"
            wait_until(lambda: self.sandbox.kubernetes("GET", path).status_code == 200, f"{self.name} has its roles' objects", 60)
            if not any("replicas" in role for role in self.manifest["spec"]["roles"]):
                self.scale(numbers)
        wait_until(lambda: self.settled_at(numbers), f"{self.name} is ready", 180)

    def begin_load(self, trace: Path, speed: float) -> None:
        """Start sending the trace through all routers. Rows with equal timestamps are spread until the next
        timestamp.
        """
        arguments = ["--pool", f"default/{self.name}", "--trace", str(trace), "--speed", str(speed)]
        self.load = self.sandbox.replay(*arguments, "--model", str(self.manifest["spec"]["model"]), "--rows", str(self.rows_file))

    def end_load(self) -> None:
        """Stop sending, abandon the requests in flight, and read the outcome of every request."""
        if self.load is not None:
            self.load.send_signal(signal.SIGINT)
            self.await_load(120.0)

    def await_load(self, seconds: float) -> None:
        """Wait until the load has ended, and read the outcome of every request."""
        assert self.load is not None
        self.load.communicate(timeout=seconds)
        self.load = None
        lines = self.rows_file.read_bytes().splitlines()
        self.served = [msgspec.json.decode(line, type=RequestOutcome) for line in lines]

    def kill_load(self) -> None:
        """Kill the load if it still runs."""
        if self.load is not None:
            self.load.kill()
            self.load.communicate()

    def now(self) -> float:
        """Return the seconds since the load began."""
        return time.monotonic() - self.began

    # ── what it is ──

    def instances(self) -> list[dict[str, Any]]:
        """Return all instances that are not gone, as the control API reports them."""
        found = self.sandbox.everything(f"/v1/pools/default/{self.name}/instances")
        return [one for one in found if one["state"] != "Gone"]

    def settled_at(self, numbers: Mapping[str, int], beside: Container[str] = ()) -> bool:
        """Return whether exactly this number of instances of each role exist, and all of them serve.

        Instances in `beside` do not count.
        """
        if self.sandbox.request("GET", f"/v1/pools/default/{self.name}").status_code != 200:
            return False
        found = [one for one in self.instances() if one["id"] not in beside]
        counted = {role: sum(one["role"] == role for one in found) for role in numbers}
        return counted == dict(numbers) and len(found) == sum(numbers.values()) and all(one["state"] == "Serving" for one in found)

    def pods(self) -> list[dict[str, Any]]:
        """Return the pool's pods, oldest first."""
        answer = self.sandbox.kubernetes("GET", f"{PODS}?labelSelector=fairlead.dev/pool%3D{self.name}")
        return sorted(answer.json()["items"], key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    # ── what is done to it ──

    def scale(self, numbers: Mapping[str, int]) -> None:
        """Scale roles as `kubectl scale fprole` does."""
        for role, replicas in numbers.items():
            self._patch(f"{ROLE_OBJECTS}/{self.name}-{role}/scale", {"spec": {"replicas": replicas}})

    def patch(self, spec: Mapping[str, Any]) -> None:
        """Merge this into the pool's spec."""
        self._patch(f"{POOLS}/{self.name}", {"spec": spec})

    def cordon_newest(self, role: str, count: int) -> None:
        """Cordon the `count` newest instances of a role. The operator drains cordoned instances first."""
        names = [pod["metadata"]["name"] for pod in self.pods() if pod["metadata"]["labels"]["llm-d.ai/role"] == role]
        for name in names[-count:]:
            self.annotate(name, {"fairlead.dev/cordoned": "true"})

    def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Write these annotations to a pod of the pool."""
        self._patch(f"{PODS}/{name}", {"metadata": {"annotations": annotations}})

    def is_gone(self, name: str) -> bool:
        """Return whether the instance's pod no longer exists."""
        return self.sandbox.kubernetes("GET", f"{PODS}/{name}").status_code == 404

    def is_leaving(self, name: str) -> bool:
        """Return whether the instance's drain has begun, or the instance is gone."""
        return self.is_gone(name) or "fairlead.dev/draining-since" in next(
            pod["metadata"]["annotations"] for pod in self.pods() if pod["metadata"]["name"] == name
        )

    def evict(self, name: str) -> bool:
        """Evict a pod of the pool as `kubectl drain` does. Return False if a disruption budget forbids the eviction
        now.
        """
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
        answer = self.sandbox.kubernetes("POST", f"{PODS}/{name}/eviction", body)
        if answer.status_code not in {200, 201, 404, 429}:
            raise NeverCame(f"eviction of {name}: {answer.status_code} {answer.text[:500]}")
        return answer.status_code != 429

    def _patch(self, path: str, body: Mapping[str, Any]) -> None:
        answer = self.sandbox.kubernetes("PATCH", path, body, MERGE)
        if answer.status_code != 200:
            raise NeverCame(f"{path}: {answer.status_code} {answer.text[:500]}; sent was {json.dumps(body)}")


def begin_loads(pools: Sequence[LoadedPool], trace: Path, speed: float) -> None:
    """Begin the load of all pools at once, and return when each has received its first request. Raises NeverCame.

    The times of a replay count from its first request, which is sent some time after the replay's start.
    """
    for pool in pools:
        pool.begin_load(trace, speed)
    waiting = list(pools)
    deadline = time.monotonic() + 120.0
    while waiting:
        for pool in [pool for pool in waiting if counted(pool.sandbox, "fairlead_router_submitted_total", pool=f"default/{pool.name}")]:
            pool.began = time.monotonic()
            waiting.remove(pool)
        if waiting and time.monotonic() > deadline:
            raise NeverCame(f"no request came to {waiting[0].name} within 120 s")
        time.sleep(0.1)


def counted(sandbox: RunningSandbox, metric: str, **labels: str) -> int:
    """Return the sum of a metric over all routers."""
    total = 0.0
    for page in sandbox.metrics_pages:
        for family in text_string_to_metric_families(httpx.get(page, timeout=10, trust_env=False).text):
            total += sum(sample.value for sample in family.samples if sample.name == metric and labels.items() <= sample.labels.items())
    return round(total)


def roles_of(most: int, numbers: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """Return the roles of a pool, each with at most `most` instances. `numbers` has the number of instances by role;
    None = the roles hold no numbers, because the InferencePoolRole objects hold them.
    """
    return [{"name": role, "minReplicas": 1, "maxReplicas": most, **({"replicas": numbers[role]} if numbers else {})} for role in ROLES]


def pool_manifest(name: str, work: Work, roles: list[dict[str, Any]], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a pool with these roles, whose engines compute prompts at the speed of the work."""
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "model": f"{name}/model",
            "roles": roles,
            **spec,
            "engine": {
                "type": "simulated",
                "prefillTokensPerSecond": work.prefill_tokens_per_second,
                **spec.get("engine", {}),
            },
        },
    }
