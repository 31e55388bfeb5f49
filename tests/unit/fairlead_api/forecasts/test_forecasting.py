"""The background jobs that make forecasts for one pool after the other."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.forecasts.backtests import Outcome
from fairlead.forecasts.proposals import Tried
from fairlead.tables import PoolKey
from fairlead_api.forecasts import forecasting as module
from fairlead_api.forecasts.forecasting import FollowedPool, Forecasting, ReadPool
from fairlead_api.infra.errors import StoreUnavailable
from fairlead_testing.builders.forecasts import office_record

NOW = datetime(2026, 11, 30, tzinfo=UTC)
CHAT = PoolKey(namespace="default", name="chat")


@dataclass(slots=True)
class BrokenRecords:
    """Two pools. Reading the record of the first always raises `broken`."""

    broken: Exception
    noted: list[str] = field(default_factory=list)

    async def followed(self) -> Sequence[FollowedPool]:
        names = enumerate(("broken", "chat"))
        return [
            FollowedPool(id=at, pool=PoolKey.parse(f"default/{name}"), advises=True, follows=True, departed="left") for at, name in names
        ]

    async def read(self, pool: PoolKey, now: datetime) -> ReadPool | None:
        if pool.name == "broken":
            raise self.broken
        return None

    async def note_departure(self, pool: FollowedPool, words: str | None, now: datetime) -> None:
        self.noted.append(pool.pool.name)


async def test_a_pool_of_which_no_forecast_can_be_made_holds_up_no_other() -> None:
    records = BrokenRecords(ValueError("a record that nobody thought of"))
    await Forecasting(records).watch(NOW)
    assert records.noted == ["chat"]
    assert await Forecasting(records).proposals(NOW) == ([], ["default/chat"]), "proposals of the other pool are not withdrawn"


async def test_a_database_that_is_away_ends_the_look_at_all_pools() -> None:
    records = BrokenRecords(StoreUnavailable("away"))
    for look in (Forecasting(records).watch, Forecasting(records).proposals):
        with pytest.raises(StoreUnavailable):
            await look(NOW)


@dataclass(slots=True)
class OnePool:
    """A pool with five weeks of office hours."""

    async def followed(self) -> Sequence[FollowedPool]:
        return [FollowedPool(id=1, pool=CHAT, advises=True, follows=False, departed=None)]

    async def read(self, pool: PoolKey, now: datetime) -> ReadPool | None:
        return office_record(pool, NOW)

    async def note_departure(self, pool: FollowedPool, words: str | None, now: datetime) -> None: ...


async def test_a_replay_that_failed_is_made_again_after_a_while_and_not_with_every_question(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing, begun = True, []

    def replay(*given: Any) -> Tried:
        begun.append(given)
        if failing:
            raise MemoryError("the week did not fit")
        outcome = Outcome(instance_hours=10.0, requests=100.0, late=1.0, least={}, most={})
        return Tried(start=NOW, reactive=outcome, present=outcome, proposed=outcome)

    async def asked(minutes: float) -> bool:
        """Return whether the replay's outcome is known after this many minutes, and the number of replays so far."""
        now = NOW + timedelta(minutes=minutes)
        await forecasting.forecast(CHAT, now)
        for made in forecasting._made.values():
            if made.trying is not None:
                await asyncio.wait([made.trying])
        return (await forecasting.forecast(CHAT, now)).worth_it is not None

    monkeypatch.setattr(module, "tried", replay)
    forecasting = Forecasting(OnePool())
    assert [await asked(minutes) for minutes in (0, 1, 9.9)] == [False] * 3
    assert len(begun) == 1
    assert "replay of a forecast failed" in caplog.text
    assert await forecasting.proposals(NOW + timedelta(minutes=9)) == ([], []), "what was proposed before is not withdrawn"
    failing = False
    assert await asked(10)
    assert await asked(600)
    assert len(begun) == 2
