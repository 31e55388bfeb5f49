"""Measures every list, filter, matrix and detail of the API on a million rows.

With `--against`, an earlier revision is measured too, on the same rows.

    python -m benchmarks.lists --database postgresql+psycopg://app@/lists?host=/tmp/x [--against REVISION:MIGRATION]

The database must be empty; use a throw-away server. `REVISION` is a commit of this repository and `MIGRATION` the
newest migration that it knows (`6af378c:0014_audit_heads`). The earlier revision is measured first, on its own schema.
Then the database is migrated and this tree is measured. Requests go one after the other over HTTP. A path that takes
seconds is requested less often. If a path has a status other than 200, the status is shown beside it. The milliseconds
of such a path say nothing about a useful answer: the revision does not know the path, or the request took too long.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
import psycopg
from benchmarks.command_line import count, end_everything_when_ended
from benchmarks.history_rows import MILLION, Size, fill

from fairlead_api.infra.upgrading import upgrade

ROOT = Path(__file__).resolve().parents[1]
SECRET = "a-secret-for-measuring"
TIMES = 40
LONGEST_SECONDS = 4.0
"""Maximum seconds spent on all requests to one path. After that, the path is not requested again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The milliseconds of a path at p50 and p95. `odd` names the statuses other than 200; empty if there were none."""

    p50: float
    p95: float
    odd: str


def paths(url: str) -> list[str]:
    """Return the paths to request, with ids of rows in the database."""
    with psycopg.connect(url) as connection:
        ids = {
            table: quote(
                str((connection.execute(f"SELECT {column} FROM {table} ORDER BY {order} DESC LIMIT 1".encode()).fetchone() or ("",))[0])
            )
            for table, column, order in (
                ("migrations", "id", "at"),
                ("decisions", "id", "at"),
                ("sessions", "session", "last_seen_at"),
                ("audit_log", "id", "id"),
            )
        }
    session, part = ids["sessions"], ids["sessions"][9:21]
    return [
        *(
            "/v1/whoami",
            "/v1/pools",
            "/v1/pools/big/p1",
            "/v1/pools/big/p1/instances",
            "/v1/pools/big/p1/instances/i7",
            "/v1/pools/big/p1/events",
        ),
        *("/v1/sessions", "/v1/sessions?pool=big/p1", "/v1/sessions?instance=i7", "/v1/sessions?pool=big/p1&instance=i7"),
        *("/v1/sessions?q=sess-", "/v1/sessions?q=sess-ff", f"/v1/sessions?q={part}", "/v1/sessions?q=no-such-part", "/v1/sessions?q=zz"),
        f"/v1/sessions/big/p1/{session}",
        *(
            "/v1/migrations",
            "/v1/migrations?pool=big/p2",
            "/v1/migrations?source=i7",
            "/v1/migrations?source=nope",
            "/v1/migrations?target=i7",
        ),
        *(
            "/v1/migrations?trigger=drain",
            "/v1/migrations?trigger=operator",
            "/v1/migrations?outcome=failed",
            f"/v1/migrations?session={session}",
        ),
        *(
            "/v1/migrations?trigger=drain&outcome=failed",
            "/v1/migrations?pool=big/p2&trigger=drain",
            "/v1/migrations?from=now-5d&to=now-1d",
        ),
        *(f"/v1/migrations/{ids['migrations']}", "/v1/migrations/nope"),
        *(
            "/v1/migrations/matrix",
            "/v1/migrations/matrix?from=now-1h",
            "/v1/migrations/matrix?pool=big/p1",
            "/v1/migrations/matrix?source=i7",
        ),
        *("/v1/decisions", "/v1/decisions?pool=big/p2", "/v1/decisions?instance=i7", "/v1/decisions?instance=nope"),
        *(
            f"/v1/decisions?session={session}",
            "/v1/decisions?reason=slo-overloaded",
            "/v1/decisions?reason=random",
            "/v1/decisions?pool=big/p2&reason=slo-overloaded",
        ),
        *(f"/v1/decisions/{ids['decisions']}", "/v1/decisions/nope", "/v1/rejections"),
        *(
            "/v1/audit",
            "/v1/audit?actor=person-7",
            "/v1/audit?actor=nope",
            "/v1/audit?actor=pers*",
            "/v1/audit?object=big/p1",
            "/v1/audit?from=now-5d&to=now-4d",
        ),
        f"/v1/audit/{ids['audit_log']}",
    ]


@contextmanager
def api(tree: Path, url: str) -> Iterator[str]:
    """Run the API of a source tree on the database, and yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    packages = ("core", "controlplane", "webui", "router", "operator", "simulator", "sandbox", "cli", "host", "serve", "cluster/src")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")},
        "PYTHONPATH": os.pathsep.join(str(tree / name) for name in packages),
        "FAIRLEAD_DATABASE_URL": url,
        "FAIRLEAD_BOOTSTRAP_TOKENS": f"viewer:measuring:{SECRET}",
        "FAIRLEAD_WEB": "0",
        "FAIRLEAD_MIGRATE": "0",
    }
    command = [sys.executable, "-m", "fairlead_api.main", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                if httpx.get(f"{address}/readyz", timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the API of {tree} did not start")
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def measure(address: str, asked: list[str]) -> dict[str, Measured]:
    """Return the measurements by path. An unexpected status ends the run."""
    found: dict[str, Measured] = {}
    with httpx.Client(base_url=address, headers={"authorization": f"Bearer {SECRET}"}, timeout=120) as http:
        for path in asked:
            taken: list[float] = []
            statuses: set[int] = set()
            http.get(path)  # the first fills caches of plans and pages
            while len(taken) < TIMES and sum(taken) < LONGEST_SECONDS:
                begun = time.perf_counter()
                answer = http.get(path)
                taken.append(time.perf_counter() - begun)
                statuses.add(answer.status_code)
                if answer.status_code not in {200, 404, 503}:
                    raise SystemExit(f"{path}: {answer.status_code} {answer.text}")
                time.sleep(0.02)
            taken.sort()
            p95 = taken[min(len(taken) - 1, int(len(taken) * 0.95))]
            one = found[path] = Measured(
                p50=taken[len(taken) // 2] * 1000,
                p95=p95 * 1000,
                odd="".join(f" ({status})" for status in sorted(statuses - {200})),
            )
            print(f"  {path[:70]:70s} {one.p50:9.1f} {one.p95:9.1f}{one.odd}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Print a Markdown table."""
    reading = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reading.add_argument("--database", required=True, help="URL of an empty database, as SQLAlchemy reads it")
    reading.add_argument("--against", metavar="REVISION:MIGRATION", help="an earlier revision, which is measured first on the same rows")
    reading.add_argument("--rows", type=count, default=MILLION.migrations, help="number of session migrations, and number of decisions")
    given = reading.parse_args()
    end_everything_when_ended()
    plain = given.database.replace("postgresql+psycopg://", "postgresql://", 1)
    revision, _, migration = (given.against or "").partition(":")
    upgrade(given.database, migration or "head")
    print("filling", file=sys.stderr)
    fill(plain, Size(**{**{name: getattr(MILLION, name) for name in Size.__slots__}, "migrations": given.rows, "decisions": given.rows}))
    asked = paths(plain)
    before: dict[str, Measured] = {}
    if revision:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            subprocess.run(["git", "worktree", "add", "--detach", str(tree), revision], cwd=ROOT, check=True, capture_output=True)
            try:
                with api(tree, given.database) as address:
                    before = measure(address, asked)
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True, capture_output=True)
        upgrade(given.database)
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
    with api(ROOT, given.database) as address:
        now = measure(address, asked)
    print("| path | p50 ms | p95 ms |" + (f" p50 at {revision} | p95 at {revision} |" if before else ""))
    print("|---|---|---|" + ("---|---|" if before else ""))
    for path in asked:
        was = f" {before[path].p50:.1f} | {before[path].p95:.1f}{before[path].odd} |" if before else ""
        print(f"| `{path}` | {now[path].p50:.1f} | {now[path].p95:.1f}{now[path].odd} |{was}")


if __name__ == "__main__":
    main()
