"""Follows Services and pods, and keeps listening sockets, hosts files and the status of load balancers up to date."""

import asyncio
import logging
from pathlib import Path
from typing import Any

from processkube.errors import ClusterProblem
from processkube.kubelet.hosts_files import hosts_file, rewrite
from processkube.kubernetes_client import MERGE_PATCH, KubernetesClient
from processkube.service_endpoints import Listener, listeners, own_address
from processkube.service_proxy.names import hosts_text
from processkube.service_proxy.proxying import Proxy

log = logging.getLogger(__name__)

MACHINE = "127.0.0.1"
RELIST_SECONDS = 1.0
REPEAT_SECONDS = 5.0
"""Seconds after which the proxy tries again to open a socket or to write a status, if this has failed."""

Document = dict[str, Any]


class ServiceFollower:
    """Serves the Services of one cluster at addresses in `network`, such as 127.100."""

    def __init__(self, client: KubernetesClient, network: str, state_dir: Path) -> None:
        self._client = client
        self._network = network
        self._state_dir = state_dir
        self._proxy = Proxy()
        self._found: dict[str, dict[str, Document]] = {"services": {}, "pods": {}}
        self._changed = asyncio.Event()
        self._listed = {kind: asyncio.Event() for kind in self._found}
        self._texts: dict[str, str] = {}

    async def follow(self, kind: str) -> None:
        """List all objects of the kind `services` or `pods`, and then watch their changes. Never returns."""
        path, found = f"/api/v1/{kind}", self._found[kind]
        while True:
            try:
                answer = await self._client.request("GET", path)
                found.clear()
                found.update({item["metadata"]["uid"]: item for item in answer["items"]})
                self._listed[kind].set()
                self._changed.set()
                async for event in self._client.watch(path, resource_version=answer["metadata"]["resourceVersion"]):
                    item = event["object"]
                    if event["type"] == "DELETED":
                        found.pop(item["metadata"]["uid"], None)
                    elif event["type"] != "BOOKMARK":
                        found[item["metadata"]["uid"]] = item
                    self._changed.set()
            except ClusterProblem as problem:
                log.warning("objects of a kind cannot be followed", extra={"kind": kind, "error": str(problem)})
                await asyncio.sleep(RELIST_SECONDS)

    async def serve(self) -> None:
        """Bring sockets, files and statuses up to date after each change. Never returns."""
        for listed in self._listed.values():
            await listed.wait()
        while True:
            self._changed.clear()
            done = await self._update()
            try:
                async with asyncio.timeout(None if done else REPEAT_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _update(self) -> bool:
        """Bring sockets, files and statuses up to date. Return False if something failed and must be tried again."""
        services, pods = list(self._found["services"].values()), list(self._found["pods"].values())
        wanted: list[Listener] = []
        for service in services:
            address = own_address(service, self._network)
            if address is not None:
                wanted += listeners(service, pods, address, machine=MACHINE)
        refused = await self._proxy.serve(wanted)
        for namespace in {item["metadata"]["namespace"] for item in (*services, *pods)}:
            text = hosts_text(namespace, services, pods, self._network)
            if self._texts.get(namespace) != text:
                rewrite(hosts_file(self._state_dir, namespace), text)
                self._texts[namespace] = text
        return all([await self._announce(service, refused) for service in services]) and not refused

    async def _announce(self, service: Document, refused: frozenset[tuple[str, int]]) -> bool:
        """Write the address of a load balancer into the Service's status, once the address is served. Return False if
        the write failed and must be tried again.
        """
        spec, status = service["spec"], service.get("status") or {}
        if spec.get("type") != "LoadBalancer" or any((MACHINE, port["port"]) in refused for port in spec["ports"]):
            return True
        wanted = {"loadBalancer": {"ingress": [{"ip": MACHINE, "ipMode": "VIP"}]}}
        if status.get("loadBalancer") == wanted["loadBalancer"]:
            return True
        metadata = service["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/services/{metadata['name']}/status"
        try:
            await self._client.request("PATCH", path, {"status": wanted}, content_type=MERGE_PATCH)
        except ClusterProblem as problem:
            log.warning("a Service's status could not be written", extra={"service": metadata["name"], "error": str(problem)})
            return problem.status == 404
        return True
