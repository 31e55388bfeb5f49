"""Pods that need more than an address: users, files, secrets, hooks. A real kubelet runs them as processes."""

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead_sandbox.process_table import kubelet_command
from fairlead_testing.running.sandbox import ROOT
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.errors import ClusterProblem
from processkube.kubeconfig import read_kubeconfig
from processkube.kubelet.enclosing import can_enclose
from processkube.kubernetes_api.serving.server import running_server
from processkube.kubernetes_client import KubernetesClient

CORE = "/api/v1/namespaces/default"
PODS = f"{CORE}/pods"
INSTALLED_BELOW_TMP = {one.parts[2] for one in (ROOT, Path(sys.prefix), Path(sys.base_prefix)) if one.is_relative_to("/tmp")}
"""Folders of /tmp with the checkout or the interpreter.

They stay visible under a pod's own /tmp, and under a volume over the checkout itself.
"""

pytestmark = pytest.mark.skipif(not can_enclose(), reason="this machine forbids user and mount namespaces")

LOOK = """
import json, os, pathlib, socket, time
def read(path):
    return pathlib.Path(path).read_text()
def writable(path):
    try:
        pathlib.Path(path, "probe").write_text("x")
    except OSError as problem:
        return problem.strerror
    return "written"
account = "/var/run/secrets/kubernetes.io/serviceaccount"
seen = {
    "user": [os.getuid(), os.getgid()],
    "hostname": socket.gethostname(),
    "environment": {name: os.environ.get(name) for name in ("TOKEN", "LIMIT", "KUBERNETES_SERVICE_HOST", "HOME")},
    "key": read("/etc/app/keys/key"),
    "mode": oct(os.stat("/etc/app/keys/key").st_mode & 0o777),
    "label": read("/etc/podinfo/pool"),
    "namespace": read(account + "/namespace"),
    "authority": read(account + "/ca.crt")[:27],
    "token": len(read(account + "/token")) > 50,
    "hosts": read("/etc/hosts"),
    "first": read("/data/first"),
    "migrations": os.path.exists(os.environ["CHECKOUT"] + "/migrations/env.py"),
    "writable": {path: writable(path) for path in ("/tmp", "/data", "/etc", "/etc/app/keys", "/var", os.path.dirname(os.__file__))},
    "cache": sorted(os.listdir("/tmp")),
}
pathlib.Path("/data/seen.json.new").write_text(json.dumps(seen))
os.rename("/data/seen.json.new", "/data/seen.json")
time.sleep(600)
"""
HOOK = """
import os, sys
sys.exit(f"{os.environ['TOKEN']} {os.getuid()} {sorted(os.listdir('/data'))}")
"""
"""A hook that fails, so that an Event has its output."""


def a_container(name: str, script: str, **more: Any) -> dict[str, Any]:
    mounts = [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "keys", "mountPath": "/etc/app/keys", "readOnly": True},
        {"name": "info", "mountPath": "/etc/podinfo"},
        {"name": "data", "mountPath": "/data"},
        {"name": "over", "mountPath": str(ROOT)},
    ]
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}, {"name": "CHECKOUT", "value": str(ROOT)}]
    return {
        "name": name,
        "image": "fairlead/api:test",
        "command": ["python", "-c", script],
        "env": env,
        "envFrom": [{"configMapRef": {"name": "limits"}}],
        "volumeMounts": mounts,
        "securityContext": {"readOnlyRootFilesystem": True},
        **more,
    }


POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "looks", "namespace": "default", "labels": {"pool": "chat"}},
    "spec": {
        "automountServiceAccountToken": True,
        "serviceAccountName": "looker",
        "securityContext": {"runAsUser": 10001, "runAsGroup": 10002},
        "terminationGracePeriodSeconds": 20,
        "initContainers": [a_container("first", "open('/data/first', 'w').write('was here')")],
        "containers": [
            a_container(
                "looks",
                LOOK,
                readinessProbe={"exec": {"command": ["python", "-c", "open('/data/seen.json')"]}, "periodSeconds": 1, "timeoutSeconds": 60},
                lifecycle={"preStop": {"exec": {"command": ["python", "-c", HOOK]}}},
            )
        ],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o440}},
            {"name": "info", "downwardAPI": {"items": [{"path": "pool", "fieldRef": {"fieldPath": "metadata.labels['pool']"}}]}},
            {"name": "data", "emptyDir": {}},
            {"name": "over", "emptyDir": {}},
        ],
    },
}


@asynccontextmanager
async def a_node(folder: Path) -> AsyncIterator[KubernetesClient]:
    """Yield a Kubernetes API and a kubelet."""
    async with (
        running_server(folder) as server,
        KubernetesClient(read_kubeconfig(server.kubeconfig), timeout_seconds=PATIENCE_SECONDS) as client,
    ):
        kubelet = await asyncio.create_subprocess_exec(
            *kubelet_command(folder / "kubeconfig-kubelet", folder), env={**os.environ, "PYTHONPATH": ":".join(sys.path)}
        )
        try:
            yield client
        finally:
            kubelet.terminate()
            await kubelet.wait()


async def until_ready(client: KubernetesClient, name: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pod = await client.request("GET", f"{PODS}/{name}")
            conditions = {one["type"]: one["status"] for one in (pod.get("status") or {}).get("conditions") or ()}
            if conditions.get("Ready") == "True":
                return pod
            await asyncio.sleep(0.1)


async def until_gone(client: KubernetesClient, path: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await client.request("GET", path)
            except ClusterProblem as problem:
                if problem.status != 404:
                    raise
                return
            await asyncio.sleep(0.1)


async def test_a_pod_has_the_user_the_files_and_the_account_that_its_manifest_says(tmp_path: Path) -> None:
    async with a_node(tmp_path) as client:
        await client.request("POST", f"{CORE}/serviceaccounts", {"metadata": {"name": "looker"}})
        await client.request("POST", f"{CORE}/configmaps", {"metadata": {"name": "limits"}, "data": {"LIMIT": "5"}})
        await client.request("POST", PODS, POD)
        waiting = await until_refused(client)
        assert waiting["reason"] == "CreateContainerConfigError"
        assert waiting["message"] == 'secret "keys" not found'

        key = base64.b64encode(b"a-key").decode()
        await client.request("POST", f"{CORE}/secrets", {"metadata": {"name": "keys"}, "data": {"key": key}})
        pod = await until_ready(client, "looks")
        assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
        volumes = tmp_path / "volumes" / pod["metadata"]["uid"]
        seen = json.loads((volumes / "of/data/seen.json").read_text())
        assert set(seen.pop("cache")) == {"probe"} | INSTALLED_BELOW_TMP
        assert seen == {
            "user": [10001, 10002],
            "hostname": "looks",
            "environment": {"TOKEN": "a-key", "LIMIT": "5", "KUBERNETES_SERVICE_HOST": "127.0.0.1", "HOME": "/"},
            "key": "a-key",
            "mode": "0o440",
            "label": "chat",
            "namespace": "default",
            "authority": "-----BEGIN CERTIFICATE-----",
            "token": True,
            "hosts": "127.0.0.1 localhost\n",
            "first": "was here",
            "migrations": True,
            "writable": {
                "/tmp": "written",
                "/data": "written",
                **dict.fromkeys(("/etc", "/etc/app/keys", "/var", str(Path(os.__file__).parent)), "Read-only file system"),
            },
        }

        await client.request("DELETE", f"{PODS}/looks")
        await until_gone(client, f"{PODS}/looks")
        told: list[str] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not told:  # the kubelet tells it apart from the pod's end
                events = (await client.request("GET", f"{CORE}/events"))["items"]
                told = [event["message"] for event in events if event["reason"] == "FailedPreStopHook"]
                await asyncio.sleep(0.05)
        assert told == ["PreStopHook failed: a-key 10001 ['first', 'probe', 'seen.json']"]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while volumes.exists():
                await asyncio.sleep(0.05)


async def until_refused(client: KubernetesClient) -> dict[str, Any]:
    """Return the init container's state `waiting` once its start was refused."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pod = await client.request("GET", f"{PODS}/looks")
            for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
                waiting: dict[str, Any] = status["state"].get("waiting") or {}
                if waiting.get("message"):
                    return waiting
            await asyncio.sleep(0.1)
