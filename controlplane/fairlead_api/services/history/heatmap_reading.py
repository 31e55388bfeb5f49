"""Use case: a heatmap over a range that a person wrote."""

from datetime import datetime
from typing import Protocol

from fairlead.instances import InstanceState, Role
from fairlead.tables import PoolKey, SloFacts
from fairlead_api.services.history.heatmaps import Cell, Grid, check, grid, heatmap
from fairlead_api.services.history.times import parse_range
from fairlead_client.resources.heatmaps import Heatmap, HeatmapMigration


class CellStore(Protocol):
    """The source of a heatmap's cells and moves."""

    async def cells(self, pool: PoolKey, metric: str, where: Grid) -> tuple[list[Cell], dict[str, tuple[InstanceState, Role]], SloFacts]:
        """Cells, (state, role) by instance, and the SLO in force. Raises NotFound."""

    async def moves(self, pool: PoolKey, where: Grid) -> tuple[list[HeatmapMigration], int]:
        """The range's migrations by column and pair of instances, oldest first, and how many it has."""


class HeatmapReading:
    """Checks the request, chooses the buckets, reads the cells and arranges them."""

    def __init__(self, store: CellStore) -> None:
        self._store = store

    async def heatmap(
        self, pool: PoolKey, metric: str, start: str, end: str, columns: int, aggregate: str, sort: str, now: datetime
    ) -> Heatmap:
        """The heatmap. Raises InvalidInput naming the query field, NotFound."""
        check(metric, columns, aggregate, sort)
        begun, ended = parse_range(start, end, now)
        where = grid(begun or now, ended or now, columns)
        cells, instances, slo = await self._store.cells(pool, metric, where)
        moves, total = await self._store.moves(pool, where)
        return heatmap(str(pool), metric, aggregate, sort, where, cells, instances, slo, moves, total)
