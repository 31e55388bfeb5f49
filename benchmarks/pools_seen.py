"""The objects that the benchmark of many pools reads: pools in the Kubernetes API, requests at the control API, and
processes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import httpx
import msgspec

from fairlead_testing.running.operator_process import POOLS
from processkube.testing.clients import KubernetesClient

VIEWER = "benchmark-viewer-0123456789"
"""The token with which the benchmark reads the control API."""


class Metadata(msgspec.Struct):
    """The fields of a pool's metadata that are read."""

    generation: int


class Condition(msgspec.Struct):
    """The fields of a condition that are read."""

    type: str
    status: str


class Status(msgspec.Struct):
    """The fields of a pool's status that are read."""

    observedGeneration: int = 0  # noqa: N815 - Kubernetes' name
    conditions: list[Condition] = []


class Pool(msgspec.Struct):
    """The fields of a pool that are read. Decoding whole objects of hundreds of pools repeatedly would itself be a
    load.
    """

    metadata: Metadata
    status: Status = msgspec.field(default_factory=Status)


class Pools(msgspec.Struct):
    """A list of pools."""

    items: list[Pool]


def pools_of(client: KubernetesClient) -> list[Pool]:
    """Return all pools of the namespace."""
    response = client.session.get(client.server + POOLS, timeout=30)
    response.raise_for_status()
    return msgspec.json.decode(response.content, type=Pools).items


def reconciled(client: KubernetesClient) -> int:
    """Return the number of pools whose status reports their newest generation."""
    return sum(pool.status.observedGeneration == pool.metadata.generation for pool in pools_of(client))


def ready(client: KubernetesClient) -> int:
    """Return the number of pools that are Ready."""
    return sum(any(one.type == "Ready" and one.status == "True" for one in pool.status.conditions) for pool in pools_of(client))


def child_running(command: str) -> int | None:
    """Return the process id of this program's child that has this text in its command line; None if there is none."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text(encoding="utf-8").rpartition(") ")[2].split()[1])
            if parent == os.getpid() and command in stat.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode():
                return int(stat.parent.name)
    return None


def memory_mb(pid: int) -> float:
    """Return the resident memory in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def states_taken(url: str) -> float:
    """Return the number of requests so far that sent a pool's state to the control API."""
    text = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {VIEWER}"}, timeout=30, trust_env=False).text
    lines = [line for line in text.splitlines() if "_count{" in line or "_total{" in line]
    return max((float(line.rpartition(" ")[2]) for line in lines if "/state" in line and 'method="PUT"' in line), default=0.0)
