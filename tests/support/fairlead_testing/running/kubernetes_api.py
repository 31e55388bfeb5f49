"""The sandbox's Kubernetes API in this process, and kubeconfigs of service accounts of any Kubernetes API."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from fairlead_sandbox.kubernetes_api.serving.server import RunningServer, running_server
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.pod_phases import KubernetesClient


@contextmanager
def serving(state: Path, *, node_grace_seconds: float = 10.0, service_accounts: Sequence[str] = ()) -> Iterator[RunningServer]:
    """Run a server on a thread of its own."""
    ready = threading.Event()
    found: list[RunningServer] = []
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        async with running_server(state, node_grace_seconds=node_grace_seconds, service_accounts=service_accounts) as running:
            found.append(running)
            stops.append((asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_SECONDS), "the server did not come up"
    yield found[0]
    loop, stop = stops[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "the server did not stop"


def service_account_kubeconfig(admin: str | Path, namespace: str, account: str, folder: Path) -> Path:
    """A kubeconfig by which one is this service account, with a token that its API issues for an hour."""
    document = yaml.safe_load(Path(admin).read_text(encoding="utf-8"))
    client = KubernetesClient.of(str(admin))
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    issued = client.call("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    document["users"][0]["user"] = {"token": issued["status"]["token"]}
    kubeconfig = folder / f"kubeconfig-{namespace}-{account}"
    kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
    return kubeconfig
