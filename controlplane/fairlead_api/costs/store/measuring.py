"""Computes prices of instances from the costs of their pods, which OpenCost measures, and stores the prices."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.costs.prices import Stay, measured_prices
from fairlead.instances import Role
from fairlead_api.costs.opencost import OpenCost, PodCosts
from fairlead_api.costs.tables import instance_lives
from fairlead_api.costs.tables import measured_prices as prices
from fairlead_api.infra.database import Database
from fairlead_api.tables import pools

LOOK_SECONDS = 600
HOUR = timedelta(hours=1)
AGAIN = timedelta(hours=3)
"""Length of the most recent time whose costs are read again in every round. OpenCost receives the last samples of a pod
late, so the costs of these hours may still change.
"""
LONGEST_GAP = timedelta(hours=48)
"""Maximum age of an hour whose costs are still read, if OpenCost or all processes of the API were unavailable until
now.
"""
AT_ONCE = timedelta(hours=6)
"""Longest range of one request to OpenCost. The range is short, because OpenCost computes each response from
Prometheus.
"""


class MeasuredPrices:
    """Reads the cost of instances from OpenCost, and stores their prices. Does nothing if `opencost` is None."""

    def __init__(self, database: Database, opencost: OpenCost | None, currency: str) -> None:
        self._database = database
        self._opencost = opencost
        self._currency = currency
        self._next: datetime | None = None
        """The first whole hour whose costs are not stored yet or may still change; None before the first read."""

    async def look(self, now: datetime) -> None:
        """Read and store the prices of the last hours. Raises Unavailable; the next call then continues with the first
        hour that is not stored.
        """
        if self._opencost is None:
            return
        hour = now.replace(minute=0, second=0, microsecond=0)
        first = hour - LONGEST_GAP
        start = min(max(self._next or first, first), hour - AGAIN)
        while start < now:
            end = min(start + AT_ONCE, now)
            await self._measure(self._opencost, start, end)
            start, self._next = end, min(end, hour)

    async def _measure(self, opencost: OpenCost, start: datetime, end: datetime) -> None:
        lives = await self._lives(start, end)
        if lives:
            costs = await opencost.costs(start, end)
            await self._database.writing(self._storing(list(self._rows(costs, lives, end))))

    async def _lives(self, start: datetime, end: datetime) -> Sequence[Row[Any]]:
        lives = instance_lives
        within = lives.c.began_at < end, lives.c.ended_at.is_(None) | (lives.c.ended_at > start)
        async with self._database.reading() as connection:
            return (await connection.execute(select(lives, pools.c.namespace).join(pools).where(*within))).all()

    def _rows(self, costs: PodCosts, lives: Sequence[Row[Any]], end: datetime) -> Iterator[dict[str, Any]]:
        for hour, of_hour in sorted(costs.items()):
            for pool, rows in _by_pool(lives).items():
                own = {instance: micros for (namespace, instance), micros in of_hour.items() if namespace == rows[0].namespace}
                for role, micros in measured_prices(own, stays(rows, hour, min(hour + HOUR, end))).items():
                    yield {"pool_id": pool, "role": role.value, "bucket": hour, "micros_per_hour": micros, "currency": self._currency}

    @staticmethod
    def _storing(rows: Sequence[Mapping[str, Any]]) -> Any:
        async def work(connection: AsyncConnection) -> None:
            row = upsert(prices)
            changed = {name: row.excluded[name] for name in ("micros_per_hour", "currency")}
            if rows:
                await connection.execute(row.on_conflict_do_update(index_elements=["pool_id", "role", "bucket"], set_=changed), rows)

        return work


def _by_pool(lives: Sequence[Row[Any]]) -> Mapping[int, list[Row[Any]]]:
    found: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in lives:
        found[row.pool_id].append(row)
    return found


def stays(lives: Sequence[Any], start: datetime, end: datetime) -> Iterator[Stay]:
    """Yield the time for which each instance had each role within [start, end). Pure."""
    for row in lives:
        began, ended = max(row.began_at, start), min(row.ended_at or end, end)
        if began < ended:
            yield Stay(instance=row.instance, role=Role(row.role), microseconds=(ended - began) // timedelta(microseconds=1))
