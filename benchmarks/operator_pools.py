"""Measures what one operator needs for many pools: until all serve, after a restart, at rest, and until all are gone.

    PYTHONPATH=tests/support .venv/bin/python benchmarks/operator_pools.py [--pools 300] [--rest-seconds 30]

A real Kubernetes API (the sandbox's), a real control API on a real Postgres, the operator as a process with its own
settings; only the kubelet is pretended: every pod becomes ready within a tenth of a second or so. Four parts:

settle   300 pools of one instance are created while the operator is away; from its start until every pool is Ready.
restart  the operator is stopped and started; until it has looked at every pool once (the control
         API has heard of each again).
rest     nothing happens for `--rest-seconds`; calls per second to the Kubernetes API, and the operator's CPU.
delete   all pools are deleted at once; until they are gone.

Seconds are those of the clock, so compare only runs made in turns on the same machine; the operator's CPU seconds
depend less on its neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from fairlead_testing.running.operator_process import POOLS, OperatorProcess, free_port, running_kubernetes_api
from fairlead_testing.running.postgres import PostgresProcess
from fairlead_testing.worlds.pod_phases import KubernetesClient, running_pod_phases

TOKEN = "benchmark-operator-0123456789"
VIEWER = "benchmark-viewer-0123456789"
LIMIT_SECONDS = 600.0


def wait(look: Callable[[], bool], wish: str, pause: float = 0.5) -> None:
    """Wait until `look` returns True; ends the program when it never does."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not look():
        if time.monotonic() > deadline:
            raise SystemExit(f"it never came to this within {LIMIT_SECONDS:.0f} s: {wish}")
        time.sleep(pause)


@contextmanager
def running_control_api(folder: Path, kubeconfig: str) -> Iterator[str]:
    """Postgres and the control API; yields its address."""
    server = PostgresProcess(folder, settings=["listen_addresses=", "max_connections=100"])
    server.start()
    port = free_port()
    environment = {
        **os.environ,
        "FAIRLEAD_DATABASE_URL": server.url.replace("postgresql://", "postgresql+psycopg://"),
        "FAIRLEAD_BOOTSTRAP_TOKENS": f"system-operator:operator:{TOKEN},viewer:bench:{VIEWER}",
        "FAIRLEAD_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "KUBECONFIG": kubeconfig,
    }
    command = [sys.executable, "-P", "-m", "fairlead_api.main", "--host", "127.0.0.1", "--port", str(port)]
    with (
        (folder / "api.log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            wait(lambda: answers(f"http://127.0.0.1:{port}/readyz"), f"the control API is ready ({folder / 'api.log'})")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=20)
            server.stop()


def answers(url: str) -> bool:
    """Whether a GET is answered 200."""
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def pool(number: int) -> dict[str, Any]:
    """The manifest of one pool."""
    spec = {"model": "bench/model", "replicas": 1, "engine": {"type": "simulated"}, "routing": {"policy": "fairlead"}}
    metadata = {"name": f"bench-{number:03}", "namespace": "default"}
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePool", "metadata": metadata, "spec": spec}


def ready(client: KubernetesClient) -> int:
    """Pools that are Ready."""
    conditions = [(item.get("status") or {}).get("conditions") or [] for item in client.call("GET", POOLS)["items"]]
    return sum(any(one["type"] == "Ready" and one["status"] == "True" for one in found) for found in conditions)


def cpu_seconds(process: subprocess.Popen[bytes] | None) -> float:
    """User and system time a process has used."""
    assert process is not None
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def states_taken(url: str) -> float:
    """Requests that brought a pool's state to the control API so far."""
    text = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {VIEWER}"}, timeout=30, trust_env=False).text
    lines = [line for line in text.splitlines() if "_count{" in line or "_total{" in line]
    return max((float(line.rpartition(" ")[2]) for line in lines if "/state" in line and 'method="PUT"' in line), default=0.0)


def measure(pools: int, rest_seconds: float, folder: Path) -> dict[str, float]:
    """All four parts; figures by name."""
    figures: dict[str, float] = {}
    (folder / "kubernetes").mkdir()
    (folder / "pg").mkdir()
    with running_kubernetes_api(folder / "kubernetes") as kubeconfig, running_control_api(folder / "pg", kubeconfig) as url:
        client = KubernetesClient.of(kubeconfig)
        operator = OperatorProcess(
            kubeconfig=kubeconfig,
            api_url=url,
            log=folder / "operator.log",
            settings={"FAIRLEAD_API_TOKEN": TOKEN, "FAIRLEAD_OPERATOR_RESYNC_SECONDS": "10"},
        )
        for number in range(pools):
            client.call("POST", POOLS, pool(number))
        with running_pod_phases(client):
            try:
                run_parts(operator, client, url, pools, rest_seconds, figures)
            finally:
                operator.kill()
    return figures


def run_parts(
    operator: OperatorProcess, client: KubernetesClient, url: str, pools: int, rest_seconds: float, figures: dict[str, float]
) -> None:
    """The four parts, one after the other."""
    began = time.monotonic()
    operator.start()
    wait(lambda: ready(client) == pools, "all pools are Ready")
    figures["settle, s"] = time.monotonic() - began
    figures["settle, operator CPU s"] = cpu_seconds(operator.process)
    time.sleep(10)
    assert operator.stop() == 0
    before, began = states_taken(url), time.monotonic()
    operator.start()
    wait(lambda: states_taken(url) - before >= pools, "the control API has heard of every pool again")
    figures["restart, s"] = time.monotonic() - began
    figures["restart, operator CPU s"] = cpu_seconds(operator.process)
    time.sleep(15)
    cpu, before = cpu_seconds(operator.process), states_taken(url)
    time.sleep(rest_seconds)
    figures["rest, operator CPU ms per pool and 10 s"] = (cpu_seconds(operator.process) - cpu) / rest_seconds * 10 / pools * 1000
    figures["rest, states per second"] = (states_taken(url) - before) / rest_seconds
    cpu, began = cpu_seconds(operator.process), time.monotonic()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: client.session.delete(f"{client.server}{POOLS}/bench-{number:03}", timeout=60), range(pools)))
    wait(lambda: not client.call("GET", POOLS)["items"], "all pools are gone")
    figures["delete, s"] = time.monotonic() - began
    figures["delete, operator CPU s"] = cpu_seconds(operator.process) - cpu


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=int, default=300)
    parser.add_argument("--rest-seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlead-pools-") as folder:
        figures = measure(arguments.pools, arguments.rest_seconds, Path(folder))
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}, indent=1))


if __name__ == "__main__":
    main()
