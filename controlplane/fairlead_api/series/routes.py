"""Routes of series, events and figures over time: of all pools, of a pool and of an instance."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated

from fastapi import Query

from fairlead.errors import InvalidInput
from fairlead.range_steps import Covered, covered
from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.routes import Routes
from fairlead_api.infra.sharing import Recent
from fairlead_api.series.grids import LONGEST
from fairlead_api.series.reading import SeriesReading, SeriesValue, Subject, asked_range, series_values
from fairlead_api.series.store.figures import PostgresFigures
from fairlead_api.series.store.series import PostgresSeries
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.figures import FiguresByInstance, InstanceFigures, RangeFigures
from fairlead_client.resources.series import Annotation, Annotations, Series


class FigureReading:
    """Reads figures of a range. Simultaneous requests for the same range share one result."""

    def __init__(self, store: PostgresFigures, recent: Recent) -> None:
        self._store = store
        self._recent = recent

    async def figures(self, subject: Subject, start: str, end: str, now: datetime) -> RangeFigures:
        """Return the figures of the range that `start` to `end` covers. Raises InvalidInput, which names the query
        parameter; NotFound.
        """
        where = _covered(start, end, now)
        return await self._recent.get(("figures", subject, where), lambda: self._store.figures(subject, where, now))

    async def instance_figures(self, subject: Subject, start: str, end: str, now: datetime) -> InstanceFigures:
        """Return the figures of an instance. Raises InvalidInput, which names the query parameter; NotFound."""
        where = _covered(start, end, now)
        return await self._recent.get(("instance figures", subject, where), lambda: self._store.instance_figures(subject, where, now))

    async def by_instance(self, subject: Subject, start: str, end: str, now: datetime) -> FiguresByInstance:
        """Return the figures of every instance of a pool. Raises InvalidInput, which names the query parameter;
        NotFound.
        """
        where = _covered(start, end, now)
        return await self._recent.get(("figures by instance", subject, where), lambda: self._store.by_instance(subject, where, now))


def _covered(start: str, end: str, now: datetime) -> Covered:
    begun, ended = asked_range(start, end, now)
    if ended - begun > LONGEST:
        raise InvalidInput("from", start, f"write a range of at most {LONGEST.days} days")
    return covered(begun, ended, now)


@dataclass(frozen=True, kw_only=True)
class _OfInstance:
    instance: str


@dataclass(frozen=True, kw_only=True)
class InstanceRow(InstanceFigures, _OfInstance):
    """An instance's figures as a row of an export, beginning with the instance's name."""


def instance_rows(found: FiguresByInstance) -> Iterator[InstanceRow]:
    """Yield the rows of an export, ordered by the instances' names."""
    for name, figures in sorted(found.instances.items()):
        yield InstanceRow(instance=name, **{one.name: getattr(figures, one.name) for one in fields(figures)})


From = Annotated[str, Query(alias="from", max_length=60)]
To = Annotated[str, Query(alias="to", max_length=60)]
Metrics = Annotated[str, Query(max_length=500)]

_POOL = "/pools/{namespace}/{name}"
_INSTANCE = _POOL + "/instances/{instance}"


def series_routes(guard: Guard, reading: SeriesReading, figures: FigureReading, clock: Callable[[], datetime]) -> Routes:
    """Return the routes `series`, `annotations` and `figures` under /v1, below a pool and below an instance."""
    routes = Routes(prefix="/v1", tags=["history"])
    viewer, anywhere = guard.needs(AccessRole.VIEWER), guard.needs(AccessRole.VIEWER, somewhere=True)

    async def get_fleet_series(
        metrics: Metrics = "requests,ttft_attainment,refused", start: From = "now-1h", end: To = "now", buckets: int = 120
    ) -> Ask:
        """Metrics of all visible pools together, by steps of time; metric names are separated by commas."""
        return lambda sight: reading.series(Subject(sight=sight), metrics, start, end, buckets, clock())

    document(routes, "/series", Series, anywhere, get_fleet_series, SeriesValue, series_values)

    async def get_pool_series(
        namespace: str,
        name: str,
        metrics: Metrics = "requests,ttft_attainment,refused",
        start: From = "now-1h",
        end: To = "now",
        buckets: int = 120,
    ) -> Ask:
        """Metrics of a pool by steps of time, divided by role, priority class, cause or router where that applies."""
        subject = Subject(pool=PoolKey(namespace=namespace, name=name))
        return lambda sight: reading.series(subject, metrics, start, end, buckets, clock())

    document(routes, f"{_POOL}/series", Series, viewer, get_pool_series, SeriesValue, series_values)

    async def get_instance_series(
        namespace: str,
        name: str,
        instance: str,
        metrics: Metrics = "requests,ttft_attainment,running",
        start: From = "now-1h",
        end: To = "now",
        buckets: int = 120,
    ) -> Ask:
        """Metrics of an instance by steps of time."""
        subject = Subject(pool=PoolKey(namespace=namespace, name=name), instance=instance)
        return lambda sight: reading.series(subject, metrics, start, end, buckets, clock())

    document(routes, f"{_INSTANCE}/series", Series, viewer, get_instance_series, SeriesValue, series_values)

    async def get_fleet_figures(start: From = "now-1h", end: To = "now") -> Ask:
        """The outcomes of the requests in a range of time, over all visible pools together."""
        return lambda sight: figures.figures(Subject(sight=sight), start, end, clock())

    document(routes, "/figures", RangeFigures, anywhere, get_fleet_figures, RangeFigures, lambda found: [found])

    async def get_pool_figures(namespace: str, name: str, start: From = "now-1h", end: To = "now") -> Ask:
        """The outcomes of the requests in a range of time, for one pool."""
        return lambda sight: figures.figures(Subject(pool=PoolKey(namespace=namespace, name=name)), start, end, clock())

    document(routes, f"{_POOL}/figures", RangeFigures, viewer, get_pool_figures, RangeFigures, lambda found: [found])

    async def get_instance_figures(namespace: str, name: str, instance: str, start: From = "now-1h", end: To = "now") -> Ask:
        """Figures of an instance over a range of time: requests, latencies and load."""
        subject = Subject(pool=PoolKey(namespace=namespace, name=name), instance=instance)
        return lambda sight: figures.instance_figures(subject, start, end, clock())

    document(routes, f"{_INSTANCE}/figures", InstanceFigures, viewer, get_instance_figures, InstanceFigures, lambda found: [found])

    async def get_figures_by_instance(namespace: str, name: str, start: From = "now-1h", end: To = "now") -> Ask:
        """Figures of each instance of a pool over a range of time, including instances that existed only for a part of
        the range.
        """
        return lambda sight: figures.by_instance(Subject(pool=PoolKey(namespace=namespace, name=name)), start, end, clock())

    document(routes, f"{_POOL}/instance-figures", FiguresByInstance, viewer, get_figures_by_instance, InstanceRow, instance_rows)

    async def get_fleet_annotations(start: From = "now-1h", end: To = "now") -> Ask:
        """Events of all visible pools that charts mark: changed numbers of instances, changed specs, windows of
        schedules, lost instances.
        """
        return lambda sight: reading.annotations(Subject(sight=sight), start, end, clock())

    document(routes, "/annotations", Annotations, anywhere, get_fleet_annotations, Annotation, lambda found: found.items)

    async def get_pool_annotations(namespace: str, name: str, start: From = "now-1h", end: To = "now") -> Ask:
        """Events of a pool, with their times, for the pool's charts."""
        return lambda sight: reading.annotations(Subject(pool=PoolKey(namespace=namespace, name=name)), start, end, clock())

    document(routes, f"{_POOL}/annotations", Annotations, viewer, get_pool_annotations, Annotation, lambda found: found.items)

    async def get_instance_annotations(namespace: str, name: str, instance: str, start: From = "now-1h", end: To = "now") -> Ask:
        """Events of an instance and of its pool as a whole, for the instance's charts."""
        subject = Subject(pool=PoolKey(namespace=namespace, name=name), instance=instance)
        return lambda sight: reading.annotations(subject, start, end, clock())

    document(routes, f"{_INSTANCE}/annotations", Annotations, viewer, get_instance_annotations, Annotation, lambda found: found.items)

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of series and figures."""
    figures = FigureReading(PostgresFigures(infra.reads), infra.recent)
    return Feature(routes=(series_routes(guard, SeriesReading(PostgresSeries(infra.reads)), figures, infra.clock),))
