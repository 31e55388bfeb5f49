"""Attacks on one pool of a router, as `benchmarks.attacks` runs them, but short: other pools lose no request."""

import asyncio
import resource
from collections.abc import Iterator

import pytest
from benchmarks.attacks.__main__ import Router, attack, attacking, routed_world, soak
from benchmarks.attacks.breaking_point import NEW_CLIENTS, step
from benchmarks.attacks.clients import NAMES, Attacker
from benchmarks.attacks.load import Client, Load

from fairlead_testing.waiting import PATIENCE_SECONDS

SHORT = ("idle", "half-heads", "resets-by-clients", "sessions", "endless-answer", "huge-figures", "resets", "silence", "suspended")
"""The attacks that need no unbounded answer of an engine."""
SIZE = 0.02
FIRST_PORT = 29310
SPARE_FILES = 30
"""File descriptors of a router's connections to engines, whose number varies."""


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with routed_world(FIRST_PORT) as running:
        yield running
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("name", SHORT)
def test_the_other_pools_lose_no_request_and_the_router_no_files(router: Router, name: str) -> None:
    found = asyncio.run(attack(router, name, seconds=1.0, rounds=1, size=SIZE, afterwards=1.0))
    print(found.line())
    assert found.during.seconds
    assert (found.before.failed, found.during.failed) == (0, 0)
    before, _, after = found.files
    assert after <= before + SPARE_FILES


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_half_an_hour_of_all_attacks_costs_no_files_and_no_request_of_others(router: Router) -> None:
    found = asyncio.run(soak(router, list(NAMES), minutes=30.0, seconds=3.0, size=0.1, afterwards=2.0))
    print(found)
    assert found.failed == 0
    assert found.files[1] <= found.files[0] + SPARE_FILES


def test_an_attack_is_known_by_its_name() -> None:
    assert set(SHORT) <= set(NAMES)


async def test_a_router_that_was_suspended_serves_what_was_asked_meanwhile(router: Router) -> None:
    async with attacking(router, "suspended", Attacker(router.port), 4.0), asyncio.timeout(PATIENCE_SECONDS):
        load = Load(router.port)
        await load.run(4.0)
        assert load.failed == 0
    assert await Client(router.port, "pool-2").ask()


def test_strangers_that_say_nothing_take_nobodys_place_and_go_without_a_trace(router: Router) -> None:
    before = router.files()
    found = asyncio.run(step(router, "idle", 300, addresses=4, seconds=0.5, afterwards=1.0))
    print(found.line())
    assert (found.known.failed, found.new_served, found.open + found.refused + found.closed) == (0, NEW_CLIENTS, 300)
    assert found.known.seconds
    assert found.files_after <= before + SPARE_FILES


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_ten_thousand_strangers_at_a_router_that_may_open_two_thousand_files_leave_known_and_new_clients_served() -> None:
    with routed_world(FIRST_PORT + 50, files=2000) as full:
        few = asyncio.run(step(full, "idle", 20, addresses=8, seconds=2.0, afterwards=2.0))  # its connections to engines stay open
        before = few.files_after
        found = asyncio.run(step(full, "idle", 10_000, addresses=8, seconds=5.0, afterwards=10.0))
        print(found.line())
        assert (found.known.failed, found.new_served) == (0, NEW_CLIENTS)
        assert found.files < 2000
        assert found.refused + found.closed > 8_000
        assert found.files_after <= before + SPARE_FILES
