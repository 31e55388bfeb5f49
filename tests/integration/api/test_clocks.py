"""Clocks of the API's processes are hours wrong: a router's state stays present, and dates are the database's."""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from fairlead.reports.batches import Acknowledgement, RouterGone
from fairlead_api.infra import pulse as pulses
from fairlead_api.infra.database import CONTROL, Database
from fairlead_api.infra.partitions import Partitions
from fairlead_api.upkeep.store import PostgresUpkeep
from fairlead_process.clock import SteadyClock
from fairlead_testing.running.api import CHAT, ApiInstance, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain
from fairlead_testing.waiting import PATIENCE_SECONDS

HOUR = 3600.0


def newest_state(database_url: str) -> tuple[int | None, bool]:
    """Return the version of the table that the router uses, as stored, and whether the router said goodbye."""
    with psycopg.connect(plain(database_url)) as connection:
        row = connection.execute("SELECT acknowledged, gone_at IS NOT NULL FROM routers WHERE id = 'router-0'").fetchone()
    assert row is not None
    return next(iter(row[0].values()), None), row[1]


@pytest.mark.parametrize("jumps", [(2 * HOUR, -2 * HOUR), (11 * HOUR, -12 * HOUR, 60.0), (-2 * HOUR, 2 * HOUR), (40.0, -40.0)])
async def test_the_newest_state_of_a_router_counts_however_the_apis_clock_is_set(
    api: ApiInstance, database_url: str, jumps: tuple[float, ...]
) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    sent_at = datetime.now(UTC).timestamp()
    for version, jump in enumerate((0.0, *jumps), start=1):
        api.clock.skip(jump)
        sent_at += 0.25
        await api.router.post_report(a_report(f"r{version}", at=sent_at, acknowledged=(Acknowledgement(pool=CHAT, version=version),)))
        assert newest_state(database_url) == (version, False)


async def test_a_router_comes_back_that_said_goodbye_while_the_apis_clock_was_ahead(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    api.clock.skip(2 * HOUR)
    now = datetime.now(UTC).timestamp()
    await api.router.post_report(a_report("1", at=now))
    await api.router.post_router_gone(RouterGone(router="router-0", at=now + 1.0))
    api.clock.skip(-2 * HOUR)
    await api.router.post_report(a_report("2", at=now + 2.0, acknowledged=(Acknowledgement(pool=CHAT, version=7),)))
    assert newest_state(database_url) == (7, False)


@pytest.mark.parametrize("wrong_by", [-5 * HOUR, 5 * HOUR])
async def test_the_time_of_a_process_with_a_wrong_clock_is_the_databases(
    database_url: str, monkeypatch: pytest.MonkeyPatch, wrong_by: float
) -> None:
    monkeypatch.setattr(pulses, "SteadyClock", lambda: SteadyClock(lambda: datetime.now(UTC).timestamp() + wrong_by))
    pulse = pulses.Pulse(database_url, 100.0)
    assert abs(pulse.now() - datetime.now(UTC)) > timedelta(hours=4)
    asking = asyncio.create_task(pulse.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while abs(pulse.now() - datetime.now(UTC)) > timedelta(seconds=60):
            await asyncio.sleep(0.02)
    asking.cancel()
    await asyncio.wait([asking])


@pytest.mark.parametrize("wrong_by", [-5 * HOUR, 5 * HOUR])
async def test_retention_compares_the_clocks_as_they_are_though_no_pulse_was_heard(database_url: str, wrong_by: float) -> None:
    own = Database(CONTROL, pulses.Pulse(database_url, 100.0))
    upkeep = PostgresUpkeep(own, own, Partitions(own), lambda: datetime.now(UTC) + timedelta(seconds=wrong_by))
    ahead = await upkeep.clock_ahead()
    await own.close()
    assert abs(ahead + timedelta(seconds=wrong_by)) < timedelta(hours=1)
