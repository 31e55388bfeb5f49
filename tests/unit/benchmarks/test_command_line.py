"""Command lines of benchmarks: a wrong argument gives one line of error before anything starts, and there is a help
text.
"""

import argparse
import importlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.command_line import a_file, above_zero, count, names_of, zero_or_more

ROOT = Path(__file__).parents[3]
COMMANDS = {
    "benchmarks.agent_tasks": ["--policies", "fairlead:keep_weight=-1"],
    "benchmarks.apart_losses": ["--requests", "0"],
    "benchmarks.asking": ["--requests", "0"],
    "benchmarks.attacks.__main__": ["--attacks", "nonsense"],
    "benchmarks.attacks.breaking_point": ["--idle", "1000,0"],
    "benchmarks.canary": ["--slower", "nonsense"],
    "benchmarks.crashes.__main__": ["--reports", "-4"],
    "benchmarks.decisions": ["--requests", "3"],
    "benchmarks.endpoint_picker": ["--servers", "nonsense"],
    "benchmarks.expected_effects": ["--instances", "1"],
    "benchmarks.explanations": ["--policies", "nonsense"],
    "benchmarks.gateway": ["--cases", "nonsense"],
    "benchmarks.gateway_before": ["nowhere"],
    "benchmarks.http2": ["--rounds", "0"],
    "benchmarks.key_check": ["--keys", "0"],
    "benchmarks.kv_events": ["nonsense"],
    "benchmarks.lists": ["--database", "postgresql://nowhere", "--rows", "0"],
    "benchmarks.operator_pools": ["--pools", "0"],
    "benchmarks.pool_operations.__main__": ["--steps", "nonsense"],
    "benchmarks.proposed_schedules": ["--shapes", "nonsense"],
    "benchmarks.record_under_load": ["--minutes", "0"],
    "benchmarks.remedies": ["--pools", "0"],
    "benchmarks.sessions_in_memory": ["--sessions", "0"],
    "benchmarks.simulator": ["--trace", "/nowhere.jsonl"],
    "benchmarks.store_at_scale.__main__": ["--hours", "-1"],
    "benchmarks.turns_bench": ["--turns", "0"],
    "benchmarks.warm_bench": ["--peaks", "0"],
    "benchmarks.web_budgets.__main__": ["--instances", "2"],
    "benchmarks.what_if": ["--trace", "/nowhere.jsonl"],
    "reproductions.__main__": ["--seeds", "0"],
}


def run(monkeypatch: pytest.MonkeyPatch, module: str, arguments: list[str]) -> int | str | None:
    """Run the program and return its exit code."""
    monkeypatch.setattr("sys.argv", [module, *arguments])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main()
    return ended.value.code


def test_every_benchmark_with_arguments_is_among_these() -> None:
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for folder in ("benchmarks", "reproductions")
        for path in (ROOT / folder).rglob("*.py")
        if "argparse.ArgumentParser(" in path.read_text()
    }
    assert found - set(COMMANDS) == {"benchmarks.crashes.reporting_router", "benchmarks.expected_blocks"}, (
        "one is started by another, one has no arguments"
    )


@pytest.mark.parametrize("module", COMMANDS)
def test_a_wrong_argument_is_one_line_of_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: str) -> None:
    assert run(monkeypatch, module, COMMANDS[module]) == 2
    assert len([line for line in capsys.readouterr().err.splitlines() if ": error: " in line]) == 1


@pytest.mark.parametrize("module", COMMANDS)
def test_help_says_what_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: str) -> None:
    assert run(monkeypatch, module, ["--help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 8


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (count, "0"),
        (count, "-3"),
        (count, "2.5"),
        (count, "many"),
        (above_zero, "0"),
        (above_zero, "-1"),
        (above_zero, "nan"),
        (above_zero, "inf"),
        (above_zero, "much"),
        (zero_or_more, "-0.1"),
        (zero_or_more, "nan"),
        (a_file, "/nowhere.jsonl"),
        (names_of(("a", "b")), "c"),
        (names_of(("a", "b")), ""),
    ],
)
def test_what_cannot_be_is_refused_in_words(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=text or "''"):
        read(text)


def test_what_can_be_is_read() -> None:
    assert (count("3"), above_zero("0.5"), zero_or_more("0"), names_of(("a", "b"))("b,a")) == (3, 0.5, 0.0, ["b", "a"])
    assert a_file(__file__) == Path(__file__)


def test_a_program_that_is_ended_ends_what_it_started() -> None:
    """`timeout` and service managers end programs by SIGTERM. Otherwise their processes would stay, pinned to a
    core.
    """
    words = (
        "import sys, time; from benchmarks.command_line import end_everything_when_ended; from benchmarks.gateway import process\n"
        "end_everything_when_ended()\n"
        "with process([sys.executable, '-c', 'import time; time.sleep(600)'], 0) as running:\n"
        "    print(running.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", words], cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        started = Path("/proc") / program.stdout.readline().strip()
        assert started.exists()
        program.send_signal(signal.SIGTERM)
        assert program.wait(30) == 143
    assert not started.exists()
