import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest

from fairlead_simulator.traces.descriptions import IdealCache
from fairlead_simulator.traces.rows import TraceRow, write_trace
from fairlead_simulator.workloads import ConversationShape, generate_conversations
from fairlead_testing.running.engine import StartEngine
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port

COMMAND = [sys.executable, "-m", "fairlead_simulator.replay"]
FAST = ("--time-scale", "100", "--prefill-tokens-per-second", "40000")


def replay(*flags: str, timeout: float = PATIENCE_SECONDS) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *flags], check=False, capture_output=True, text=True, timeout=timeout)


def figures(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(path.read_bytes())
    return document


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "made.jsonl"
    with path.open("w") as file:
        write_trace(islice(generate_conversations(ConversationShape(), 11), 150), file)
    return path


def test_one_engine_reaches_exactly_the_hits_of_an_ideal_cache(start_engine: StartEngine, trace: Path, tmp_path: Path) -> None:
    engine = start_engine(*FAST, "--time-scale", "1000", "--kv-cache-tokens", "10000000")
    out, rows = tmp_path / "out.json", tmp_path / "rows.jsonl"
    in_order = ("--speed", "1000", "--max-in-flight", "1")
    ended = replay("--trace", str(trace), "--url", engine.url, *in_order, "--json", str(out), "--rows", str(rows))
    assert ended.returncode == 0, ended.stderr
    found = figures(out)
    assert (found["sent"], found["served"], found["accounted"]) == (150, 150, True)
    assert found["ideal_token_hit_rate"] > 0.1
    assert found["token_hit_rate"] == pytest.approx(found["ideal_token_hit_rate"], abs=1e-12)
    lines = sorted((orjson.loads(line) for line in rows.read_text().splitlines()), key=lambda line: line["index"])
    cache = IdealCache()
    for line, row in zip(lines, generate_conversations(ConversationShape(), 11), strict=False):
        assert (line["prompt_tokens"], line["completion_tokens"]) == (row.input_length, row.output_length)
        assert line["cached_tokens"] == cache.add(row)
        assert line["session"] == f"made-t{row.hash_ids[1]}"
        assert 0 < line["ttft_seconds"] <= line["e2e_seconds"]
        assert line["ended_seconds"] == pytest.approx(line["due_seconds"] + line["lag_seconds"] + line["e2e_seconds"])
        assert line["decode"] is None
    assert "150 sent = 150 served + 0 rejected + 0 failed + 0 cancelled (sums)" in ended.stdout
    assert found["wall_seconds"] >= lines[-1]["due_seconds"]


def test_rejections_cancellations_and_failures_are_told_apart_and_sum(start_engine: StartEngine, trace: Path, tmp_path: Path) -> None:
    small = start_engine("--time-scale", "20", "--max-waiting", "4", "--kv-cache-tokens", "30000")
    out = tmp_path / "out.json"
    ended = replay(
        "--trace", str(trace), "--url", small.url, "--speed", "30", "--cancel-share", "0.5", "--json", str(out), "--slo-ttft", "1"
    )
    assert ended.returncode == 0, ended.stderr
    found = figures(out)
    assert found["sent"] == 150 == found["served"] + found["rejected"] + found["failed"] + found["cancelled"]
    assert found["rejections"] == {"http-503": found["rejected"]}
    assert found["failures"] == {"http-400": found["failed"]}, "prompts beyond the context length"
    assert min(found["served"], found["rejected"], found["failed"], found["cancelled"]) > 0
    assert found["slo_attainment"] <= (found["served"] + found["cancelled"]) / 150


def test_a_rejected_request_is_tried_again_only_when_asked(start_engine: StartEngine, tmp_path: Path) -> None:
    path = tmp_path / "pair.jsonl"
    with path.open("w") as file:
        rows = [TraceRow(timestamp_ms=0, input_length=2000, output_length=1, hash_ids=(n, n + 1, n + 2, n + 3)) for n in (0, 10, 20)]
        write_trace(rows, file)
    slow, engine = start_engine("--max-waiting", "1", "--prefill-tokens-per-second", "500"), start_engine("--max-waiting", "1")
    out = tmp_path / "out.json"
    flags = ("--trace", str(path), "--bursts", "--json", str(out))
    replay(*flags, "--url", slow.url)
    assert (figures(out)["served"], figures(out)["rejected"], figures(out)["retries"]) == (2, 1, 0)
    replay(*flags, "--url", engine.url, "--retry-rejected", "3")
    assert (figures(out)["served"], figures(out)["rejected"]) == (3, 0)


def test_a_router_that_refuses_connections_is_replaced_by_the_next(start_engine: StartEngine, trace: Path, tmp_path: Path) -> None:
    engine = start_engine(*FAST)
    out = tmp_path / "out.json"
    dead = f"http://127.0.0.1:{free_port()}"
    urls = ("--url", dead, "--url", engine.url)
    ended = replay("--trace", str(trace), "--requests", "40", *urls, "--model", "m", "--speed", "50", "--json", str(out))
    assert ended.returncode == 0, ended.stderr
    assert (figures(out)["served"], figures(out)["failovers"]) == (40, 20)


@pytest.mark.parametrize("model", [[], ["--model", "m"]])
def test_nobody_listening_ends_with_one_line(trace: Path, model: list[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    ended = replay("--trace", str(trace), "--url", url, *model)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"fairlead replay: cannot connect to {url}: ")
    assert ended.stderr.endswith("is the router running, and is --url right?\n")
    assert ended.stderr.count("\n") == 1


def test_a_pool_that_the_router_does_not_serve_is_told_with_those_it_does(start_engine: StartEngine, trace: Path) -> None:
    engine = start_engine(*FAST)
    ended = replay("--trace", str(trace), "--url", engine.url, "--pool", "nope")
    assert (ended.returncode, ended.stderr) == (1, f"fairlead replay: {engine.url} serves no pool default/nope yet; its pools: none\n")


def test_nobody_listening_is_told_before_the_next_row_is_due(tmp_path: Path) -> None:
    path = tmp_path / "far.jsonl"
    with path.open("w") as file:
        write_trace([TraceRow(timestamp_ms=hour * 3.6e6, input_length=10, output_length=1, hash_ids=(hour,)) for hour in range(2)], file)
    ended = replay("--trace", str(path), "--url", f"http://127.0.0.1:{free_port()}", "--model", "m")
    assert (ended.returncode, ended.stderr.startswith("fairlead replay: cannot connect")) == (1, True), ended.stderr


def test_an_engine_killed_in_the_middle_costs_failures_but_no_lost_request(start_engine: StartEngine, trace: Path, tmp_path: Path) -> None:
    first, second = start_engine("--time-scale", "20"), start_engine("--time-scale", "20")
    out = tmp_path / "out.json"
    urls = ("--url", first.url, "--url", second.url)
    command = [
        *COMMAND,
        "--trace",
        str(trace),
        "--requests",
        "60",
        *urls,
        "--speed",
        "10",
        "--json",
        str(out),
        "--rows",
        str(tmp_path / "rows"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        while not (tmp_path / "rows").exists():
            time.sleep(0.01)
        time.sleep(0.5)
        first.process.kill()
        running.communicate(timeout=PATIENCE_SECONDS)
    found = figures(out)
    assert running.returncode == 0
    assert found["sent"] == 60 == found["served"] + found["failed"]
    assert found["failovers"] > 0
    assert set(found["failures"]) <= {"connection-broken"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_loop_goes_on_until_stopped_and_then_accounts_for_everything(
    start_engine: StartEngine, tmp_path: Path, number: int, code: int
) -> None:
    engine = start_engine(*FAST)
    out, rows = tmp_path / "out.json", tmp_path / "rows.jsonl"
    for older in (out, rows):
        older.write_text("figures of an earlier run")
    source = ("--generate", "conversation", "--requests", "20", "--rate", "100", "--loop")
    command = [*COMMAND, *source, "--url", engine.url, "--json", str(out), "--rows", str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "-r2" not in (rows.read_text() if rows.exists() else ""):
            assert time.monotonic() < deadline, "the third repetition never came"
            time.sleep(0.05)
        running.send_signal(number)
        printed, _ = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == code
    found = figures(out)
    assert found["accounted"]
    assert found["sent"] > 40
    assert found["ideal_token_hit_rate"] is None
    assert len([orjson.loads(line) for line in rows.read_text().splitlines()]) == found["sent"], "nothing is left of an earlier run"
    assert "(sums)" in printed


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give either --trace FILE or --generate conversation"),
        (["--trace", "missing.jsonl"], "missing.jsonl: cannot be read: No such file or directory"),
        (
            ["--generate", "conversation", "--url", "ftp://x"],
            "--url 'ftp://x' cannot be used; write an address such as http://127.0.0.1:8000",
        ),
        (["--generate", "conversation", "--url", "http://x:abc"], "--url 'http://x:abc' cannot be used"),
        (["--generate", "conversation", "--pool", "a\r\nb"], "cannot be sent as a header"),
        (["--generate", "conversation", "--model", "m", "--rows", "/no/such/dir/x"], "/no/such/dir/x: cannot be written"),
    ],
)
def test_bad_flags_are_explained(flags: list[str], message: str) -> None:
    ended = replay("--url", "http://127.0.0.1:1", *flags)
    assert ended.returncode in (1, 2)
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
