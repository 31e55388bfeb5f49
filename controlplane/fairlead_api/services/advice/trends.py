"""Use case: all pools in sight over a range, in a few steps each."""

import math
from datetime import datetime, timedelta
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead_api.services.history.slo_reading import BY_MINUTES
from fairlead_api.services.history.times import parse_range
from fairlead_api.services.sharing import Recent
from fairlead_api.services.spans import Sight
from fairlead_client.resources.advice import Trends

MOST_STEPS = 40
LONGEST = timedelta(days=90)
LONGEST_BY_MINUTES = timedelta(hours=6)
"""Minutes of many pools cost time."""
_MINUTE, _HOUR = 60, 3600


class TrendReader(Protocol):
    """The source of trends."""

    async def trends(self, start: datetime, end: datetime, step_seconds: int, *, by_hours: bool, sight: Sight = None) -> Trends:
        """Of all living pools in sight from `start`, a whole minute or hour, in whole steps until `end` is passed."""


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
        by_hours = begun < now - BY_MINUTES or ended - begun > LONGEST_BY_MINUTES
        unit = _HOUR if by_hours else _MINUTE
        first = begun.timestamp() // unit * unit
        step = unit * math.ceil((ended.timestamp() - first) / unit / MOST_STEPS)
        from_, until = datetime.fromtimestamp(first, begun.tzinfo), datetime.fromtimestamp(ended.timestamp() // 1, ended.tzinfo)
        key = ("trends", first, step, ended.timestamp() // unit, sight)
        return await self._recent.get(key, lambda: self._reader.trends(from_, until, step, by_hours=by_hours, sight=sight))
