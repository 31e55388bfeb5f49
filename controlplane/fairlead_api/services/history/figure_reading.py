"""Use case: the figures of a range of time, of a pool or of all pools in sight."""

from datetime import datetime
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead.range_steps import Covered, covered
from fairlead_api.services.history.series_grids import LONGEST
from fairlead_api.services.history.series_reading import Subject, asked_range
from fairlead_api.services.sharing import Recent
from fairlead_client.resources.figures import RangeFigures


class FigureStore(Protocol):
    """What was recorded."""

    async def figures(self, subject: Subject, where: Covered, now: datetime) -> RangeFigures:
        """Over these steps. Raises NotFound for a pool that does not live."""


class FigureReading:
    """Answers are shared among those who ask for the same range within moments."""

    def __init__(self, store: FigureStore, recent: Recent) -> None:
        self._store = store
        self._recent = recent

    async def figures(self, subject: Subject, start: str, end: str, now: datetime) -> RangeFigures:
        """The figures of what `start` to `end` covers. Raises InvalidInput naming the query field, NotFound."""
        begun, ended = asked_range(start, end, now)
        if ended - begun > LONGEST:
            raise InvalidInput("from", start, f"write a range of at most {LONGEST.days} days")
        where = covered(begun, ended, now)
        return await self._recent.get(("figures", subject, where), lambda: self._store.figures(subject, where, now))
