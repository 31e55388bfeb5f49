"""Divides a range of time into steps, and assigns values to the steps. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fairlead.errors import InvalidInput
from fairlead.range_steps import MINUTES_KEPT, STEP_SECONDS, covered
from fairlead_client.resources.series import Drawn, SeriesLine

MOST_STEPS = 360
LONGEST = timedelta(days=400)

_FINEST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps of time: `count` steps of `seconds` each, from `start`, which is a multiple of the step's length since
    1970.
    """

    start: datetime
    seconds: int
    count: int

    @property
    def end(self) -> datetime:
        """The end of the last step."""
        return self.start + timedelta(seconds=self.seconds * self.count)

    @property
    def length(self) -> timedelta:
        """The length of one step."""
        return timedelta(seconds=self.seconds)

    def index(self, at: datetime) -> int | None:
        """Return the index of the step that contains a time; None outside the range."""
        found = int((at - self.start) // self.length)
        return found if 0 <= found < self.count else None

    def lasted(self, index: int, now: datetime) -> float:
        """Return the seconds of a step that have passed by `now`."""
        begun = self.start + index * self.length
        return min(float(self.seconds), (now - begun).total_seconds())


def steps(start: datetime, end: datetime, most: int, now: datetime, least: int = _FINEST) -> Steps:
    """Return the steps that divide the range [start, end), widened to whole records (`fairlead.range_steps`). Steps
    have at least `least` seconds, and are the shortest that fill the range exactly. If these would be more than `most`,
    longer steps are returned, which may extend beyond the range.

    Raises InvalidInput for a range that is too long.
    """
    if end - start > LONGEST:
        raise InvalidInput("from", start.isoformat(), f"write a range of at most {LONGEST.days} days")
    whole = covered(start, end, now)
    least = max(least, 60 if start < now - MINUTES_KEPT else _FINEST)
    first, last = int(whole.start.timestamp()), int(whole.end.timestamp())
    for seconds in (one for one in STEP_SECONDS if one >= least and (one > whole.seconds or whole.seconds % one == 0)):
        begun = first // seconds * seconds
        count = -(-(last - begun) // seconds)
        if count <= most:
            break
    return Steps(start=datetime.fromtimestamp(begun, UTC), seconds=seconds, count=count)


def line(
    metric: str, unit: str, where: Steps, found: Mapping[int, float | None], part: str | None = None, drawn: Drawn = Drawn.LINE
) -> SeriesLine:
    """Return a line of a chart with the values `found`, by index of the step."""
    values = [found.get(index) for index in range(where.count)]
    return SeriesLine(metric=metric, part=part, unit=unit, drawn=drawn, start=where.start, step_seconds=where.seconds, values=values)


def in_force(where: Steps, changes: Iterable[tuple[datetime, float | None]], now: datetime) -> dict[int, float | None]:
    """Return, by index of the step, the value in force at the end of each step, or at `now` for the step that contains
    it. None before the first change.

    `changes` are in order of time; a change to None means that no value is in force.
    """
    found: dict[int, float | None] = {}
    left = sorted(changes, key=lambda one: one[0])
    value: float | None = None
    for index in range(where.count):
        begun = where.start + index * where.length
        until = min(begun + where.length, now)
        while left and left[0][0] <= until:
            value = left.pop(0)[1]
        found[index] = value if begun <= now else None
    return found
