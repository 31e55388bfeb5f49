"""kill -9 of every process during a replay: requests are still served where they should be, and no record is lost.

No record is doubled or torn either.
"""

import itertools
import json
import os
import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_sandbox.state_directory import api_urls
from fairlead_testing.builders.sandbox_pools import pool, replay_arguments
from fairlead_testing.running.sandbox import RunningSandbox, asking, result_of, running_sandbox, until

POOL = "default/chaos"
MEMORY_LEFT = 64 << 20
"""Bytes that a process may still allocate when its memory is bounded: two uploads."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    with running_sandbox(tmp_path_factory.mktemp("chaos")) as running:
        running.apply_pool(pool("chaos", policy="ear", replicas=4, early_rejection="Load")).raise_for_status()
        yield running


@pytest.fixture
def sandbox(running: RunningSandbox) -> RunningSandbox:
    """Return the sandbox with all processes running, whatever the test before has left."""
    running.scale_pool("chaos", 4).raise_for_status()
    running.until_ready("chaos", 4)
    return running


def replayed_while(sandbox: RunningSandbox, output: Path, hurt: Any, seed: int, requests: int = 500) -> dict[str, Any]:
    """Replay, cause a fault once sessions flow, and return the replay's figures."""
    started = sandbox.replay(*replay_arguments("chaos", requests, 14, seed), "--json", str(output), "--rows", str(output) + ".rows")
    try:
        until(lambda: "decoding" if sandbox_is_busy(sandbox) else None, "requests flowing")
        hurt()
        return result_of(started, output)
    finally:
        started.kill()


def most_in_flight(output: Path) -> int:
    """Return the most requests of a replay in flight at once, which is the most that one kill can lose."""
    steps: list[tuple[float, int]] = []
    for line in Path(f"{output}.rows").read_text().splitlines():
        row = json.loads(line)
        steps += [(row["due_seconds"] + row["lag_seconds"], 1), (row["ended_seconds"], -1)]
    return max(itertools.accumulate(step for _, step in sorted(steps)))


def sandbox_is_busy(sandbox: RunningSandbox) -> bool:
    for page in sandbox.metrics_pages:
        try:
            metrics = asking().get(page).text
            if any(line.startswith("fairlead_router_requests_total{") for line in metrics.splitlines()):
                return True
        except httpx.HTTPError:
            continue
    return False


def sums(result: dict[str, Any]) -> bool:
    return bool(result["sent"] == result["served"] + result["rejected"] + result["cancelled"] + result["failed"])


def check_records(sandbox: RunningSandbox) -> None:
    """Check that bindings, migrations and audit have no gap and no duplicate."""

    def settled() -> bool:
        return sandbox.request("GET", "/readyz").status_code == 200 and not spooled(sandbox)

    until(settled, "every spooled batch stored")
    assert sandbox.ask("/v1/audit/verification")["intact"] is True
    migrations = sandbox.everything("/v1/migrations", pool=POOL)
    assert sandbox.everything("/v1/sessions", pool=POOL)
    assert len({item["id"] for item in migrations}) == len(migrations)
    for session in sandbox.everything("/v1/sessions", pool=POOL)[:60]:
        detail = sandbox.ask(f"/v1/sessions/{POOL}/{session['session']}")
        history = sorted(detail["history"], key=lambda item: item["version"])
        assert [item["version"] for item in history] == list(range(1, len(history) + 1)), history
        for earlier, later in itertools.pairwise(history):
            assert earlier["bound_at"] <= earlier["released_at"] <= later["bound_at"], history  # nobody holds it while its instance is gone
        holder = history[-1]["instance"] if history[-1]["released_at"] is None else None
        assert detail["session"]["instance"] == holder


def spooled(sandbox: RunningSandbox) -> list[Path]:
    """Return the batches of bindings, migrations and refusals that routers still hold on disk."""
    return list(sandbox.state.spool.rglob("*.history.*.json"))


def refusals_stored(sandbox: RunningSandbox) -> int:
    return int(sandbox.ask("/v1/rejections", pool=POOL, **{"from": "now-6h"})["total"])


def test_requests_flow_while_the_control_api_is_killed(sandbox: RunningSandbox, tmp_path: Path) -> None:
    refused_before = refusals_stored(sandbox)
    result = replayed_while(sandbox, tmp_path / "r.json", lambda: sandbox.kill("api"), seed=11)
    assert sums(result)
    assert result["failed"] == 0
    check_records(sandbox)
    until(lambda: refusals_stored(sandbox) - refused_before == result["rejected"], f"{result['rejected']} refusals stored")


def out_of_memory(sandbox: RunningSandbox) -> None:
    """Limit the API's memory to its present use and two uploads, send more, and kill the API, as a kernel would."""
    pid = sandbox.pid("api")
    has = int(Path(f"/proc/{pid}/status").read_text().partition("VmSize:")[2].split()[0]) * 1024
    resource.prlimit(pid, resource.RLIMIT_AS, (has + MEMORY_LEFT, has + MEMORY_LEFT))
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: uploaded(sandbox), range(32)))
    assert all(one is None or one >= 400 for one in answers), answers
    with suppress(ProcessLookupError):  # it has ended already
        os.kill(pid, signal.SIGKILL)
    sandbox.until_replaced("api", pid)


def uploaded(sandbox: RunningSandbox) -> int | None:
    """Return the status of the answer to a trace of 30 MB that cannot be read; None if there was none."""
    headers = {"authorization": f"Bearer {load_or_create(sandbox.state.secrets).admin}"}
    place = f"{api_urls(sandbox.note.urls)[0]}/v1/pools/{POOL}/simulations"
    try:
        return asking().post(place, headers=headers, content=b"[" + b" " * 30_000_000).status_code
    except httpx.HTTPError:
        return None


def test_nothing_acknowledged_is_lost_while_the_control_api_runs_out_of_memory(sandbox: RunningSandbox, tmp_path: Path) -> None:
    refused_before = refusals_stored(sandbox)
    result = replayed_while(sandbox, tmp_path / "r.json", lambda: out_of_memory(sandbox), seed=17)
    assert sums(result)
    assert result["failed"] == 0, "routers do without the API"
    check_records(sandbox)
    until(lambda: refusals_stored(sandbox) - refused_before == result["rejected"], f"{result['rejected']} refusals stored")


def test_requests_flow_while_postgres_is_killed(sandbox: RunningSandbox, tmp_path: Path) -> None:
    refused_before = refusals_stored(sandbox)
    result = replayed_while(sandbox, tmp_path / "r.json", lambda: sandbox.kill("postgres"), seed=12)
    assert sums(result)
    assert result["failed"] == 0
    check_records(sandbox)
    until(lambda: refusals_stored(sandbox) - refused_before == result["rejected"], f"{result['rejected']} refusals stored")


def test_the_other_router_takes_over_when_one_of_two_is_killed(sandbox: RunningSandbox, tmp_path: Path) -> None:
    result = replayed_while(sandbox, tmp_path / "r.json", lambda: sandbox.kill("router-0"), seed=13)
    assert sums(result)
    assert result["failed"] <= most_in_flight(tmp_path / "r.json"), "only what the dead router held may be lost"
    assert result["served"] > 0
    check_records(sandbox)


def test_requests_flow_while_the_operator_is_killed_and_its_work_goes_on(sandbox: RunningSandbox, tmp_path: Path) -> None:
    def scale_and_kill() -> None:
        sandbox.scale_pool("chaos", 3).raise_for_status()
        sandbox.kill("operator")

    result = replayed_while(sandbox, tmp_path / "r.json", scale_and_kill, seed=14)
    assert sums(result)
    assert result["failed"] == 0
    sandbox.until_ready("chaos", 3)
    check_records(sandbox)


def test_two_killed_engines_cost_only_what_they_had_begun_and_are_replaced(sandbox: RunningSandbox, tmp_path: Path) -> None:
    def kill_two_engines() -> None:
        pids = sandbox.engine_pids("chaos")
        assert len(pids) == 4
        for pid in pids[:2]:
            os.kill(pid, signal.SIGKILL)

    result = replayed_while(sandbox, tmp_path / "r.json", kill_two_engines, seed=15)
    assert sums(result)
    assert result["failed"] <= most_in_flight(tmp_path / "r.json"), "only what had begun there may be lost"
    assert result["served"] > 0
    sandbox.until_ready("chaos", 4)
    check_records(sandbox)
