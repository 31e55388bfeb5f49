"""The time range that a page shows, in whole steps: the page counts its figures and draws its charts by these steps.

Pure. Tiles, bars and sentences of one range agree only if they count the same requests. So all of them use the range
computed here: it begins and ends with a whole step, and every chart's steps divide the range's steps.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

STEP_SECONDS = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600)
"""Lengths of steps, ascending."""
MOST_COVERED = 100
"""Maximum number of steps of a range, except that a range of years may have more of the longest steps."""
BY_MINUTES = timedelta(hours=6)
"""Ranges longer than this are counted in whole hours, as are ranges that begin before MINUTES_KEPT."""
MINUTES_KEPT = timedelta(hours=25)
"""Minimum time for which records of ten seconds, and SLO counts by the minute, are kept."""
_MINUTE, _HOUR = 60, 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The range from `start` to `end`, in whole steps of `seconds`. A range that reaches the present ends up to a step
    later.
    """

    start: datetime
    end: datetime
    seconds: int

    @property
    def by_hours(self) -> bool:
        """Whether the range consists of whole hours, so that nothing finer need be read."""
        return self.seconds % _HOUR == 0


def rollup_of(seconds: int) -> str:
    """Return the coarsest rollups that add up to steps of this length: 10s, 1m or 1h, as in the names of their
    tables.
    """
    return "10s" if seconds < _MINUTE else "1m" if seconds < _HOUR else "1h"


def covered(start: datetime, end: datetime, now: datetime) -> Covered:
    """Return the whole steps around [start, end). A step is as short as possible with at most MOST_COVERED steps, but
    at least a minute, or an hour if the range is longer than BY_MINUTES or begins before MINUTES_KEPT. `start` must be
    before `end`.
    """
    early = start < now - MINUTES_KEPT or end - start > BY_MINUTES
    for seconds in (one for one in STEP_SECONDS if one >= (_HOUR if early else _MINUTE)):
        first, last = int(start.timestamp()) // seconds * seconds, -(-_ceil(end) // seconds) * seconds
        if (last - first) // seconds <= MOST_COVERED:
            break
    return Covered(start=datetime.fromtimestamp(first, UTC), end=datetime.fromtimestamp(last, UTC), seconds=seconds)


def _ceil(at: datetime) -> int:
    whole = int(at.timestamp())
    return whole if whole == at.timestamp() else whole + 1
