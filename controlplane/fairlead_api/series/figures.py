"""Use case: the figures of a range of time, of an instance, of a pool or of all pools in sight."""

from datetime import datetime
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead.range_steps import Covered, covered
from fairlead_api.infra.sharing import Recent
from fairlead_api.series.grids import LONGEST
from fairlead_api.series.reading import Subject, asked_range
from fairlead_client.resources.figures import InstanceFigures, RangeFigures


class FigureStore(Protocol):
    """What was recorded."""

    async def figures(self, subject: Subject, where: Covered, now: datetime) -> RangeFigures:
        """Over these steps. Raises NotFound for a pool that does not live."""

    async def instance_figures(self, subject: Subject, where: Covered, now: datetime) -> InstanceFigures:
        """Over these steps. Raises NotFound for a pool that does not live, and for an instance that it never had."""


class FigureReading:
    """Answers are shared among those who ask for the same range within moments."""

    def __init__(self, store: FigureStore, recent: Recent) -> None:
        self._store = store
        self._recent = recent

    async def figures(self, subject: Subject, start: str, end: str, now: datetime) -> RangeFigures:
        """The figures of what `start` to `end` covers. Raises InvalidInput naming the query field, NotFound."""
        where = _covered(start, end, now)
        return await self._recent.get(("figures", subject, where), lambda: self._store.figures(subject, where, now))

    async def instance_figures(self, subject: Subject, start: str, end: str, now: datetime) -> InstanceFigures:
        """Those of an instance. Raises InvalidInput naming the query field, NotFound."""
        where = _covered(start, end, now)
        return await self._recent.get(("instance figures", subject, where), lambda: self._store.instance_figures(subject, where, now))


def _covered(start: str, end: str, now: datetime) -> Covered:
    begun, ended = asked_range(start, end, now)
    if ended - begun > LONGEST:
        raise InvalidInput("from", start, f"write a range of at most {LONGEST.days} days")
    return covered(begun, ended, now)
