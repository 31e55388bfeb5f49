"""Checks that the record keeps up with two routers under load and is complete afterwards.

    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.record_under_load [--rate 100] [--minutes 30]
        [--outage-minutes 10] [--directory DIR]

A whole sandbox runs: Postgres, control API, operator, two routers, four simulated engines. A trace of sessions is sent
at `--rate`, its requests alternately to both routers. The policy moves sessions often, so that the routers compete for
sessions. The age of the oldest report that a router has not delivered is read every second. Then the control API is
stopped (SIGSTOP, after which it answers nothing) for `--outage-minutes` while the load continues, and the time until
the backlog is gone is measured. Last, every invariant of the stored record is checked in the database. Ends with code 1
if an invariant does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
from benchmarks.command_line import above_zero, end_everything_when_ended, zero_or_more

from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow, write_trace
from fairlead_testing.builders.record_facts import contradictions
from fairlead_testing.running.sandbox import RunningSandbox, running_sandbox

OLDEST_SECONDS = 3.0
"""The maximum age of an undelivered report while the control API answers, in seconds, on an otherwise idle machine."""
BACKLOG_SECONDS = 60.0
"""Seconds within which the backlog of an outage must be gone."""
TURNS = 10
PAUSE_SECONDS = 6.0
OUTPUT_TOKENS = 4

POOL = {
    "apiVersion": "fairlead.dev/v1alpha1",
    "kind": "InferencePool",
    "metadata": {"name": "soak", "namespace": "default"},
    "spec": {
        "model": "soak/model",
        "replicas": 4,
        "engine": {"type": "simulated", "prefillTokensPerSecond": 30000, "kvCacheTokens": 1000000},
        "routing": {"policy": "ear", "parameters": {"hot_tokens": 1000, "cooldown_seconds": 0.5}},
        "slo": {"ttft": "5s", "tpot": "100ms"},
    },
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The routers' metrics at a moment; `seconds` is the time since the load began."""

    seconds: float
    oldest_seconds: float
    batches: float
    dropped: float
    aside: float


def rows(rate: float, seconds: float, seed: int) -> Iterator[TraceRow]:
    """Yield the rows of sessions. Each session has TURNS turns, PAUSE_SECONDS apart, and its prompt grows by a block
    with each turn.
    """
    chance = random.Random(seed)
    arrivals: list[tuple[float, int, int]] = []
    starts = int(rate * seconds / TURNS)
    for session in range(starts):
        begun = chance.uniform(-TURNS * PAUSE_SECONDS, seconds)
        arrivals += [(begun + turn * PAUSE_SECONDS * chance.uniform(0.8, 1.2), session, turn) for turn in range(TURNS)]
    for at, session, turn in sorted(arrival for arrival in arrivals if 0 <= arrival[0] < seconds):
        blocks = turn + 2
        yield TraceRow(
            timestamp_ms=round(at * 1000),
            input_length=blocks * BLOCK_TOKENS + 40,
            output_length=OUTPUT_TOKENS,
            hash_ids=tuple(session * 100 + block for block in range(blocks + 1)),
            session=f"s{session}",
        )


def read(sandbox: RunningSandbox, begun: float) -> Reading:
    """Return a reading with the worse value of the two routers for each metric."""
    found: dict[str, list[float]] = {}
    for page in sandbox.metrics_pages:
        text = httpx.get(page, timeout=10, trust_env=False).text
        for name, value in re.findall(r"^fairlead_router_(\w+?)(?:\{[^}]*\})? ([0-9.e+-]+)$", text, re.MULTILINE):
            found.setdefault(name, []).append(float(value))
    return Reading(
        seconds=time.monotonic() - begun,
        oldest_seconds=max(found["oldest_unsent_report_seconds"]),
        batches=sum(found["spool_batches"]),
        dropped=sum(found.get("report_records_dropped_total", [0.0])),
        aside=sum(found["reports_set_aside"]),
    )


def watch(sandbox: RunningSandbox, begun: float, seconds: float, words: str) -> list[Reading]:
    """Return a reading per second over `seconds`, and print a line of progress each minute."""
    readings: list[Reading] = []
    until = time.monotonic() + seconds
    told = 0.0
    while time.monotonic() < until:
        readings.append(read(sandbox, begun))
        if time.monotonic() - told > 60:
            told = time.monotonic()
            worst = max(reading.oldest_seconds for reading in readings)
            now = readings[-1]
            print(
                f"{now.seconds:7.0f} s  {words}: oldest report {now.oldest_seconds:.2f} s (worst {worst:.2f}), {now.batches:.0f} batches",
                flush=True,
            )
        time.sleep(1.0)
    return readings


def outage(sandbox: RunningSandbox, begun: float, seconds: float) -> tuple[Reading, float]:
    """Stop the control API for `seconds`. Return the last reading of the outage, and the seconds after it until the
    backlog was gone.

    The backlog is gone when no undelivered report is older than OLDEST_SECONDS.
    """
    api = sandbox.pid("api")
    os.kill(api, signal.SIGSTOP)
    try:
        last = watch(sandbox, begun, seconds, "control API stopped")[-1]
    finally:
        os.kill(api, signal.SIGCONT)
    back = time.monotonic()
    while (now := read(sandbox, begun)).oldest_seconds > OLDEST_SECONDS:
        if time.monotonic() - back > 20 * BACKLOG_SECONDS:
            break
        time.sleep(0.5)
    seconds_after = time.monotonic() - back
    print(
        f"{now.seconds:7.0f} s  {last.batches:.0f} batches waited; none older than {OLDEST_SECONDS:g} s after {seconds_after:.1f} s",
        flush=True,
    )
    return last, seconds_after


def main() -> int:
    """Run, print, and return 0 if everything held."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=above_zero, default=100.0, help="requests per second over both routers")
    parser.add_argument("--minutes", type=above_zero, default=30.0, help="of undisturbed load")
    parser.add_argument("--outage-minutes", type=zero_or_more, default=10.0, help="for which the control API is stopped")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, help="folder for the sandbox's state; without this option, a temporary one")
    options = parser.parse_args()
    end_everything_when_ended()
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.directory or Path(scratch) / "state"
        trace, figures = Path(scratch) / "trace.jsonl", Path(scratch) / "replay.json"
        seconds = (options.minutes + options.outage_minutes) * 60 + 150
        with trace.open("w") as out:
            count = write_trace(rows(options.rate, seconds, options.seed), out)
        print(f"{count} requests over {seconds / 60:.0f} minutes", flush=True)
        with running_sandbox(directory, "--routers", "2") as sandbox:
            assert sandbox.apply_pool(POOL).status_code in {200, 201}
            sandbox.until_ready("soak", 4)
            load = sandbox.replay("--pool", "default/soak", "--trace", str(trace), "--json", str(figures))
            try:
                return judge(sandbox, load, figures, options.minutes * 60, options.outage_minutes * 60)
            finally:
                load.kill()


def judge(sandbox: RunningSandbox, load: subprocess.Popen[str], figures: Path, steady_seconds: float, outage_seconds: float) -> int:
    """Watch the load to its end, and print which conditions held. Return 0 if all did, otherwise 1."""
    begun = time.monotonic()
    steady = watch(sandbox, begun, steady_seconds, "load")
    last, backlog_seconds = outage(sandbox, begun, outage_seconds) if outage_seconds else (steady[-1], 0.0)
    load.wait(600)
    time.sleep(2 * OLDEST_SECONDS)  # the routers' last reports
    end = read(sandbox, begun)
    database = f"postgresql://fairlead@/fairlead?host={sandbox.state.socket_directory}"
    broken = contradictions(database)
    with psycopg.connect(database) as connection:
        moved, bound = connection.execute("SELECT (SELECT count(*) FROM migrations), (SELECT count(*) FROM bindings)").fetchone() or (0, 0)
    ended = json.loads(figures.read_text())
    served = {name: ended[name] for name in ("sent", "served", "rejected", "failed", "cancelled") if name in ended}
    worst = max(reading.oldest_seconds for reading in steady)
    held = {
        f"oldest unsent report at most {worst:.2f} s (limit {OLDEST_SECONDS:g})": worst <= OLDEST_SECONDS,
        f"backlog of {last.batches:.0f} batches gone (none older than {OLDEST_SECONDS:g} s) after {backlog_seconds:.1f} s "
        f"(limit {BACKLOG_SECONDS:g})": backlog_seconds <= BACKLOG_SECONDS,
        f"records dropped {end.dropped:.0f}, reports set aside {end.aside:.0f}": end.dropped == end.aside == 0,
        f"contradictions in the record: {broken or 'none'}": not broken,
    }
    print(f"requests: {served}; stored: {bound} bindings, {moved} session migrations")
    for words, good in held.items():
        print(f"{'yes' if good else 'NO ':4}{words}")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
