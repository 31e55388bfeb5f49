"""Dumps and restores the database with Postgres' own tools, and runs an API on the restored database."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
from benchmarks.api_processes import ApiProcess
from benchmarks.store_at_scale.ingesting import ingest
from benchmarks.store_at_scale.targets import Line

from fairlead_client import internal_paths
from fairlead_client.lines import BindingsLine, SyncedLine, decode_line
from fairlead_sandbox.postgres import find_binaries
from fairlead_testing.running.api import SECRETS
from fairlead_testing.running.postgres import PostgresProcess, plain, with_database


def dumped(process: PostgresProcess, url: str, folder: Path) -> Iterator[Line]:
    """Dump and restore everything with Postgres' own tools, and yield the figures.

    The dump and the database of an earlier run are removed first.
    """
    shutil.rmtree(folder / "dump", ignore_errors=True)
    with psycopg.connect(plain(process.url), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS restored")
        connection.execute("CREATE DATABASE restored TEMPLATE template0")
    target = plain(with_database(url, "restored"))
    steps: dict[str, list[str]] = {
        "dump of all": [
            str(find_binaries() / "pg_dump"),
            "--format=directory",
            "--jobs=2",
            "--compress=1",
            f"--file={folder / 'dump'}",
            plain(url),
        ],
        "restore of it": [
            str(find_binaries() / "pg_restore"),
            "--exit-on-error",
            "--no-owner",
            "--jobs=2",
            f"--dbname={target}",
            str(folder / "dump"),
        ],
    }
    for what, command in steps.items():
        begun = time.monotonic()
        subprocess.run(command, check=True)
        yield Line(what=what, figure=f"{time.monotonic() - begun:.0f} s", target="–", kept=True)
    counts = "SELECT (SELECT count(*) FROM migrations), (SELECT count(*) FROM decisions), (SELECT count(*) FROM bindings), (SELECT count(*) FROM load_samples)"
    found = []
    for place in (plain(url), target):
        with psycopg.connect(place) as connection:
            found.append(connection.execute(counts).fetchone())
    yield Line(what="rows in the restored database", figure=str(found[1]), target=str(found[0]), kept=found[0] == found[1])
    yield from continued(with_database(url, "restored"), folder)


def continued(url: str, folder: Path) -> Iterator[Line]:
    """Run an API on the restored database as its routers find it, and yield the figures.

    The routers send their reports and receive all bindings.
    """
    api = ApiProcess(url, folder / "api-restored.log", {"FAIRLEAD_KEEP_DECISIONS_DAYS": "30"})
    begun = time.monotonic()
    try:
        api.start()
        api.until_ready()
        ready = time.monotonic() - begun
        found = ingest("bindings", [api.url], SECRETS["system-router"], routers=4, count=1)
        streamed = synced(api.url)
    finally:
        api.kill()
    yield Line(
        what="an API on the restored database",
        figure=f"ready after {ready:.1f} s; {found.rows:,} bindings of 4 routers taken; a router synced with {streamed:,} bindings",
        target="–",
        kept=streamed >= found.rows,
    )


def synced(address: str) -> int:
    """Return the number of bindings that the API's stream sends to a router until the line that says that the router is
    synced.
    """
    headers = {"authorization": f"Bearer {SECRETS['system-router']}"}
    bindings = 0
    with (
        httpx.Client(base_url=address, headers=headers, timeout=120, trust_env=False) as http,
        http.stream("GET", internal_paths.STREAM, params={"router": "router-0"}) as lines,
    ):
        for line in lines.iter_lines():
            told = decode_line(line.encode())
            if isinstance(told, BindingsLine):
                bindings += len(told.bindings)
            if isinstance(told, SyncedLine):
                return bindings
    raise SystemExit("the stream ended before it was synced")
