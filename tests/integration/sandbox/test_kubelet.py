"""The kubelet as a process, against the sandbox's Kubernetes API and with real simulated engines."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest_asyncio

from fairlead_sandbox.process_table import kubelet_command
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.identities import ProcessIdentity, identity_of
from processkube.kubeconfig import read_kubeconfig
from processkube.kubelet import state_file
from processkube.kubelet.agent import NodeAgent
from processkube.kubelet.pods_api import PodsApi
from processkube.kubelet.preparation import Preparation
from processkube.kubelet.runtime import ProcessRuntime
from processkube.kubernetes_api.serving.server import running_server
from processkube.kubernetes_client import KubernetesClient
from processkube.probing import ask_http
from processkube.testing.ports import free_port

PODS = "/api/v1/namespaces/default/pods"


def a_pod(name: str, *, image: str = "fairlead/engine:test", grace: int = 5, args: tuple[str, ...] = ()) -> dict[str, Any]:
    container = {
        "name": "engine",
        "image": image,
        "command": ["fairlead-engine"],
        "args": ["--model", "$(MODEL)", "--port", "8000", "--startup-seconds", "0", *args],
        "env": [{"name": "MODEL", "value": "tiny"}],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"terminationGracePeriodSeconds": grace, "containers": [container]},
    }


@dataclass
class Node:
    """One kubelet and its API server.

    `processes` remembers every engine seen, so that none can be left behind unnoticed.
    """

    state_dir: Path
    client: KubernetesClient
    kubelet: asyncio.subprocess.Process | None = None
    processes: set[ProcessIdentity] = field(default_factory=set)

    async def start_kubelet(self) -> None:
        self.kubelet = await asyncio.create_subprocess_exec(
            *kubelet_command(self.state_dir / "kubeconfig-kubelet", self.state_dir),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        )
        assert self.kubelet.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await self.kubelet.stdout.readline()).startswith(b"ready"):
                pass

    async def end_kubelet(self, number: int) -> None:
        assert self.kubelet is not None
        if self.kubelet.returncode is None:
            self.kubelet.send_signal(number)
        await self.kubelet.wait()

    async def create(self, *pods: dict[str, Any]) -> None:
        for pod in pods:
            await self.client.request("POST", PODS, pod)

    async def pod(self, name: str) -> dict[str, Any]:
        pod = await self.client.request("GET", f"{PODS}/{name}")
        process = engine_of(pod)
        if process is not None:
            self.processes.add(process)
        return pod

    async def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in (await self.client.request("GET", PODS))["items"]}

    async def until(self, name: str, claim: Callable[[dict[str, Any]], object], seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while not claim(pod := await self.pod(name)):
            assert time.monotonic() < deadline, f"not within {seconds} s: {pod.get('status')}"
            await asyncio.sleep(0.05)
        return pod


def is_ready(pod: dict[str, Any]) -> bool:
    return any(item["type"] == "Ready" and item["status"] == "True" for item in (pod.get("status") or {}).get("conditions", ()))


def container_of(pod: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = pod["status"]["containerStatuses"][0]
    return container


def waiting_of(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the reason for which the pod's container does not run yet; empty where none is known."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    waiting: dict[str, Any] = statuses[0].get("state", {}).get("waiting", {})
    return waiting


def engine_of(pod: dict[str, Any]) -> ProcessIdentity | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    _, _, numbers = statuses[0].get("containerID", "").partition("://")
    pid, _, ticks = numbers.partition("-")
    return ProcessIdentity(pid=int(pid), started_ticks=int(ticks)) if numbers else None


def runs(process: ProcessIdentity | None) -> bool:
    return process is not None and identity_of(process.pid) == process


@asynccontextmanager
async def a_node(folder: Path, *, node_grace_seconds: float = 10.0) -> AsyncIterator[Node]:
    async with (
        running_server(folder, node_grace_seconds=node_grace_seconds) as server,
        KubernetesClient(read_kubeconfig(server.kubeconfig), timeout_seconds=PATIENCE_SECONDS) as client,
    ):
        node = Node(state_dir=folder, client=client)
        await node.start_kubelet()
        try:
            yield node
        finally:
            await node.end_kubelet(signal.SIGTERM)
            assert not [process for process in node.processes if runs(process)], "an engine outlived its node"


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with a_node(tmp_path) as node:
        yield node


async def test_a_pod_is_bound_started_ready_and_serves_at_its_own_address(node: Node) -> None:
    await node.create(a_pod("chat-b1"), a_pod("chat-b2"))
    first, second = await node.until("chat-b1", is_ready), await node.until("chat-b2", is_ready)
    assert first["spec"]["nodeName"] == "sandbox"
    assert first["status"]["phase"] == "Running"
    assert first["status"]["podIP"].startswith("127.")
    assert first["status"]["podIP"] != second["status"]["podIP"]
    for pod in (first, second):
        assert (await ask_http(pod["status"]["podIP"], 8000, "/v1/models", timeout_seconds=PATIENCE_SECONDS)).ok
    assert f"listening on http://{first['status']['podIP']}:8000" in (node.state_dir / "logs" / "default_chat-b1.log").read_text()
    seen = await node.client.request("GET", "/api/v1/nodes/sandbox")
    assert is_ready(seen)


async def test_a_crashed_engine_is_restarted_at_the_same_address_and_counted(node: Node) -> None:
    await node.create(a_pod("chat-b1"))
    before = await node.until("chat-b1", is_ready)
    process = engine_of(before)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    after = await node.until("chat-b1", lambda pod: is_ready(pod) and container_of(pod)["restartCount"] == 1)
    assert after["status"]["podIP"] == before["status"]["podIP"]
    assert engine_of(after) != process
    assert container_of(after)["lastState"]["terminated"]["exitCode"] == 137


async def test_an_engine_that_cannot_start_backs_off_and_says_so(node: Node) -> None:
    await node.create(a_pod("chat-b1", args=("--no-such-option",)))
    pod = await node.until("chat-b1", lambda pod: "containerStatuses" in pod["status"] and container_of(pod)["restartCount"] >= 2)
    assert container_of(pod)["lastState"]["terminated"]["exitCode"] == 2
    assert not is_ready(pod)
    assert "No such option" in (node.state_dir / "logs" / "default_chat-b1.log").read_text()


async def test_an_image_the_sandbox_does_not_have_is_a_failed_pull_and_can_be_deleted(node: Node) -> None:
    await node.create(a_pod("web", image="nginx:1"))
    pod = await node.until("web", lambda pod: waiting_of(pod).get("reason") == "ErrImagePull")
    waiting = waiting_of(pod)
    assert "runs only fairlead/engine" in waiting["message"]
    await node.client.request("DELETE", f"{PODS}/web")
    await _until_gone(node, "web")


async def test_a_deleted_pod_gets_its_grace_and_is_then_gone_with_its_process(node: Node) -> None:
    await node.create(a_pod("polite"), a_pod("hanging", grace=5))
    process = engine_of(await node.until("polite", is_ready))
    hanging = engine_of(await node.until("hanging", is_ready))
    assert hanging is not None
    os.kill(hanging.pid, signal.SIGSTOP)  # cannot react to SIGTERM any more
    await node.client.request("DELETE", f"{PODS}/polite")
    await node.client.request("DELETE", f"{PODS}/hanging")
    assert runs(hanging), "its grace is not over"
    await _until_gone(node, "polite")
    await _until_gone(node, "hanging")
    assert not runs(process)
    assert not runs(hanging)
    await _until(lambda: not (node.state_dir / "logs" / "default_polite.log").exists())


async def test_a_kubelet_that_was_killed_takes_its_pods_over_again(node: Node) -> None:
    await node.create(a_pod("stays"), a_pod("goes"))
    before = await node.until("stays", is_ready)
    left = engine_of(await node.until("goes", is_ready))
    await node.end_kubelet(signal.SIGKILL)
    assert runs(engine_of(before)), "pods outlive their kubelet"
    await node.client.request("DELETE", f"{PODS}/goes", {"gracePeriodSeconds": 0})
    await node.start_kubelet()
    await _until(lambda: not runs(left))
    after = await node.until("stays", is_ready)
    assert engine_of(after) == engine_of(before)
    assert container_of(after)["restartCount"] == 0
    process = engine_of(after)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    await node.until("stays", lambda pod: is_ready(pod) and container_of(pod)["restartCount"] == 1)


async def test_a_node_that_was_silent_is_ready_again_with_its_pods_when_its_kubelet_goes_on(tmp_path: Path) -> None:
    async with a_node(tmp_path, node_grace_seconds=4.0) as node:
        await node.create(a_pod("chat-c1"))
        before = engine_of(await node.until("chat-c1", is_ready))
        assert node.kubelet is not None
        node.kubelet.send_signal(signal.SIGSTOP)
        try:
            lost = await node.until("chat-c1", lambda pod: not is_ready(pod))
            shown = await node.client.request("GET", "/api/v1/nodes/sandbox")
        finally:
            node.kubelet.send_signal(signal.SIGCONT)
        assert {one["type"] for one in lost["status"]["conditions"] if one["status"] == "False"} == {"Ready"}
        assert {taint["effect"] for taint in shown["spec"]["taints"]} == {"NoSchedule"}, "the only node is never emptied"
        after = await node.until("chat-c1", is_ready)
        assert engine_of(after) == before
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await node.client.request("GET", "/api/v1/nodes/sandbox"))["spec"].get("taints"):
                await asyncio.sleep(0.1)


async def test_pods_keep_running_while_the_api_is_away_and_are_reported_when_it_is_back(tmp_path: Path) -> None:
    port = free_port()
    async with (
        running_server(tmp_path, port=port) as server,
        KubernetesClient(read_kubeconfig(server.kubeconfig), timeout_seconds=PATIENCE_SECONDS) as client,
    ):
        node = Node(state_dir=tmp_path, client=client)
        await node.start_kubelet()
        await node.create(a_pod("chat-b1"))
        process = engine_of(await node.until("chat-b1", is_ready))
    assert process is not None
    try:
        os.kill(process.pid, signal.SIGKILL)
        await asyncio.sleep(1.0)  # the kubelet meets the outage
        async with (
            running_server(tmp_path, port=port) as server,
            KubernetesClient(read_kubeconfig(server.kubeconfig), timeout_seconds=PATIENCE_SECONDS) as client,
        ):
            node.client = client
            pod = await node.until("chat-b1", lambda pod: is_ready(pod) and container_of(pod)["restartCount"] == 1)
            await node.end_kubelet(signal.SIGTERM)
            await node.until("chat-b1", lambda pod: not is_ready(pod))  # a node that goes down says so
            assert not runs(engine_of(pod))
    finally:
        await node.end_kubelet(signal.SIGTERM)


async def _until_gone(node: Node, name: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while name in await node.names():
            await asyncio.sleep(0.05)


async def _until(claim: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not claim():
            await asyncio.sleep(0.05)


def scheduled(pod: dict[str, Any]) -> dict[str, Any]:
    return next((one for one in (pod.get("status") or {}).get("conditions", ()) if one["type"] == "PodScheduled"), {})


async def test_a_cordoned_node_says_nothing_of_a_pod_that_another_node_has_taken_meanwhile(node: Node, tmp_path: Path) -> None:
    before = await node.client.request("POST", PODS, a_pod("chat-b1"))
    await node.until("chat-b1", is_ready)
    agent = NodeAgent(
        node="node-2",
        cluster=PodsApi(node.client, "node-2"),
        runtime=ProcessRuntime(tmp_path),
        preparation=cast(Preparation, None),  # it starts no pod
        memory=state_file.load(tmp_path / "node-2.json"),
        memory_path=tmp_path / "node-2.json",
        address_node=2,
    )
    await agent._node_changed({"spec": {"unschedulable": True}})
    await agent._take(before)
    pod = await node.pod("chat-b1")
    assert (pod["status"]["phase"], scheduled(pod)["status"], is_ready(pod)) == ("Running", "True", True)


async def test_a_cordoned_node_keeps_its_pods_and_takes_new_ones_when_it_is_uncordoned(node: Node) -> None:
    await node.create(a_pod("before"))
    await node.until("before", is_ready)
    cordon = {"spec": {"unschedulable": True}}
    await node.client.request("PATCH", "/api/v1/nodes/sandbox", cordon, content_type="application/merge-patch+json")
    for name in ("after-1", "after-2", "after-3"):  # the kubelet hears of the cordon a moment later than this test
        await node.create(a_pod(name))
        after = await node.until(name, scheduled)
        if scheduled(after)["status"] == "False":
            break
    assert scheduled(after)["reason"] == "Unschedulable"
    assert "0/1 nodes are available: 1 node(s) were unschedulable." in scheduled(after)["message"]
    assert (after["status"]["phase"], after["spec"].get("nodeName")) == ("Pending", None)
    assert is_ready(await node.pod("before"))
    cordon["spec"]["unschedulable"] = False
    await node.client.request("PATCH", "/api/v1/nodes/sandbox", cordon, content_type="application/merge-patch+json")
    taken = await node.until(name, is_ready)
    assert scheduled(taken)["status"] == "True"
