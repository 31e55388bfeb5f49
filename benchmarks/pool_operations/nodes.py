"""A second node on the same machine as the sandbox's own node, and its loss."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.pool_operations.loaded_pools import wait_until

from fairlead_sandbox.process_table import kubelet_command
from fairlead_testing.running.sandbox import RunningSandbox

SECOND_NODE = "node-2"
READY_SECONDS = 60.0


@contextmanager
def second_node(sandbox: RunningSandbox, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a second kubelet, which gets part of the new pods. It is killed at the end of the block, if not before."""
    kubeconfig = sandbox.state.kubernetes / "kubeconfig-kubelet"
    command = kubelet_command(kubeconfig, directory / SECOND_NODE, "--node", SECOND_NODE)
    with (directory / f"{SECOND_NODE}.log").open("wb") as log:
        kubelet = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_until(lambda: _is_ready(sandbox), f"{SECOND_NODE} is ready", READY_SECONDS)
        yield kubelet
    finally:
        lose(kubelet)


def _is_ready(sandbox: RunningSandbox) -> bool:
    answer = sandbox.kubernetes("GET", f"/api/v1/nodes/{SECOND_NODE}")
    conditions = answer.json()["status"].get("conditions", []) if answer.status_code == 200 else []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def lose(kubelet: subprocess.Popen[bytes]) -> None:
    """Kill the kubelet and all its engines at once, as a loss of power does."""
    if kubelet.poll() is not None:
        return
    for process in _with_descendants(kubelet.pid):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    kubelet.wait()


def _with_descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found
