"""The time range that a page shows, in whole steps: the page counts its figures and draws its charts by these steps.

Pure. Tiles, bars and sentences of one range agree only if they count the same requests. So all of them use the range
computed here: it begins and ends with a whole step, and every chart's steps divide the range's steps.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

STEP_SECONDS = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600)
"""Lengths of steps, ascending."""
MOST_COVERED = 100
"""Maximum number of steps in a range. A range of years may have more steps, because there is no longer step."""
BY_MINUTES = timedelta(hours=6)
"""Ranges longer than this are counted in whole hours. Ranges that begin before MINUTES_KEPT are also counted in whole
hours.
"""
MINUTES_KEPT = timedelta(hours=25)
"""Minimum time for which records of ten seconds, and SLO counts by the minute, are kept."""
_MINUTE, _HOUR = 60, 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The range from `start` to `end`, in whole steps of `seconds`. If the range reaches the present, its end is up to
    one step in the future.
    """

    start: datetime
    end: datetime
    seconds: int

    @property
    def by_hours(self) -> bool:
        """Whether the range consists of whole hours, so that nothing finer need be read."""
        return self.seconds % _HOUR == 0


def rollup_of(seconds: int) -> str:
    """Return the coarsest roll-ups from which steps of this length can be added up: `10s`, `1m` or `1h`, as in the
    names of their tables.
    """
    return "10s" if seconds < _MINUTE else "1m" if seconds < _HOUR else "1h"


def covered(start: datetime, end: datetime, now: datetime) -> Covered:
    """Return the whole steps around [start, end). `start` must be before `end`.

    The steps are the shortest of which at most MOST_COVERED cover the range. Steps are at least a minute long. They are
    at least an hour long if the range is longer than BY_MINUTES or begins before MINUTES_KEPT.
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
