"""`fairlead up`, `status`, `logs` and `down`, as a newcomer uses them."""

import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fairlead_sandbox.marks import marked_processes
from fairlead_sandbox.process_table import ProcessCounts, preferred_ports
from fairlead_sandbox.state_directory import RunNote, StateDirectory
from fairlead_testing.running.sandbox import RunningSandbox, fairlead, is_listening, running_sandbox


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


QUIET_PORTS = range(21_000, 31_000, 50)
"""First ports of ranges that no sandbox prefers and from which the kernel assigns none."""


@pytest.fixture
def taken() -> Iterator[int]:
    """Yield a port, the first of a quiet range, on which this test listens until it ends."""
    for port in random.sample(QUIET_PORTS, len(QUIET_PORTS)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            yield port
            return


def test_up_goes_round_a_taken_port_and_down_leaves_no_process_and_no_port_and_state_survives_a_restart(taken: int, tmp_path: Path) -> None:
    directory = StateDirectory(root=tmp_path)
    directory.create()
    directory.write_run(RunNote(phase="stopped", ports=dict.fromkeys(preferred_ports(ProcessCounts(routers=2)), taken)))
    with running_sandbox(tmp_path) as first:
        urls = dict(first.note.urls)
        ours = [url for name, url in urls.items() if name != "kubernetes-api" or first.has_own_kubernetes]
        assert sorted(urlsplit(url).port or 0 for url in ours)[0] > taken
        assert is_listening(urls["api"])
        created = first.kubernetes(
            "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "kept"}, "apiVersion": "v1", "kind": "ConfigMap"}
        )
        assert created.status_code == 201
        people = first.ask("/v1/audit")["total"]
    assert marked_processes(tmp_path.resolve()) == []
    assert not [url for url in ours if is_listening(url)]
    with running_sandbox(tmp_path) as second:
        assert second.kubernetes("GET", "/api/v1/namespaces/default/configmaps/kept").status_code == 200
        assert second.ask("/v1/audit")["total"] >= people
        second.kubernetes("DELETE", "/api/v1/namespaces/default/configmaps/kept").raise_for_status()
        assert second.note.urls == urls


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
