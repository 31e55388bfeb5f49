"""Heatmaps of a pool's load, and explanations of an instance's load."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Depends, Query, Response

from fairlead.instances import InstanceState, Role
from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.times import parse_range
from fairlead_api.loads.differing import differences, region_of
from fairlead_api.loads.explaining import LoadExplaining
from fairlead_api.loads.heatmaps import MAX_COLUMNS, Kept, check, grid, heatmap
from fairlead_api.loads.store.samples import PostgresLoads
from fairlead_api.loads.store.windows import PostgresLoadWindows
from fairlead_api.settings import Settings
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.heatmaps import Heatmap
from fairlead_client.resources.load_explanations import Differences, LoadExplanation


class HeatmapReading:
    """Reads heatmaps: checks the request, chooses the buckets, reads the cells and arranges them."""

    def __init__(self, store: PostgresLoads, kept: Kept) -> None:
        self._store = store
        self._kept = kept

    async def heatmap(
        self, pool: PoolKey, metric: str, start: str, end: str, columns: int, aggregate: str, sort: str, group: str, now: datetime
    ) -> Heatmap:
        """Return the heatmap. Raises InvalidInput, which names the query parameter; NotFound."""
        check(metric, columns, aggregate, sort, group)
        begun, ended = parse_range(start, end, now)
        begun = begun or now
        where = grid(begun, ended or now, columns, self._kept.finest(begun, now))
        slices, instances, limits = await self._store.slices(pool, metric, where, mean=aggregate == "mean")
        moves, total = await self._store.moves(pool, where)
        # the largest map takes 8 to 18 ms, under load several times that, for which everybody else would wait
        return await asyncio.to_thread(heatmap, str(pool), metric, aggregate, sort, where, slices, instances, limits, moves, total, group)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapCell:
    """A value of a heatmap: the maximum or mean over the step that begins at `at`. Cells that have no value are left
    out.
    """

    instance: str
    state: InstanceState
    role: Role
    at: datetime
    value: float
    breach: bool


def heatmap_cells(found: Heatmap) -> Iterator[HeatmapCell]:
    """Yield the cells row by row, oldest first."""
    starts = [found.start + timedelta(seconds=column * found.step_seconds) for column in range(found.columns)]
    for row in found.rows:
        breaches = frozenset(row.breaches)
        for column, (at, value) in enumerate(zip(starts, row.values, strict=True)):
            if value is not None:
                yield HeatmapCell(instance=row.instance, state=row.state, role=row.role, at=at, value=value, breach=column in breaches)


def load_routes(
    guard: Guard, heatmaps: HeatmapReading, windows: PostgresLoadWindows, explaining: LoadExplaining, clock: Callable[[], datetime]
) -> Routes:
    """Return the routes of load under /v1/pools/{namespace}/{name}."""
    routes = Routes(prefix="/v1", tags=["pools"])
    viewer = guard.needs(AccessRole.VIEWER)
    Viewer = Annotated[Caller, Depends(viewer)]  # noqa: N806 - it is a type

    async def get_heatmap(
        namespace: str,
        name: str,
        metric: str = "pending_prefill_tokens",
        start: Annotated[str, Query(alias="from")] = "now-1h",
        end: Annotated[str, Query(alias="to")] = "now",
        columns: int = MAX_COLUMNS,
        aggregate: str = "max",
        sort: str = "name",
        group: str = "instance",
    ) -> Ask:
        """A heatmap of at most 512 instances, or groups of instances, by 360 columns. Each cell is the maximum or mean
        of its per-second values.
        """
        pool = PoolKey(namespace=namespace, name=name)
        return lambda sight: heatmaps.heatmap(pool, metric, start, end, columns, aggregate, sort, group, clock())

    document(routes, "/pools/{namespace}/{name}/heatmap", Heatmap, viewer, get_heatmap, HeatmapCell, heatmap_cells)

    @routes.get("/pools/{namespace}/{name}/instances/{instance}/explanation", response_model=LoadExplanation)
    async def get_load_explanation(
        namespace: str,
        name: str,
        instance: str,
        caller: Viewer,
        metric: str = "pending_prefill_tokens",
        start: Annotated[str, Query(alias="from")] = "now-5m",
        end: Annotated[str, Query(alias="to")] = "now",
        limit: float | None = None,
    ) -> Response:
        """Explains an instance's load over a range of at most a day: its figures compared with the figures of other
        instances, the sessions that sent the most to it, the sessions that arrived and left, and changes of the pool.

        `limit` is the metric's limit on a heatmap that the caller already shows, so that the explanation uses the same
        limit. Without `limit`, the present limit is used, which changes while it is being measured.
        """
        pool = PoolKey(namespace=namespace, name=name)
        return answer(await explaining.explain(pool, instance, metric, start, end, clock(), limit))

    @routes.get("/pools/{namespace}/{name}/differences", response_model=Differences)
    async def get_differences(
        namespace: str,
        name: str,
        instances: str,
        caller: Viewer,
        start: Annotated[str, Query(alias="from")] = "now-5m",
        end: Annotated[str, Query(alias="to")] = "now",
        rest_from: str = "now-1h",
        rest_to: str = "now",
    ) -> Response:
        """Compares the recorded requests of some `instances` (ids, separated by commas) from `from` to `to` with the
        pool's other requests from `rest_from` to `rest_to`. Returns the sessions, classes, reasons, prompt lengths,
        hits, nodes and revisions whose shares differ by more than three standard errors, the most certain difference
        first.
        """
        region, begun, ended = region_of(instances, start, end, (rest_from, rest_to), clock())
        seen = await windows.seen(PoolKey(namespace=namespace, name=name), begun, ended)
        return answer(differences(region, seen))

    return routes


def kept_of(settings: Settings) -> Kept:
    """Return the time for which load is kept, at each resolution."""
    return Kept(seconds=timedelta(days=settings.retention.load_samples_days), tens=timedelta(days=settings.retention.rollups_10s_days))


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of heatmaps and explanations of load."""
    kept = kept_of(infra.settings)
    windows = PostgresLoadWindows(infra.reads)
    explaining = LoadExplaining(windows, kept, infra.of_hours)
    return Feature(routes=(load_routes(guard, HeatmapReading(PostgresLoads(infra.reads), kept), windows, explaining, infra.clock),))
