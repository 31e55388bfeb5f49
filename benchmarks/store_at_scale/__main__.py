"""The command line of the package, which its docstring describes."""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import psycopg
from benchmarks.api_processes import ApiProcess
from benchmarks.command_line import above_zero, end_everything_when_ended
from benchmarks.costs import cpu_seconds
from benchmarks.history_rows import MILLION, continue_loads, fill, fill_loads
from benchmarks.store_at_scale import __doc__ as package_doc
from benchmarks.store_at_scale.dumping import dumped
from benchmarks.store_at_scale.explaining import sequential_scans
from benchmarks.store_at_scale.ingesting import KINDS, ingest
from benchmarks.store_at_scale.questions import POOL, Question, questions
from benchmarks.store_at_scale.targets import Line, say

from fairlead.tables import PoolKey
from fairlead_api.infra.database import READS, Database
from fairlead_api.infra.pulse import Pulse
from fairlead_api.infra.upgrading import upgrade
from fairlead_api.sessions.store.lists import PostgresSessions
from fairlead_testing.running.api import SECRETS
from fairlead_testing.running.postgres import PostgresProcess, plain, with_database

PAGE_MS = 50.0
HEATMAP_MS = 150.0
BINDING_MS = 3.0
INGEST_ROWS = 50_000
TIMES = 30
MOST_FIRST = 4
WITHOUT_KUBERNETES = "/rollout"
"""The end of the path that answers 503 here after it has read from Postgres, because there is no Kubernetes API."""
LONGEST_SECONDS = 4.0
"""Maximum seconds spent on a question; after that it is not sent again."""

SERVER = {
    "max_connections": "60",
    "shared_buffers": "1GB",
    "effective_cache_size": "4GB",
    "work_mem": "16MB",
    "maintenance_work_mem": "512MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "jit": "off",
}


@contextmanager
def server(folder: Path) -> Iterator[PostgresProcess]:
    process = PostgresProcess(folder, SERVER)
    process.start()
    try:
        yield process
    finally:
        process.stop()


def filled(url: str, hours: float) -> None:
    """Make and fill the database, unless it exists from an earlier run."""
    with psycopg.connect(plain(url)) as connection:
        if connection.execute("SELECT to_regclass('alembic_version')").fetchone() != (None,):
            say("the database of an earlier run is used")
            upgrade(url)
            return
    upgrade(url)
    begun = time.monotonic()
    fill(plain(url), replace(MILLION, load_seconds=0))
    say(f"history filled in {time.monotonic() - begun:.0f} s")
    begun, now = time.monotonic(), int(time.time())
    rows = fill_loads(plain(url), MILLION.instances, now - round(hours * 3600), now)
    say(f"{rows:,} load samples and their rollups filled in {time.monotonic() - begun:.0f} s")


def until_now(url: str) -> None:
    """Write load samples until now, and wait until the running API has rolled them up.

    The samples of a database end when it was filled, now or in an earlier run. Without newer samples, heatmaps of the
    last minutes would be empty.
    """
    begun = time.monotonic()
    while True:
        missing = continue_loads(plain(url), MILLION.instances, int(time.time()))
        with psycopg.connect(plain(url), autocommit=True) as connection:
            due = "SELECT count(*) FROM rollup_queue WHERE bucket < now() - interval '15 seconds'"
            while connection.execute(due).fetchone() != (0,):
                time.sleep(0.2)
        if missing < 30:
            break
        say(f"{missing} s of load samples added and rolled up after {time.monotonic() - begun:.0f} s")


def asked(address: str, wanted: list[Question], spent: Callable[[], float]) -> Iterator[tuple[Question, float, float, float]]:
    """Yield each question with its p50, its p95 and the CPU time per answer, in ms. The function `spent` returns the
    CPU seconds of all serving processes.
    """
    headers = {"authorization": f"Bearer {SECRETS['admin']}"}
    with httpx.Client(base_url=address, headers=headers, timeout=120, trust_env=False) as http:
        for question in wanted:
            taken: list[float] = []
            for _ in range(MOST_FIRST):  # the first fill caches of plans and pages; one from a cold disk may take too long
                first = http.get(question.path)
                if first.status_code != 503:
                    break
            if first.status_code not in {200, 400, 404, 422, 503}:
                raise SystemExit(f"{question.path}: {first.status_code} {first.text}")
            before = spent()
            while len(taken) < TIMES and sum(taken) < LONGEST_SECONDS:
                begun = time.perf_counter()
                answer = http.get(question.path)
                refused = answer.status_code >= 500 and not question.group.endswith(WITHOUT_KUBERNETES)
                taken.append(math.inf if refused else time.perf_counter() - begun)
                time.sleep(0.005)
            cost = (spent() - before) / len(taken)
            taken.sort()
            yield question, taken[len(taken) // 2] * 1000, taken[min(len(taken) - 1, int(len(taken) * 0.95))] * 1000, cost * 1000


def pages(api: ApiProcess, process: PostgresProcess, url: str) -> list[Line]:
    """Return a line for each path with the figures of its slowest question."""
    worst: dict[str, tuple[float, float, float, str, int]] = {}
    limits: dict[str, float] = {}
    wanted = sorted(questions(plain(url), PAGE_MS, HEATMAP_MS), key=lambda one: not one.group.startswith("heatmap"))
    until_now(url)
    for question, p50, p95, cpu in asked(api.url, wanted, lambda: cpu_seconds(api.pid) + cpu_seconds(process.pid)):
        if p95 > question.limit_ms:
            say(f"  {p50:7.1f} {p95:7.1f} ms, CPU {cpu:.1f} ms  {question.path}")
        before = worst.get(question.group, (0.0, 0.0, 0.0, "", 0))
        limits[question.group] = question.limit_ms
        worst[question.group] = (*max((p50, p95, cpu, question.path), before[:4], key=lambda one: one[1]), before[4] + 1)
    return [
        Line(
            what=f"`{group}`, {count} questions" if group.startswith("/") else group,
            figure=f"p50 {p50:.1f}, p95 {p95:.1f} ms, CPU {cpu:.1f} ms" + (f" (`{path}`)" if count > 1 and p95 > limits[group] else ""),
            target=f"p95 ≤ {limits[group]:g} ms",
            kept=p95 <= limits[group],
        )
        for group, (p50, p95, cpu, path, count) in sorted(worst.items(), key=lambda item: -item[1][1])
    ]


async def bindings_found(url: str, times: int = 400) -> list[Line]:
    """Look up holders of sessions with their history, as the API does, and return the figures."""
    with psycopg.connect(plain(url)) as connection:
        names = [
            row[0] for row in connection.execute("SELECT session FROM sessions TABLESAMPLE SYSTEM (5) WHERE version = 2 LIMIT %s", (times,))
        ]
    database = Database(READS, Pulse(url, 1.0))
    reader = PostgresSessions(database)
    taken: list[float] = []
    try:
        for _ in range(2):  # the first round fills caches of plans and pages
            taken.clear()
            for name in names:
                begun = time.perf_counter()
                await reader.session(PoolKey.parse(POOL), name)
                taken.append((time.perf_counter() - begun) * 1000)
    finally:
        await database.close()
    taken.sort()
    p50, p95 = taken[len(taken) // 2], taken[int(len(taken) * 0.95)]
    return [
        Line(
            what="binding lookup, with its history",
            figure=f"p50 {p50:.2f}, p95 {p95:.2f} ms",
            target=f"p95 ≤ {BINDING_MS:g} ms",
            kept=p95 <= BINDING_MS,
        )
    ]


def ingested(process: PostgresProcess, apis: list[ApiProcess]) -> Iterator[Line]:
    urls = [api.url for api in apis]
    for kind in KINDS:
        before = cpu_seconds(process.pid), sum(cpu_seconds(api.pid) for api in apis)
        found = ingest(kind, urls, SECRETS["system-router"], routers=4, count=40 if kind == "loads" else 20)
        after = cpu_seconds(process.pid), sum(cpu_seconds(api.pid) for api in apis)
        cost = [(then - now) / found.rows * 1e6 for now, then in zip(before, after, strict=True)]
        wanted = INGEST_ROWS if kind == "loads" else 0
        yield Line(
            what=f"ingest of {kind}, 4 routers, {len(urls)} API processes",
            figure=f"{found.rows_per_second:,.0f} rows/s ({found.rows:,} rows; CPU a row: Postgres {cost[0]:.1f} µs, API {cost[1]:.1f} µs)",
            target=f"≥ {wanted:,} rows/s" if wanted else "–",
            kept=found.rows_per_second >= wanted,
        )


def measured(process: PostgresProcess, folder: Path, hours: float, dump: bool, only: str) -> list[Line]:
    """Return the lines of all sections, or of the section named `only`."""
    url = with_database(process.url, "scale")
    with psycopg.connect(plain(process.url), autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = 'scale'").fetchone() is None:
            connection.execute("CREATE DATABASE scale")
    filled(url, hours)
    lines: list[Line] = []
    apis = [
        ApiProcess(url, folder / f"api-{number}.log", {"FAIRLEAD_MIGRATE": "0", "FAIRLEAD_KEEP_DECISIONS_DAYS": "30"})
        for number in range(2)
    ]

    def section(name: str, work: Callable[[], list[Line] | Iterator[Line]]) -> None:
        if only in {"", name}:
            say(name)
            for line in work():
                say(str(line))
                lines.append(line)

    def explained() -> Iterator[Line]:
        count, found = asyncio.run(sequential_scans(url, list(questions(plain(url), PAGE_MS, HEATMAP_MS))))
        for one in found:
            say(f"  {one}")
        yield Line(what=f"sequential scans of large tables in {count} statements", figure=str(len(found)), target="0", kept=not found)

    section("bindings", lambda: asyncio.run(bindings_found(url)))
    section("explain", explained)
    try:
        apis[0].start()
        apis[0].until_ready()
        section("pages", lambda: pages(apis[0], process, url))
        lines.append(Line(what="memory of the API process", figure=f"{apis[0].resident_mb():.0f} MB", target="–", kept=True))
        apis[1].start()
        apis[1].until_ready()
        section("ingest", lambda: ingested(process, apis))
    finally:
        for api in apis:
            api.kill()
    if dump:
        section("dump", lambda: dumped(process, url, folder))
    return lines


def main() -> int:
    """Print a Markdown table, and return 1 if a target was missed."""
    reading = argparse.ArgumentParser(
        prog="python -m benchmarks.store_at_scale", description=package_doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reading.add_argument("--hours", type=above_zero, default=24.0, help="of load samples")
    reading.add_argument("--dump", action="store_true", help="also dump and restore everything")
    reading.add_argument(
        "--directory", type=Path, help="folder with a short path; the database is kept there, so that the next run need not fill it"
    )
    reading.add_argument("--only", default="", choices=["bindings", "explain", "pages", "ingest", "dump"])
    given = reading.parse_args()
    end_everything_when_ended()
    with tempfile.TemporaryDirectory(prefix="fl-scale-") as scratch:
        folder = given.directory or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with server(folder) as process:
            lines = measured(process, folder, given.hours, given.dump or given.only == "dump", given.only)
    print("| what | figure | target | kept |\n|---|---|---|---|")
    for line in lines:
        print(line)
    return 0 if all(line.kept for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
