"""A whole sandbox for tests: started by the `fairlead` command, called over HTTP, disturbed by signals."""

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import yaml

from fairlead_sandbox.marks import marked_processes
from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_sandbox.state_directory import RunNote, StateDirectory, api_urls
from fairlead_testing.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[4]
FAIRLEAD = (sys.executable, "-m", "fairlead_cli.main")
PYTHONPATH = ":".join(
    str(ROOT / folder)
    for folder in ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "sandbox", "serve", "cluster/src")
)
POOLS = "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools"

Value = TypeVar("Value")


def until(seen: Callable[[], Value | None], what: str, seconds: float = PATIENCE_SECONDS, pause: float = 0.2) -> Value:
    """Call `seen` every `pause` seconds and return its first truthy value; fails the test after `seconds` with the last
    value.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = seen()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s, last seen {value!r}"
        time.sleep(pause)


def fairlead(
    *arguments: str, timeout: float = 5 * PATIENCE_SECONDS, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the `fairlead` command and return its result when it has ended."""
    return subprocess.run(
        [*FAIRLEAD, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **(environment or {})},
        cwd=ROOT,
        check=False,
    )


@cache
def asking() -> httpx.Client:
    """Return a client for many requests, because making a client takes longer than most requests.

    Each request has a connection of its own, because the process at the address may have been replaced.
    """
    return httpx.Client(timeout=PATIENCE_SECONDS, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


def patiently(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """Return the answer to a request. The request is repeated while its answer says to try again later."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = ask()
        if answer.status_code != 503 or "retry-after" not in answer.headers or time.monotonic() > deadline:
            return answer
        time.sleep(1.0)


@cache
def kubernetes_client(kubeconfig: str) -> httpx.Client:
    """Return a client for the text of a kubeconfig. It keeps its connections, because encrypted connections are slow to
    make.
    """
    document = yaml.safe_load(kubeconfig)
    cluster = document["clusters"][0]["cluster"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    headers = {"authorization": f"Bearer {document['users'][0]['user']['token']}"}
    return httpx.Client(base_url=cluster["server"], headers=headers, verify=context, timeout=PATIENCE_SECONDS, trust_env=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSandbox:
    """A running sandbox."""

    state: StateDirectory
    started: "subprocess.CompletedProcess[str] | None" = None

    @property
    def note(self) -> RunNote:
        note = self.state.read_run()
        assert note is not None
        return note

    def url(self, name: str) -> str:
        return self.note.urls[name]

    @property
    def routers(self) -> tuple[str, ...]:
        return tuple(url for name, url in sorted(self.note.urls.items()) if name.startswith("router"))

    @property
    def has_own_kubernetes(self) -> bool:
        """Whether its Kubernetes API is the sandbox's own, not a cluster's (FAIRLEAD_KUBECONFIG)."""
        return any(process.name == "kubernetes-api" for process in self.note.processes)

    @property
    def metrics_pages(self) -> tuple[str, ...]:
        """The URLs of the routers' metrics pages, in the order of `routers`."""
        return tuple(url for name, url in sorted(self.note.urls.items()) if name.startswith("metrics-of-router"))

    @property
    def kubeconfig(self) -> Path:
        return self.state.kubeconfig

    def ask(self, path: str, **query: str | int) -> Any:
        """Return the decoded answer of the public API to a GET by an admin."""
        answer = self.request("GET", path, params=query)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:300]}"
        return answer.json()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request to the first API that accepts the connection; repeat it while the answer says to try again
        later.
        """
        return patiently(lambda: self._request(method, path, **options))

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {load_or_create(self.state.secrets).admin}"}
        *others, last = api_urls(self.note.urls)
        for url in others:
            with suppress(httpx.ConnectError):
                return asking().request(method, url + path, headers=headers, **options)
        return asking().request(method, last + path, headers=headers, **options)

    def everything(self, path: str, **query: str | int) -> list[dict[str, Any]]:
        """Return the items of all pages of a list."""
        items: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = self.ask(path, limit=100, **query, **({"cursor": cursor} if cursor else {}))
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return items

    def kubernetes(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> httpx.Response:
        """Send a request to the sandbox's Kubernetes API as its admin."""
        content = None if body is None else json.dumps(body)
        client = kubernetes_client(self.kubeconfig.read_text())
        return client.request(method, path, content=content, headers={"content-type": content_type})

    @contextmanager
    def watching_pods(self, pool: str) -> Iterator[set[str]]:
        """Yield a set that collects the uids of all pods that the pool gets during the block, from a watch of the
        Kubernetes API.
        """
        seen: set[str] = set()
        query = {"watch": "true", "labelSelector": f"fairlead.dev/pool={pool}"}
        client = kubernetes_client(self.kubeconfig.read_text())
        with client.stream("GET", "/api/v1/namespaces/default/pods", params=query) as answer:
            answer.raise_for_status()

            def follow() -> None:
                with suppress(httpx.HTTPError, httpx.StreamError):  # the block has ended
                    for line in answer.iter_lines():
                        event = json.loads(line)
                        if event["type"] == "ADDED":
                            seen.add(event["object"]["metadata"]["uid"])

            thread = threading.Thread(target=follow, daemon=True)
            thread.start()
            yield seen
            assert thread.is_alive(), "the watch broke off"
            answer.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            thread.join()

    def apply_pool(self, document: Mapping[str, Any]) -> httpx.Response:
        """Server-side apply an InferencePool in the namespace default, as kubectl does."""
        name = document["metadata"]["name"]
        path = f"{POOLS}/{name}?fieldManager=kubectl&force=true&fieldValidation=Strict"
        return self.kubernetes("PATCH", path, document, "application/apply-patch+yaml")

    def scale_pool(self, name: str, replicas: int) -> httpx.Response:
        """Scale a pool as `kubectl scale` does."""
        return self.kubernetes("PATCH", f"{POOLS}/{name}/scale", {"spec": {"replicas": replicas}}, "application/merge-patch+json")

    def delete_pool(self, name: str) -> None:
        """Delete the pool without waiting for its instances to drain and end."""
        self.kubernetes("DELETE", f"{POOLS}/{name}").raise_for_status()

    def pool(self, name: str) -> dict[str, Any]:
        answer = self.kubernetes("GET", f"{POOLS}/{name}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        for condition in self.pool(name).get("status", {}).get("conditions", []):
            if condition["type"] == kind:
                return dict(condition)
        return {}

    def until_ready(self, name: str, replicas: int) -> None:
        """Wait until the pool is Ready, no instance drains, and all routers have a table with exactly this many serving
        instances.
        """

        def settled() -> bool:
            if self.condition(name, "Ready").get("status") != "True":
                return False
            known = self.ask(f"/v1/pools/default/{name}")
            live = [instance for instance in known["instances"] if instance["state"] != "Gone"]
            serving = [instance for instance in live if instance["state"] == "Serving"]
            return bool(known["table_acknowledged"]) and len(live) == len(serving) == replicas

        until(settled, f"pool {name} ready with {replicas}", 2 * PATIENCE_SECONDS)

    def pid(self, process: str) -> int:
        for note in self.note.processes:
            if note.name == process and note.pid is not None:
                return note.pid
        raise AssertionError(f"no process {process} in {[note.name for note in self.note.processes]}")

    def kill(self, process: str) -> None:
        """Send SIGKILL to the process, and return when the supervisor has started a successor that is ready."""
        self.until_replaced(process, self.signal(process, signal.SIGKILL))

    def signal(self, process: str, number: int) -> int:
        """Send a signal to a process and return its pid."""
        pid = self.pid(process)
        os.kill(pid, number)
        return pid

    def engine_pids(self, pool: str) -> list[int]:
        """Return the pids of the pool's engine processes on this machine."""
        found = []
        for identity in marked_processes(self.state.root):
            command = Path(f"/proc/{identity.pid}/cmdline").read_bytes().split(b"\0")
            if b"fairlead_simulator.engine_server" in command and f"model/{pool}".encode() in command:
                found.append(identity.pid)
        return found

    @contextmanager
    def paused(self, process: str) -> Iterator[None]:
        """Suspend the process during the block."""
        pid = self.signal(process, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def until_replaced(self, process: str, before: int) -> None:
        """Wait until the supervisor has a ready successor of the process that had the pid `before`."""

        def back() -> bool:
            return any(note.name == process and note.pid not in {None, before} and note.state == "ready" for note in self.note.processes)

        until(back, f"{process} restarted", 3 * PATIENCE_SECONDS)

    def replay(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start `fairlead replay` against all routers of the sandbox."""
        urls = [argument for url in self.routers for argument in ("--url", url)]
        return subprocess.Popen(
            [*FAIRLEAD, "replay", *urls, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
            cwd=ROOT,
        )


@contextmanager
def running_sandbox(directory: Path, *arguments: str) -> Iterator[RunningSandbox]:
    """Run `fairlead up --detach` in `directory`, and `fairlead down` after the block, which must leave no process."""
    state = StateDirectory(root=directory.resolve())
    started = fairlead("up", "--detach", "--state-dir", str(directory), "--no-load", "--no-demo", *arguments)
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        yield RunningSandbox(state=state, started=started)
    finally:
        stopped = fairlead("down", "--state-dir", str(directory))
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr


def is_listening(url: str) -> bool:
    """Return whether a process accepts connections at the URL's host and port."""
    parts = urlsplit(url)
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((parts.hostname or "127.0.0.1", parts.port or 80)) == 0


def result_of(replay: "subprocess.Popen[str]", json_file: Path, code: int = 0) -> dict[str, Any]:
    """Wait until a replay ends, check its exit code, and return its JSON."""
    output, _ = replay.communicate(timeout=5 * PATIENCE_SECONDS)
    assert replay.returncode == code, output[-2000:]
    return dict(json.loads(json_file.read_text()))
