"""The server as a process: starting, stopping, and its data after a kill."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import yaml

from processkube.testing.ports import free_port
from processkube.testing.waiting import PATIENCE_SECONDS

MODULE = "processkube.kubernetes_api.main"


@contextmanager
def process(state: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    command = [sys.executable, "-m", MODULE, "--state-dir", str(state), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            line = _stream(child.stdout).readline()
            assert line.startswith("ready https://127.0.0.1:"), line + _stream(child.stderr).read()
            with client(state, line.split()[1]) as api:
                yield child, api
        finally:
            child.kill()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def client(state: Path, url: str) -> httpx.Client:
    token = yaml.safe_load((state / "kubeconfig").read_text())["users"][0]["user"]["token"]
    context = ssl.create_default_context(cafile=str(state / "pki" / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, verify=context, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False)


def test_nothing_acknowledged_is_lost_by_kill_nine(tmp_path: Path) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    with process(tmp_path, free_port()) as (child, api):  # one that no connection takes meanwhile
        url = api.base_url
        answers = [api.post(maps, json={"metadata": {"name": f"c{number}"}}) for number in range(50)]
        assert {answer.status_code for answer in answers} == {201}
        api.delete(f"{maps}/c0")
        first = answers[0].json()["metadata"]["resourceVersion"]
        listed = api.get(maps).json()
        last = listed["metadata"]["resourceVersion"]
        child.send_signal(signal.SIGKILL)
        child.wait()
    with process(tmp_path) as (child, api):
        assert api.base_url == url
        assert api.get(maps).json() == listed
        old = api.get(maps, params={"watch": "true", "resourceVersion": first, "timeoutSeconds": "1"}).json()
        assert (old["type"], old["object"]["code"]) == ("ERROR", 410)
        made = api.post(maps, json={"metadata": {"name": "after"}}).json()
        assert int(made["metadata"]["resourceVersion"]) > int(last)
        current = api.get(maps, params={"watch": "true", "resourceVersion": last, "timeoutSeconds": "1"}).json()
        assert (current["type"], current["object"]["metadata"]["name"]) == ("ADDED", "after")


def test_custom_resources_are_served_again_after_a_restart(tmp_path: Path) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "a.dev", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"}, "versions": [version]}
    with process(tmp_path, free_port()) as (child, api):
        api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json={"metadata": {"name": "things.a.dev"}, "spec": spec})
        assert api.post("/apis/a.dev/v1/things", json={"metadata": {"name": "x"}, "spec": {"k": 1}}).status_code == 201
        child.terminate()
        assert child.wait(PATIENCE_SECONDS) == 0
    with process(tmp_path) as (_, api):
        assert api.get("/apis/a.dev/v1/things/x").json()["spec"] == {"k": 1}


def test_a_termination_closes_open_watches(tmp_path: Path) -> None:
    with process(tmp_path) as (child, api), api.stream("GET", "/api/v1/namespaces", params={"watch": "true"}) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines))["type"] == "ADDED"
        child.terminate()
        rest = list(lines)
        assert child.wait(PATIENCE_SECONDS) == 0
        assert all(json.loads(line)["type"] == "ADDED" for line in rest)


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", MODULE, "--state-dir", str(tmp_path), "--port", str(port)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"processkube kubernetes-api: --host/--port: '127.0.0.1:{port}' cannot be used; ")
    assert ended.stderr.endswith("(Address already in use)\n")


def test_two_servers_do_not_share_a_state_directory(tmp_path: Path) -> None:
    with process(tmp_path):
        command = [sys.executable, "-m", MODULE, "--state-dir", str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 1
    assert "is in use by another server" in ended.stderr
    assert ended.stderr.count("\n") == 1
