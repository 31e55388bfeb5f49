"""The benchmark of the gateway: which answers count, which other processes run, and whose CPU time is counted."""

import argparse
import math
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import gateway_before
from benchmarks.costs import cpu_seconds, session_cpu_seconds
from benchmarks.gateway import NotReady, check_free, other, others, process, wait_until
from benchmarks.gateway_load import LoadConnection, LoadResults


class Sent:
    """A connection that keeps the bytes that are written to it."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.requests.append(data)


def connection(*, stream: bool) -> tuple[LoadConnection, LoadResults, Sent]:
    results, sent = LoadResults(), Sent()
    made = LoadConnection(b"request", stream, results)
    transport: Any = sent
    made.connection_made(transport)
    return made, results, sent


def test_an_error_in_place_of_a_stream_is_bad_and_the_load_goes_on() -> None:
    made, results, sent = connection(stream=True)
    made.data_received(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{")
    assert results.bad == 0
    made.data_received(b"}")
    assert (results.bad, len(results.total), len(sent.requests)) == (1, 0, 2)


def test_a_stream_is_over_with_its_last_chunk() -> None:
    made, results, sent = connection(stream=True)
    made.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n")
    assert (len(results.total), len(sent.requests)) == (0, 1)
    made.data_received(b"0\r\n\r\n")
    assert (results.bad, len(results.total), len(sent.requests)) == (0, 1, 2)


def test_a_line_that_is_no_router_is_refused_before_anything_starts(tmp_path: Path) -> None:
    for line in ("sglang", "sglang=", "=run", "sglang=run {ports}", "sglang=run 'it"):
        with pytest.raises(argparse.ArgumentTypeError):
            other(line)
    file = tmp_path / "peers.txt"
    file.write_text("# a comment\n\nsmg = smg --port {port} --workers {workers}\n")
    options = argparse.Namespace(against=[("mine", "run {port}")], against_file=file)
    assert others(options) == [("mine", "run {port}"), ("smg", "smg --port {port} --workers {workers}")]


def test_a_checkout_to_compare_with_must_be_one_and_be_set_up(tmp_path: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a checkout"):
        gateway_before.checkout(str(tmp_path))
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "mock_engines.py").touch()
    with pytest.raises(argparse.ArgumentTypeError, match="not set up"):
        gateway_before.checkout(str(tmp_path))
    gateway_before.python_of(tmp_path).parent.mkdir(parents=True)
    gateway_before.python_of(tmp_path).touch()
    assert gateway_before.checkout(str(tmp_path)) == tmp_path.resolve()


def test_two_checkouts_are_compared_round_by_round() -> None:
    before, now = [100.0, 200.0, 400.0, 100.0], [110.0, 220.0, 440.0, 400.0]
    ratio, low, high = gateway_before.summary(before, now)
    assert (round(ratio, 6), round(low, 6)) == (1.1, 1.1), "a machine that was slower for two rounds decides nothing"
    assert high > 1.1
    assert gateway_before.summary([100.0], [105.0]) == (1.05, 1.05, 1.05)


def test_a_router_that_ended_is_not_waited_for() -> None:
    with pytest.raises(NotReady, match="ended with exit code 3"), process([sys.executable, "-c", "raise SystemExit(3)"], 0) as running:
        wait_until(running, 9, math.inf)


def test_a_port_that_somebody_has_is_told_before_anything_starts() -> None:
    with socket.socket() as left_over:
        left_over.bind(("127.0.0.1", 0))
        left_over.listen()
        port = left_over.getsockname()[1]
        with pytest.raises(NotReady, match=f"port {port} cannot be had"):
            check_free([port])
    check_free([port])


def test_settings_of_the_shell_do_not_reach_what_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAIRLEAD_GATEWAY_KEYS_REQUIRED", "1")
    told = tmp_path / "environment"
    words = f"import os; open({str(told)!r}, 'w').write(' '.join(name for name in os.environ if name.startswith('FAIRLEAD_')))"
    with process([sys.executable, "-c", words], 0, {"FAIRLEAD_ROUTER_ID": "bench"}) as running:
        running.wait(60)
    assert told.read_text() == "FAIRLEAD_ROUTER_ID"


def test_cpu_time_is_that_of_a_process_with_its_descendants() -> None:
    spin = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    words = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}]); print('spent', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert 0.3 <= cpu_seconds(parent.pid) < 5
        assert cpu_seconds(os.getpid()) >= cpu_seconds(parent.pid)
        assert session_cpu_seconds(parent.pid) < cpu_seconds(parent.pid), "its child has ended"
        parent.communicate("")
