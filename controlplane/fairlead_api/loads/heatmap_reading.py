"""Use case: a heatmap over a range that a person wrote."""

import asyncio
from datetime import datetime
from typing import Protocol

from fairlead.tables import PoolKey, SloFacts
from fairlead_api.infra.times import parse_range
from fairlead_api.loads.heatmaps import Grid, Kept, Place, Slice, check, grid, heatmap
from fairlead_client.resources.heatmaps import Heatmap, HeatmapMigration


class SliceStore(Protocol):
    """The source of a heatmap's cells and moves."""

    async def slices(self, pool: PoolKey, metric: str, where: Grid, *, mean: bool) -> tuple[list[Slice], dict[str, Place], SloFacts]:
        """Columns of maxima, or of sums for a mean; places by instance; the SLO in force. Raises NotFound."""

    async def moves(self, pool: PoolKey, where: Grid) -> tuple[list[HeatmapMigration], int]:
        """The range's migrations by column and pair of instances, oldest first, and how many it has."""


class HeatmapReading:
    """Checks the request, chooses the buckets, reads the cells and arranges them."""

    def __init__(self, store: SliceStore, kept: Kept) -> None:
        self._store = store
        self._kept = kept

    async def heatmap(
        self, pool: PoolKey, metric: str, start: str, end: str, columns: int, aggregate: str, sort: str, group: str, now: datetime
    ) -> Heatmap:
        """The heatmap. Raises InvalidInput naming the query field, NotFound."""
        check(metric, columns, aggregate, sort, group)
        begun, ended = parse_range(start, end, now)
        begun = begun or now
        where = grid(begun, ended or now, columns, self._kept.finest(begun, now))
        slices, instances, slo = await self._store.slices(pool, metric, where, mean=aggregate == "mean")
        moves, total = await self._store.moves(pool, where)
        # the largest map takes 8 to 18 ms, under load several times that, for which everybody else would wait
        return await asyncio.to_thread(heatmap, str(pool), metric, aggregate, sort, where, slices, instances, slo, moves, total, group)
