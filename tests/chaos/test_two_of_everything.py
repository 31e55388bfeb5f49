"""Two operators, two APIs, four routers: under load each is killed, paused and restarted in turn.

No request is lost but those in flight on a killed router, no pod is made twice, and history has everything once.
"""

import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psycopg
import pytest

from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_sandbox.state_directory import api_urls
from fairlead_testing.builders.sandbox_pools import pool
from fairlead_testing.running.balanced_load import BalancedLoad, SentRequest, balanced_load
from fairlead_testing.running.sandbox import RunningSandbox, asking, fairlead, running_sandbox, until

ROUTERS = ("router-0", "router-1", "router-2", "router-3")
APIS = ("api", "api-1")
OPERATORS = ("operator", "operator-1")
TRIES = itertools.count(1)
LOADS: list[BalancedLoad] = []
"""Loads of all tests so far, including failed ones, as they share a history."""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    counts = ("--routers", "4", "--apis", "2", "--operators", "2")
    with running_sandbox(tmp_path_factory.mktemp("two"), *counts) as running:
        yield running


@pytest.fixture
def tried() -> str:
    """Return a suffix for the names of a test's pools, so that a second try has pools of its own."""
    return f"{next(TRIES)}"


@contextmanager
def load_of(sandbox: RunningSandbox, name: str) -> Iterator[BalancedLoad]:
    with balanced_load({router: sandbox.url(router) for router in ROUTERS}, f"model/{name}") as load:
        try:
            yield load
        finally:
            LOADS.append(load)


def leader(sandbox: RunningSandbox) -> str:
    """Return the operator that acts."""

    def leading() -> str | None:
        for process in sandbox.note.processes:
            if process.name in OPERATORS and process.probe is not None:
                try:
                    answer = asking().get(process.probe, timeout=1.0)
                except httpx.HTTPError:
                    continue  # it starts, or stands still
                if answer.json().get("state") == "leading":
                    return process.name
        return None

    return until(leading, "an operator leads")


def serving(sandbox: RunningSandbox, name: str) -> int:
    """Return the number of instances that serve, as the cluster reports it."""
    return int(sandbox.pool(name).get("status", {}).get("serving", 0))


def scale(sandbox: RunningSandbox, name: str, replicas: int) -> None:
    sandbox.scale_pool(name, replicas).raise_for_status()


def until_serving(sandbox: RunningSandbox, name: str, replicas: int) -> None:
    until(lambda: serving(sandbox, name) == replicas, f"{name} has {replicas}")


def more(load: BalancedLoad, requests: int = 6) -> None:
    """Wait until this many more requests were served."""
    before = load.served
    until(lambda: load.served >= before + requests, "requests are served")


@dataclass(frozen=True, slots=True)
class Kill:
    """The times at which a process was killed and at which it was dead; until then its sockets take connections."""

    asked_at: float
    dead_at: float

    def took(self, request: SentRequest) -> bool:
        """Return whether the request was in flight meanwhile."""
        return request.started_at <= self.dead_at and (request.ended_at or 0.0) >= self.asked_at


def killed(sandbox: RunningSandbox, process: str) -> Kill:
    """Kill a process by kill -9; return once its successor is ready."""
    asked_at = time.monotonic()
    pid = sandbox.signal(process, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists(), f"{process} is dead")  # its sockets live as long as its last thread
    dead_at = time.monotonic()
    sandbox.until_replaced(process, pid)
    return Kill(asked_at, dead_at)


def lost_unduly(load: BalancedLoad, kills: dict[str, Kill]) -> list[SentRequest]:
    """Return the failed requests that were not in flight on a router when it was killed."""
    return [one for one in load.failed if one.router not in kills or not kills[one.router].took(one)]


def rows(sandbox: RunningSandbox, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(host=str(sandbox.state.socket_directory), user="fairlead", dbname="fairlead") as connection:
        return connection.execute(query).fetchall()


def check_history(sandbox: RunningSandbox) -> None:
    """Check that every record is stored once, and that records agree."""
    sent = sum(len(load.requests) for load in LOADS)
    until(lambda: not list(sandbox.state.spool.rglob("*.history.*.json")), "every spooled batch is stored")
    for table in ("decisions", "migrations", "reroutes", "scaling_decisions"):
        assert rows(sandbox, f"SELECT id FROM {table} GROUP BY id HAVING count(*) > 1") == []
    assert rows(sandbox, "SELECT pool_id, session FROM bindings GROUP BY 1, 2 HAVING count(*) <> max(version)") == []
    assert rows(sandbox, "SELECT session FROM bindings WHERE released_at IS NULL GROUP BY pool_id, session HAVING count(*) > 1") == []
    [(counted,)] = rows(sandbox, "SELECT coalesce(sum(completed + failed + cancelled), 0) FROM load_samples")
    assert 0 < int(str(counted)) <= sent, "no request is counted twice"
    assert sandbox.ask("/v1/audit/verification")["intact"] is True
    token = load_or_create(sandbox.state.secrets).admin

    def verified() -> bool:
        ended = fairlead("verify", "--url", ",".join(api_urls(sandbox.note.urls)), environment={"FAIRLEAD_TOKEN": token})
        print(ended.stdout + ended.stderr)
        return ended.returncode == 0

    until(verified, "`fairlead verify` finds no contradiction")


def test_each_is_killed_and_paused_in_turn_and_nothing_is_lost_or_done_twice(sandbox: RunningSandbox, tried: str) -> None:
    kills: dict[str, Kill] = {}
    pairs, timed = f"pairs-{tried}", f"timed-{tried}"
    roles = [{"name": "both", "minReplicas": 1, "maxReplicas": 3}]
    with sandbox.watching_pods(pairs) as made, sandbox.watching_pods(timed) as made_by_window:
        sandbox.apply_pool(pool(pairs, policy="ear", replicas=2)).raise_for_status()
        sandbox.apply_pool(pool(timed, replicas=1, roles=roles)).raise_for_status()
        sandbox.until_ready(pairs, 2)
        sandbox.until_ready(timed, 1)
        with load_of(sandbox, pairs) as load:
            for router in ROUTERS:
                more(load)
                kills[router] = killed(sandbox, router)
            for api, replicas in zip(APIS, (3, 2), strict=True):
                scale(sandbox, pairs, replicas)
                killed(sandbox, api)
                until_serving(sandbox, pairs, replicas)
            opens = (datetime.now(UTC) + timedelta(seconds=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
            window = {"name": "rush", "cron": "0 0 29 2 *", "duration": "1h", "runAt": [opens], "roles": [{"name": "both", "replicas": 2}]}
            sandbox.apply_pool(pool(timed, replicas=1, roles=roles, scaling={"schedules": [window]})).raise_for_status()
            for replicas in (3, 2):
                scale(sandbox, pairs, replicas)
                killed(sandbox, leader(sandbox))
                until_serving(sandbox, pairs, replicas)
            until_serving(sandbox, timed, 2)

            for router in ROUTERS:
                with sandbox.paused(router):
                    until(lambda router=router: load.under_way(router) > 0, "a request waits at it")  # type: ignore[misc]
                    more(load)
            for api, replicas in zip(APIS, (3, 2), strict=True):
                with sandbox.paused(api):
                    scale(sandbox, pairs, replicas)
                    until_serving(sandbox, pairs, replicas)  # the operator asks the other one
                    more(load)
            paused = leader(sandbox)
            with sandbox.paused(paused):
                scale(sandbox, pairs, 3)
                until(lambda: leader(sandbox) != paused, "the other one leads")
                until_serving(sandbox, pairs, 3)
            with sandbox.paused(leader(sandbox)):
                more(load)
            sandbox.until_ready(pairs, 3)
            sandbox.until_ready(timed, 2)
        print(f"{len(load.requests)} requests, {len(load.failed)} lost in flight on a killed router, {len(made)} pods of pairs")
        assert lost_unduly(load, kills) == []
        assert {request.router for request in load.requests} == set(ROUTERS)
        assert len(made) == 2 + 4, "the first two, and one more each of the four times it was scaled up"
        assert len(made_by_window) == 2
    check_history(sandbox)
    opened_once = f"SELECT schedule, outcome FROM schedule_runs r JOIN pools p ON p.id = r.pool_id WHERE p.name = '{timed}'"
    assert rows(sandbox, opened_once) == [("rush", "open")]
    opened = [event for event in sandbox.everything(f"/v1/pools/default/{timed}/events") if event["reason"] == "WindowOpened"]
    assert len(opened) == 1


def test_each_is_restarted_in_turn_and_no_request_fails(sandbox: RunningSandbox, tried: str) -> None:
    rolled = f"rolled-{tried}"
    with sandbox.watching_pods(rolled) as made:
        sandbox.apply_pool(pool(rolled, replicas=2)).raise_for_status()
        sandbox.until_ready(rolled, 2)
        with load_of(sandbox, rolled) as load:
            for process in (*ROUTERS, *APIS, *OPERATORS):
                more(load)
                sandbox.until_replaced(process, sandbox.signal(process, signal.SIGTERM))
            more(load)
        print(f"{len(load.requests)} requests")
        assert load.failed == []
        assert len(made) == 2
    check_history(sandbox)
