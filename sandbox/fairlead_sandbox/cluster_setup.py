"""Sets up a cluster (the sandbox's own Kubernetes API, or a given cluster): applies Fairlead's custom resource
definitions, and creates the demo pool if it does not exist yet.
"""

import asyncio
import importlib.resources
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import yaml

from fairlead_sandbox.clusters import GIVEN_ANSWER_SECONDS, OWN_ANSWER_SECONDS, client_of
from fairlead_sandbox.demo import POOL_NAME, POOL_NAMESPACE, demo_pool
from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.state_directory import StateDirectory, write_private
from processkube.errors import ClusterProblem
from processkube.kubernetes_api.definitions.leader_worker_sets import leader_worker_set_definition
from processkube.kubernetes_client import APPLY_PATCH, KubernetesClient

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = f"/apis/fairlead.dev/v1alpha1/namespaces/{POOL_NAMESPACE}/inferencepools"
FIELD_MANAGER = "fairlead-sandbox"
ACCOUNTS = ("kubelet", "fairlead-api", "fairlead-operator")
"""The users of the sandbox's own Kubernetes API besides the admin. The Kubernetes API writes a kubeconfig for each
user.
"""
ESTABLISH_SECONDS = 180.0
POOL_READY_SECONDS = 180.0
"""Seconds without any change of the pool after which the setup fails."""


class ClusterSetup:
    """The steps that set up the cluster of one state directory; each step may be repeated."""

    def __init__(self, directory: StateDirectory, *, engine_port: int, cluster: Path | None = None) -> None:
        self._directory = directory
        self._engine_port = engine_port
        self._cluster = cluster
        """The kubeconfig of a given cluster; None if the sandbox's own Kubernetes API is used."""

    async def publish_kubeconfig(self) -> None:
        """Copy the admin's kubeconfig to its documented path. A given cluster has only one kubeconfig, which is also
        copied to the path of each process's kubeconfig.
        """
        folder = self._directory.kubernetes
        source = self._cluster or folder / "kubeconfig"
        copies = [self._directory.kubeconfig]
        if self._cluster is not None:
            copies += [folder / "kubeconfig", *(folder / f"kubeconfig-{account}" for account in ACCOUNTS)]
        try:
            text = source.read_text(encoding="utf-8")
            for path in copies:
                write_private(path, text)
        except OSError as problem:
            raise SandboxError(f"{source}: the kubeconfig cannot be read ({problem.strerror})") from None

    async def apply_definitions(self) -> None:
        """Apply every definition in `crds/`, and in the sandbox's own cluster also the definition of LeaderWorkerSets;
        wait until they are established.
        """
        others = () if self._cluster is not None else (leader_worker_set_definition(),)
        async with self._client() as client:
            names = []
            for document in (*read_definitions(), *others):
                names.append(document["metadata"]["name"])
                query = {"fieldManager": FIELD_MANAGER, "force": "true"}
                await client.request("PATCH", f"{DEFINITIONS}/{names[-1]}", document, content_type=APPLY_PATCH, query=query)
            for name in names:
                await self._until_established(client, name)

    async def apply_demo(self) -> None:
        """Create the demo pool and wait until it is Ready.

        An existing pool is left unchanged, because it may have been edited.
        """
        async with self._client() as client:
            try:
                await client.request("POST", POOLS, demo_pool(self._engine_port), query={"fieldManager": FIELD_MANAGER})
            except ClusterProblem as problem:
                if problem.reason != "AlreadyExists":
                    raise
            changed_at = time.monotonic()
            ready, seen = ("Unknown", "the operator has not reported on it"), None
            while time.monotonic() - changed_at < POOL_READY_SECONDS:
                pool = await client.request("GET", f"{POOLS}/{POOL_NAME}")
                ready = _condition(pool, "Ready") or ready
                pods = await self._ready_pods(client)
                if ready[0] == "True" and pods >= pool["spec"]["replicas"]:  # the condition alone may stem from the last run
                    return
                if seen != (ready, pods):
                    changed_at, seen = time.monotonic(), (ready, pods)
                await asyncio.sleep(0.2)
        raise SandboxError(
            f"pool {POOL_NAMESPACE}/{POOL_NAME} is not Ready, and nothing about it changed for {POOL_READY_SECONDS:g} s: {ready[1]}"
        )

    async def _ready_pods(self, client: KubernetesClient) -> int:
        path, query = f"/api/v1/namespaces/{POOL_NAMESPACE}/pods", {"labelSelector": f"fairlead.dev/pool={POOL_NAME}"}
        pods = (await client.request("GET", path, query=query))["items"]
        return sum((_condition(pod, "Ready") or ("", ""))[0] == "True" for pod in pods)

    def _client(self) -> AbstractAsyncContextManager[KubernetesClient]:
        answer_seconds = OWN_ANSWER_SECONDS if self._cluster is None else GIVEN_ANSWER_SECONDS
        return client_of(self._directory.kubernetes / "kubeconfig", answer_seconds=answer_seconds)

    async def _until_established(self, client: KubernetesClient, name: str) -> None:
        deadline = time.monotonic() + ESTABLISH_SECONDS
        while (_condition(await client.request("GET", f"{DEFINITIONS}/{name}"), "Established") or ("", ""))[0] != "True":
            if time.monotonic() > deadline:
                raise SandboxError(f"definition {name} was not established within {ESTABLISH_SECONDS:g} s")
            await asyncio.sleep(0.1)


def read_definitions() -> list[dict[str, Any]]:
    """Read the custom resource definitions packaged with the sandbox, or, without them, the definitions in the
    repository's `crds/`.

    Raises SandboxError when neither folder has any.
    """
    packaged = Path(str(importlib.resources.files("fairlead_sandbox"))) / "crds"
    repository = Path(__file__).resolve().parents[2] / "crds"
    for folder in (packaged, repository):
        paths = sorted(folder.glob("*.yaml"))
        if paths:
            return [document for path in paths for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
    raise SandboxError(f"no resource definitions in {packaged} or {repository}; reinstall Fairlead")


def _condition(document: dict[str, Any], kind: str) -> tuple[str, str] | None:
    for condition in (document.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            return str(condition.get("status")), str(condition.get("message") or condition.get("reason") or "")
    return None
