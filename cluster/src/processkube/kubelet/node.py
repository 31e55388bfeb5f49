"""The Node object, its heartbeat, and a range of loopback addresses that no other node on the machine uses."""

import asyncio
import logging
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime

from processkube.errors import ClusterProblem, ProcesskubeError
from processkube.kubelet.addresses import FIRST_NODE, LAST_NODE
from processkube.kubelet.pods_api import LEASE_SECONDS, PodsApi
from processkube.kubernetes_client import Document

log = logging.getLogger(__name__)

KUBELET_PORT = 10250
POD_CAPACITY = 250
HEARTBEAT_SECONDS = LEASE_SECONDS / 4


def node_status(node: str, stamp: str) -> Document:
    """Return the status that the node reports. It offers all of the machine's CPUs and memory, because no limit is
    enforced.
    """
    amounts = {"cpu": str(os.cpu_count() or 1), "memory": f"{_memory_kib()}Ki", "pods": str(POD_CAPACITY)}
    conditions = [
        ("Ready", "True", "KubeletReady", "processkube's kubelet starts pods as processes"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "processkube's kubelet never evicts pods"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "processkube's kubelet never evicts pods"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "processkube's kubelet never evicts pods"),
    ]
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": stamp,
            }
            for kind, status, reason, message in conditions
        ],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": node}],
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": platform.release(),
            "osImage": "processkube",
            "containerRuntimeVersion": "process://1",
            "kubeletVersion": "v1.32.0-processkube",
            "kubeProxyVersion": "v1.32.0-processkube",
            "operatingSystem": "linux",
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        },
    }


async def keep_registered(cluster: PodsApi, node: str, registered: Callable[[], None]) -> None:
    """Register the node, and then renew its lease again and again. If the API has lost the node or shows it as not
    ready, register it again. Never returns.

    `registered` is called after each registration that follows the start or an error.
    """
    known = False
    while True:
        try:
            if not known or not await cluster.is_shown_ready():
                await cluster.register_node(node_status(node, _seconds_stamp()))
            await cluster.renew_lease(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        except ClusterProblem as problem:
            log.warning("heartbeat failed", extra={"error": str(problem)})
            known = False
            await asyncio.sleep(1.0)
            continue
        if not known:
            registered()
        known = True
        await asyncio.sleep(HEARTBEAT_SECONDS)


async def claim_addresses(preferred: int, first: int = FIRST_NODE, last: int = LAST_NODE) -> tuple[int, asyncio.Server]:
    """Claim the addresses 127.N.0.0/16 for this process, so that two clusters on one machine never use the same
    addresses.

    Return N, and a server on 127.N.255.254. This server holds the claim and also responds to `/healthz`. Raises
    ProcesskubeError if all ranges are taken.
    """
    refusal = ""
    for number in [preferred, *(candidate for candidate in range(first, last + 1) if candidate != preferred)]:
        try:
            return number, await asyncio.start_server(_answer_healthy, f"127.{number}.255.254", KUBELET_PORT)
        except OSError as problem:
            refusal = problem.strerror or str(problem)
    raise ProcesskubeError(f"no free range of loopback addresses from 127.{first}.0.0 to 127.{last}.0.0 ({refusal})")


async def _answer_healthy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(5.0):
            await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nok\n")
        await writer.drain()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as problem:
        log.debug("a health check failed before its answer was sent", extra={"error": str(problem)})
    finally:
        writer.close()


def _memory_kib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024


def _seconds_stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
