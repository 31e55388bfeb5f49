"""The jobs that make forecasts go from pool to pool."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from fairlead.tables import PoolKey
from fairlead_api.forecasts.forecasting import FollowedPool, Forecasting, ReadPool
from fairlead_api.infra.errors import StoreUnavailable

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@dataclass(slots=True)
class BrokenRecords:
    """Two pools; what `broken` raises is raised whenever the first one's record is read."""

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
