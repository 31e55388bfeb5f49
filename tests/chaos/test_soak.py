"""Half an hour of attacks on every port of a whole system, under load.

At its end the records agree and no process has more open files than at the beginning. The memory growth of each process
per hour is printed.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from benchmarks.attacks.clients import CLIENTS, Attacker
from benchmarks.attacks.growth import Growth

from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_sandbox.state_directory import api_urls
from fairlead_testing.builders.sandbox_pools import pool, replay_arguments
from fairlead_testing.running.sandbox import RunningSandbox, fairlead, result_of, running_sandbox, until

MINUTES = float(os.environ.get("FAIRLEAD_TEST_SOAK_MINUTES", "30"))
ROUND_SECONDS = 3.0
SIZE = 0.05
SPEED = float(os.environ.get("FAIRLEAD_TEST_SOAK_SPEED", "10"))
"""The speed of the replay meanwhile, as a multiple of the trace's own."""
SPARE_FILES = 40
"""File descriptors of processes' connections to one another, whose number varies."""


def soon_full() -> dict[str, Any]:
    """Return the pool, with limits at which the router's memory of caches and sessions is full after minutes.

    With the defaults it would grow as long as the test runs.
    """
    found = pool("soak", policy="ear", replicas=3)
    found["spec"]["engine"]["kvCacheTokens"] = 200_000
    found["spec"]["routing"]["session"] = {"ttl": "2m"}
    return found


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    with running_sandbox(tmp_path_factory.mktemp("soak")) as running:
        running.apply_pool(soon_full()).raise_for_status()
        running.until_ready("soak", 3)
        yield running


def doors(sandbox: RunningSandbox) -> dict[str, int]:
    """Return the ports of all processes that strangers can reach, by name."""
    found = {name: urlsplit(url).port for name, url in sandbox.note.urls.items()}
    return {name: port for name, port in found.items() if port is not None and not name.startswith(("kubernetes", "postgres"))}


async def attack_all(ports: dict[str, int]) -> int:
    """Run each attack on each port for a while; return the number of connections opened."""
    opened = 0
    for attack in CLIENTS.values():
        attackers = [Attacker(port, SIZE) for port in ports.values()]
        running = [asyncio.ensure_future(attack(attacker)) for attacker in attackers]
        await asyncio.sleep(ROUND_SECONDS)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        opened += sum(attacker.opened for attacker in attackers)
    return opened


@pytest.mark.nightly
@pytest.mark.timeout(3600 + MINUTES * 60)
def test_after_attacks_on_every_door_no_record_contradicts_another(
    sandbox: RunningSandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, began, number, opened, growth = tmp_path_factory.mktemp("figures"), time.monotonic(), 0, 0, Growth()
    while not number or time.monotonic() - began < MINUTES * 60:
        output = folder / f"{number}.json"
        load = sandbox.replay(*replay_arguments("soak", 100, SPEED, number), "--json", str(output))
        opened += asyncio.run(attack_all(doors(sandbox)))
        result = result_of(load, output)
        assert result["failed"] == 0, result
        number += 1
        growth.look(pids(sandbox), (time.monotonic() - began) / 3600)
    print(f"{number} rounds, {opened} connections of strangers\n{growth.table()}")
    assert opened
    until(lambda: not list(sandbox.state.spool.rglob("*.history.*.json")), "every spooled batch is stored")
    check_records(sandbox)
    grown = {name: growth.files(name) for name in growth.points if growth.files(name)[1] > growth.files(name)[0] + SPARE_FILES}
    assert not grown, f"files after the first and the last round: {grown}"


def pids(sandbox: RunningSandbox) -> dict[str, int]:
    """Return the ids of the system's own processes, without engines, which come and go, and Postgres' connections."""
    found = {one.name: one.pid for one in sandbox.note.processes}
    return {name: pid for name, pid in found.items() if pid is not None and not name.startswith("postgres")}


def check_records(sandbox: RunningSandbox) -> None:
    """Check the records with `fairlead verify` and the audit chain, as a person would."""
    where = ("--url", ",".join(api_urls(sandbox.note.urls)))
    environment = {"FAIRLEAD_TOKEN": load_or_create(sandbox.state.secrets).admin}
    for words in (("verify",), ("audit", "verify")):
        ended = fairlead(*words, *where, environment=environment)
        print(ended.stdout + ended.stderr)
        assert ended.returncode == 0, ended.stdout + ended.stderr
