"""`fairlead up`, `status`, `logs` and `down`, as a newcomer meets them."""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fairlead_sandbox.marks import marked_processes
from fairlead_sandbox.ports import claim_ports, is_free
from fairlead_testing.running.sandbox import RunningSandbox, fairlead, is_listening, running_sandbox, until


def test_up_prints_everything_a_newcomer_needs(sandbox: RunningSandbox) -> None:
    assert sandbox.started is not None
    printed = sandbox.started.stdout
    assert sandbox.url("api") in printed
    assert "/login?token=" in printed
    assert "KUBECONFIG" in printed
    for router in sandbox.routers:
        assert router in printed


def test_a_second_up_says_that_one_is_running(sandbox: RunningSandbox) -> None:
    second = fairlead("up", "--detach", "--state-dir", str(sandbox.state.root))
    assert second.returncode == 1
    assert sandbox.url("api") in second.stdout + second.stderr
    assert "Traceback" not in second.stdout + second.stderr


def test_status_and_logs_show_every_process(sandbox: RunningSandbox) -> None:
    status = fairlead("status", "--state-dir", str(sandbox.state.root))
    assert status.returncode == 0
    for process in ("postgres", "kubernetes-api", "kubelet", "api", "operator", "router-0", "router-1"):
        assert process in status.stdout
    logs = fairlead("logs", "--state-dir", str(sandbox.state.root), "api")
    assert logs.returncode == 0
    assert logs.stdout.strip()


@pytest.fixture
def port_8080_is_taken() -> Iterator[None]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claims = claim_ports({"listener": 8080})  # no sandbox that starts now loses the port between choosing and listening
        if claims.ports["listener"] == 8080:  # else another sandbox or program has it, which is as good
            listener.bind(("127.0.0.1", 8080))
            listener.listen()
        claims.release()
        yield


@pytest.mark.usefixtures("port_8080_is_taken")
def test_up_goes_round_a_taken_port_and_down_leaves_no_process_and_no_port_and_state_survives_a_restart(tmp_path: Path) -> None:
    with running_sandbox(tmp_path) as first:
        urls = dict(first.note.urls)
        ours = [url for name, url in urls.items() if name != "kubernetes-api" or first.has_own_kubernetes]
        assert not urls["api"].endswith(":8080")
        assert is_listening(urls["api"])
        created = first.kubernetes(
            "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "kept"}, "apiVersion": "v1", "kind": "ConfigMap"}
        )
        assert created.status_code == 201
        people = first.ask("/v1/audit")["total"]
    assert marked_processes(tmp_path.resolve()) == []
    until(lambda: not [url for url in ours if is_listening(url)], "no port is left")
    free = {name: url for name, url in urls.items() if is_free(urlsplit(url).port or 0)}  # nobody else took it meanwhile
    with running_sandbox(tmp_path) as second:
        assert second.kubernetes("GET", "/api/v1/namespaces/default/configmaps/kept").status_code == 200
        assert second.ask("/v1/audit")["total"] >= people
        second.kubernetes("DELETE", "/api/v1/namespaces/default/configmaps/kept").raise_for_status()
        assert second.note.urls.keys() == urls.keys()
        moved = [url for name, url in free.items() if second.note.urls[name] != url]
        assert len(moved) < len(free)
        assert not [url for url in moved if is_free(urlsplit(url).port or 0)], "a port is left only to somebody who took it meanwhile"


def test_down_without_anything_running_is_fine(tmp_path: Path) -> None:
    assert fairlead("down", "--state-dir", str(tmp_path)).returncode == 0


def test_a_dead_database_url_is_one_clear_line(tmp_path: Path) -> None:
    dead = "postgresql+psycopg://nobody@127.0.0.1:9/none?connect_timeout=2"
    answer = fairlead("up", "--detach", "--state-dir", str(tmp_path), environment={"FAIRLEAD_DATABASE_URL": dead})
    assert answer.returncode == 1
    assert "FAIRLEAD_DATABASE_URL" in answer.stderr
    assert "Traceback" not in answer.stdout + answer.stderr
    assert len(answer.stderr.strip().splitlines()) <= 3
    assert marked_processes(tmp_path.resolve()) == []
