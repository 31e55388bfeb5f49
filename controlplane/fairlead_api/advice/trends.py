"""Use case: all pools in sight over a range, in a few steps each."""

import math
from datetime import datetime, timedelta
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead.range_steps import Covered, covered
from fairlead_api.infra.sharing import Recent
from fairlead_api.infra.spans import Sight
from fairlead_api.infra.times import parse_range
from fairlead_client.resources.advice import Trends

MOST_STEPS = 40
LONGEST = timedelta(days=90)
_MINUTE, _HOUR = 60, 3600


class TrendReader(Protocol):
    """The source of trends."""

    async def trends(self, where: Covered, step_seconds: int, now: datetime, sight: Sight = None) -> Trends:
        """Of all living pools in sight from its start, in whole steps until its end is passed."""


class TrendReading:
    """Answers are shared among those who ask for the same steps within moments."""

    def __init__(self, reader: TrendReader, recent: Recent) -> None:
        self._reader = reader
        self._recent = recent

    async def trends(self, start: str, end: str, now: datetime, sight: Sight = None) -> Trends:
        """Raises InvalidInput naming the query field."""
        begun, ended = parse_range(start, end, now)
        begun, ended = begun or now, min(ended or now, now)
        if begun >= ended:
            raise InvalidInput("from", start, "write a time in the past and before `to`")
        if ended - begun > LONGEST:
            raise InvalidInput("from", start, f"write a range of at most {LONGEST.days} days")
        where = covered(begun, ended, now)
        unit = _HOUR if where.by_hours else _MINUTE
        step = unit * math.ceil((where.end - where.start).total_seconds() / unit / MOST_STEPS)
        key = ("trends", where, step, ended.timestamp() // unit, sight)
        return await self._recent.get(key, lambda: self._reader.trends(where, step, now, sight))
