"""The steps that bring the chart up: install it, read the generated secrets, wait for its workloads."""

import asyncio
import base64
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from fairlead_sandbox.chart.values import NAMESPACE, RELEASE
from fairlead_sandbox.clusters import client_of
from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.secret_tokens import SecretTokens, keep
from fairlead_sandbox.state_directory import StateDirectory
from processkube.errors import ClusterProblem
from processkube.kubernetes_client import KubernetesClient

READY_SECONDS = 300.0
"""Maximum seconds to wait for a workload. A busy machine needs minutes for the first Postgres and two Python processes.
"""
ASK_EVERY_SECONDS = 0.3
GATEWAY_KEY = "FAIRLEAD_GATEWAY_KEY"

Document = dict[str, Any]


class ChartSetup:
    """The steps for one state directory; each may be repeated."""

    def __init__(self, directory: StateDirectory, values: Document, chart: Path) -> None:
        self._directory = directory
        self._values = values
        self._chart = chart
        self.client_variables: dict[str, str] = {}
        """Environment variables that a client of the gateway needs; empty before the chart is installed."""

    @property
    def gateway_key(self) -> str:
        """Return the gateway key that the chart generated; the chart must be installed."""
        return self.client_variables[GATEWAY_KEY]

    async def install(self) -> None:
        """Install the chart, or upgrade it to these values, and store the generated secrets. Raises SandboxError."""
        request = {
            "kubeconfig": str(self._kubeconfig),
            "namespace": NAMESPACE,
            "release": RELEASE,
            "chart": str(self._chart),
            "values": self._values,
        }
        helm = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "fairlead_sandbox.chart.helm"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, complaint = await helm.communicate(json.dumps(request).encode())
        if helm.returncode != 0:
            lines = complaint.decode(errors="replace").strip().splitlines()
            raise SandboxError(lines[-1] if lines else f"Helm ended with exit code {helm.returncode}")
        async with self._client() as client:
            tokens = await _secret(client, f"{RELEASE}-tokens")
            keys = await _secret(client, f"{RELEASE}-gateway-keys")
        keep(self._directory.secrets, SecretTokens(admin=tokens["admin"], operator=tokens["operator"], router=tokens["router"]))
        self.client_variables[GATEWAY_KEY] = keys["keys"].splitlines()[0]

    def until_it_runs(self, kind: str, process: str) -> Callable[[], Awaitable[None]]:
        """Return a step that waits for a workload, such as `deployments` of `api`; it fails after `READY_SECONDS`."""

        async def wait() -> None:
            path = f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}/{RELEASE}-{process}"
            deadline = time.monotonic() + READY_SECONDS
            async with self._client() as client:
                while not is_rolled_out(await client.request("GET", path)):
                    if time.monotonic() > deadline:
                        raise SandboxError(f"{process} does not run after {READY_SECONDS:g} s: {await self._why(client, process)}")
                    await asyncio.sleep(ASK_EVERY_SECONDS)

        return wait

    async def router_addresses(self) -> tuple[str, ...]:
        """Return the addresses of the routers' pods."""
        async with self._client() as client:
            return tuple(sorted(str(pod["status"]["podIP"]) for pod in await self._pods(client, "router") if pod["status"].get("podIP")))

    async def _why(self, client: KubernetesClient, process: str) -> str:
        for pod in await self._pods(client, process):
            name = pod["metadata"]["name"]
            for status in pod["status"].get("containerStatuses") or ():
                message = (status["state"].get("waiting") or {}).get("message")
                if message:
                    return f"pod {name}: {message} (fairlead logs {name})"
        return f"its pods are not ready (kubectl -n {NAMESPACE} describe pods)"

    async def _pods(self, client: KubernetesClient, process: str) -> list[Document]:
        query = {"labelSelector": f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component={process}"}
        return list((await client.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", query=query))["items"])

    @property
    def _kubeconfig(self) -> Path:
        return self._directory.kubernetes / "kubeconfig"

    def _client(self) -> AbstractAsyncContextManager[KubernetesClient]:
        return client_of(self._kubeconfig)


def is_rolled_out(workload: Document) -> bool:
    """Return whether all pods of a Deployment or StatefulSet have its newest template and are ready. Pure."""
    status, wanted = workload.get("status") or {}, workload["spec"].get("replicas", 1)
    ready = status.get("availableReplicas" if workload["kind"] == "Deployment" else "readyReplicas") or 0
    return bool(
        status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
        and (status.get("updatedReplicas") or 0) == wanted
        and (status.get("replicas") or 0) == wanted
        and ready == wanted
    )


async def _secret(client: KubernetesClient, name: str) -> dict[str, str]:
    try:
        document = await client.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")
    except ClusterProblem as problem:
        raise SandboxError(f"the chart created no Secret {name}: {problem}") from None
    return {key: base64.b64decode(value).decode() for key, value in (document.get("data") or {}).items()}
