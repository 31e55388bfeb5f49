"""Measures the resources that one operator needs for many pools: while they are created, at rest, after a restart, and
with many pods.

    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.operator_pools [PART …] [--pools 300] [--instances 50]

It runs a real Kubernetes API (the sandbox's), a real control API on a real Postgres, and the operator as a process with
its own settings. Only the kubelet is a fake: every pod becomes ready within about a second. The parts:

create   `--pools` pools of one instance are created at once while the operator runs. The time is measured until every
         pool was reconciled once (its status has its generation), and until every pool is Ready.
restart  The operator is stopped and started. The time is measured until it has reported every pool once to the
         control API.
rest     Nothing happens for `--rest-seconds`. The CPU time of all processes and the operator's memory are measured. A
         settled pool is reported to the control API every 10 s and read every 60 s, so measure for minutes.
delete   All pools are deleted at once. The time is measured until they are gone.
steady   A third as many pools (100 of 300) of `--instances` instances each are prebuilt: pods and pools are put into
         the Kubernetes API as an operator would have left them, and no router runs. The figures are the same as for
         rest and restart.
large    One pool of `--large` instances is prebuilt in the same way. The figures are the same as for steady.

A proxy counts the requests that the operator sends to the Kubernetes API. The CPU time of the proxy is counted as CPU
time of the benchmark.

Without a PART, all parts are measured. Progress goes to stderr, the figures to stdout as JSON. Seconds are elapsed
time, so measure on an idle machine. The CPU seconds depend less on the machine's other work. They are given for every
process, because all processes share the cores. If their sum is twice the elapsed seconds, two cores were fully used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from benchmarks.command_line import above_zero, count, end_everything_when_ended
from benchmarks.costs import cpu_seconds
from benchmarks.pools_seen import VIEWER, child_running, memory_mb, pools_of, ready, reconciled, states_taken

from fairlead.instances import InstanceState, Role
from fairlead.pools import parse_spec
from fairlead_operator.manifests import pod
from fairlead_operator.pod_patches import state_annotations
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.times import format_time
from fairlead_testing.running.operator_process import POOLS, OperatorProcess, running_kubernetes_api
from fairlead_testing.running.postgres import PostgresProcess
from fairlead_testing.running.recording_proxy import RecordingProxy, recording_proxy
from fairlead_testing.worlds.pod_phases import running_pod_phases
from processkube.testing.clients import KubernetesClient
from processkube.testing.ports import free_port

TOKEN = "benchmark-operator-0123456789"
LIMIT_SECONDS = 900.0
PARTS = ("create", "restart", "rest", "delete", "steady", "large")
PREBUILT = {"steady", "large"}
THREADS = 4
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/fairlead-operator"


def say(words: str) -> None:
    """Print progress with the time."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


def wait(look: Callable[[], float], wanted: float, wish: str, pause: float = 1.0) -> None:
    """Wait until `look` returns at least `wanted`, and print the progress. Raises SystemExit after LIMIT_SECONDS."""
    deadline, told = time.monotonic() + LIMIT_SECONDS, time.monotonic()
    while (found := look()) < wanted:
        if time.monotonic() > deadline:
            raise SystemExit(f"it never came to this within {LIMIT_SECONDS:.0f} s: {wish} ({found:.0f} of {wanted:.0f})")
        if time.monotonic() - told > 5:
            told = time.monotonic()
            say(f"{wish}: {found:.0f} of {wanted:.0f}")
        time.sleep(pause)


@contextmanager
def running_control_api(folder: Path, kubeconfig: str) -> Iterator[tuple[str, int]]:
    """Run Postgres and the control API, and yield the API's address and process id."""
    server = PostgresProcess(folder, settings={"max_connections": "100"})
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")},
        "FAIRLEAD_DATABASE_URL": server.url.replace("postgresql://", "postgresql+psycopg://"),
        "FAIRLEAD_BOOTSTRAP_TOKENS": f"system-operator:operator:{TOKEN},viewer:bench:{VIEWER}",
        "FAIRLEAD_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "KUBECONFIG": kubeconfig,
    }
    command = [sys.executable, "-P", "-m", "fairlead_api.main", "--host", "127.0.0.1", "--port", str(port)]
    server.start()
    try:
        with (
            (folder / "api.log").open("wb") as log,
            subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT) as process,
        ):
            try:
                wait(lambda: int(answers(f"http://127.0.0.1:{port}/readyz")), 1, f"the control API is ready ({folder / 'api.log'})")
                yield f"http://127.0.0.1:{port}", process.pid
            finally:
                process.terminate()
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
    finally:
        server.stop()


def answers(url: str) -> bool:
    """Return whether a GET of this address gets the status 200."""
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def name_of(number: int) -> str:
    """Return the name of the pool with this number."""
    return f"bench-{number:03}"


def pool(number: int, replicas: int = 1) -> dict[str, Any]:
    """Return the manifest of the pool with this number."""
    roles = [{"name": "both", "minReplicas": 1, "maxReplicas": max(64, replicas)}]
    engine, routing = {"type": "simulated"}, {"policy": "fairlead"}
    spec = {"model": "bench/model", "replicas": replicas, "roles": roles, "engine": engine, "routing": routing}
    metadata = {"name": name_of(number), "namespace": "default"}
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePool", "metadata": metadata, "spec": spec}


@dataclass(slots=True, kw_only=True)
class Bench:
    """The running processes of the benchmark, and its figures by name."""

    client: KubernetesClient
    operator: OperatorProcess
    url: str
    api: int
    pools: int
    instances: int
    rest_seconds: float
    large: int
    proxy: RecordingProxy
    figures: dict[str, float] = field(default_factory=dict)

    def run(self, parts: Iterable[str]) -> None:
        """Run the parts in their order."""
        wanted = set(parts)
        if wanted - PREBUILT:
            with running_pod_phases(self.client, pause=1.0):
                self.create()
                if "restart" in wanted:
                    self.restart("restart", self.pools)
                if "rest" in wanted:
                    self.rest("rest")
                if wanted & {"delete", *PREBUILT}:
                    self.delete()
                self.operator.kill()
        if "steady" in wanted:
            self.prebuilt("steady", max(1, self.pools // 3), self.instances)
        if "large" in wanted:
            self.prebuilt("large", 1, self.large)

    def pid(self) -> int:
        """Return the operator's process id."""
        assert self.operator.process is not None
        return self.operator.process.pid

    def is_led(self) -> bool:
        """Return whether an operator holds the Lease."""
        response = self.client.session.get(self.client.server + LEASE, timeout=30)
        return response.status_code == 200 and bool(response.json()["spec"].get("holderIdentity"))

    def used(self) -> dict[str, float]:
        """Return the CPU seconds that every running process has used so far, by the name of the process.

        If the environment names a Kubernetes API, its process is left out.
        """
        server, database = child_running("processkube.kubernetes_api.main"), child_running("bin/postgres")
        found = {"operator": self.pid(), "control API": self.api, "Kubernetes API": server, "Postgres": database}
        return {**{name: cpu_seconds(pid) for name, pid in found.items() if pid is not None}, "benchmark": time.process_time()}

    def note_used(self, when: str, before: dict[str, float]) -> None:
        """Record the CPU seconds that each process has used since `before`."""
        self.figures |= {f"{when}: CPU s of {name}": seconds - before[name] for name, seconds in self.used().items()}

    def for_all(self, what: Callable[[int], object], count: int) -> None:
        """Call the function `what` with every number below `count`, a few calls at a time."""
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(what, range(count)))

    def wait_until_watched(self) -> None:
        """Wait until the operator watches pools: it creates an extra pool, waits until it is reconciled, and deletes it
        again.
        """
        self.client.call("POST", POOLS, pool(self.pools))
        wait(lambda: reconciled(self.client), 1, "create: the operator watches")
        self.client.call("DELETE", f"{POOLS}/{name_of(self.pools)}")
        wait(lambda: not pools_of(self.client), 1, "create: the first pool is gone")

    def create(self) -> None:
        say(f"create: {self.pools} pools")
        self.operator.start()
        wait(self.is_led, 1, "create: the operator leads")
        self.wait_until_watched()
        began, before = time.monotonic(), self.used()
        self.for_all(lambda number: self.client.call("POST", POOLS, pool(number)), self.pools)
        self.figures["create, s until all exist"] = time.monotonic() - began
        wait(lambda: reconciled(self.client), self.pools, "create: pools reconciled once")
        self.figures["create, s until all are reconciled once"] = time.monotonic() - began
        self.note_used("create until then", before)
        wait(lambda: ready(self.client), self.pools, "create: pools Ready")
        self.figures["create, s until all are Ready"] = time.monotonic() - began
        self.note_used("create until Ready", before)

    def restart(self, name: str, pools: int) -> None:
        say(name)
        time.sleep(10)
        assert self.operator.stop() == 0
        before, began, requests = states_taken(self.url), time.monotonic(), self.proxy.requests
        self.operator.start()
        wait(lambda: states_taken(self.url) - before, pools, f"{name}: pools looked at", 0.1)
        self.figures[f"{name}, s"] = time.monotonic() - began
        self.figures[f"{name}, operator CPU s"] = cpu_seconds(self.pid())
        self.figures[f"{name}, requests"] = self.proxy.requests - requests
        self.figures[f"{name}, operator memory MB"] = memory_mb(self.pid())

    def rest(self, name: str) -> None:
        say(f"{name}: {self.rest_seconds:.0f} s")
        time.sleep(30)
        before, states, began, requests = self.used(), states_taken(self.url), time.monotonic(), self.proxy.requests
        time.sleep(self.rest_seconds)
        passed = time.monotonic() - began
        self.figures |= {f"{name}: % of a core of {one}": (used - before[one]) / passed * 100 for one, used in self.used().items()}
        self.figures[f"{name}, states per second"] = (states_taken(self.url) - states) / passed
        self.figures[f"{name}, requests a minute"] = (self.proxy.requests - requests) / passed * 60
        self.figures[f"{name}, operator memory MB"] = memory_mb(self.pid())

    def delete(self) -> None:
        say("delete")
        before, began = self.used(), time.monotonic()
        self.for_all(lambda number: self.client.session.delete(f"{self.client.server}{POOLS}/{name_of(number)}", timeout=60), self.pools)
        wait(lambda: -len(pools_of(self.client)), 0, "delete: pools gone (negative: still there)")
        self.figures["delete, s"] = time.monotonic() - began
        self.note_used("delete", before)

    def prebuilt(self, name: str, pools: int, instances: int) -> None:
        """Make settled pools with their pods, one pool after the other, then start the operator."""
        done, first = 0, 1000 if name == "steady" else 5000
        for number in range(pools):
            body = pool(first + number, instances)
            made = self.client.call("POST", POOLS, body)
            identity = PoolIdentity(namespace="default", name=body["metadata"]["name"], uid=made["metadata"]["uid"])
            self.for_all(lambda index, identity=identity, spec=body["spec"]: self.prebuild(identity, spec, index), instances)  # type: ignore[misc]
            done += instances
            if number % 10 == 9:
                say(f"{name}: {done} of {pools * instances} pods prebuilt")
        began = ready(self.client)
        self.operator.start()
        wait(lambda: ready(self.client) - began, pools, f"{name}: pools Ready")
        self.rest(name)
        self.restart(f"{name}, restart", pools + began)
        self.operator.kill()

    def prebuild(self, identity: PoolIdentity, spec: dict[str, Any], index: int) -> None:
        """Add to the Kubernetes API the pod of an instance that already serves."""
        now = format_time(time.time() - 60)
        body = pod(
            identity,
            parse_spec(spec),
            role=Role.BOTH,
            ordinal=index + 1,
            image=self.operator.settings["FAIRLEAD_ENGINE_IMAGE"],
            reason="Prebuilt",
            now=now,
        )
        body["metadata"]["annotations"] |= state_annotations(InstanceState.SERVING, now, "Prebuilt")
        path = "/api/v1/namespaces/default/pods"
        self.client.call("POST", path, body)
        address = f"127.{60 + index // 200}.{int(identity.name[-3:]) % 200}.{index % 200 + 1}"
        status = {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
        self.client.merge(f"{path}/{body['metadata']['name']}/status", {"status": status})


def measure(parts: Iterable[str], pools: int, instances: int, large: int, rest_seconds: float, folder: Path) -> None:
    """Print the figures of the parts by name. If a part fails, print the figures found so far."""
    (folder / "kubernetes").mkdir()
    (folder / "pg").mkdir()
    with (
        running_kubernetes_api(folder / "kubernetes") as kubeconfig,
        running_control_api(folder / "pg", kubeconfig) as (url, api),
        ExitStack() as proxies,
    ):
        settings = {
            "FAIRLEAD_API_TOKEN": TOKEN,
            "FAIRLEAD_OPERATOR_RESYNC_SECONDS": "10",
            "FAIRLEAD_ENGINE_IMAGE": "fairlead/engine:bench",
        }
        client = KubernetesClient.of(kubeconfig)
        proxy = proxies.enter_context(recording_proxy(client, folder))
        proxy.start()
        operator = OperatorProcess(kubeconfig=str(proxy.kubeconfig), api_url=url, log=folder / "operator.log", settings=settings)
        bench = Bench(
            client=client,
            proxy=proxy,
            large=large,
            operator=operator,
            url=url,
            api=api,
            pools=pools,
            instances=instances,
            rest_seconds=rest_seconds,
        )
        try:
            bench.run(parts)
        finally:
            operator.kill()
            print(json.dumps({name: round(value, 2) for name, value in bench.figures.items()}, indent=1), flush=True)


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--pools", type=count, default=300)
    parser.add_argument("--instances", type=count, default=50, help="number of instances of each pool of the part steady")
    parser.add_argument("--large", type=count, default=300, help="instances of the pool of the part large")
    parser.add_argument("--rest-seconds", type=above_zero, default=60.0)
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    end_everything_when_ended()
    with tempfile.TemporaryDirectory(prefix="fairlead-pools-") as folder:
        measure(arguments.parts or PARTS, arguments.pools, arguments.instances, arguments.large, arguments.rest_seconds, Path(folder))


if __name__ == "__main__":
    main()
