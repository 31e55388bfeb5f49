"""The outcome of each start of a window: it opened and closed, or it was skipped for a reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import takewhile

from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import Window, planned_starts

MOST = 500
"""Maximum number of a schedule's starts that are examined in one call; a long outage may have more."""


class RunOutcome(StrEnum):
    """The outcome of a start: whether it opened a window."""

    OPEN = "open"
    CLOSED = "closed"
    SKIPPED = "skipped"


class RunReason(StrEnum):
    """The reason why a window closed, or why a start opened no window.

    `missed`: the control API got no state of the pool during the whole window, so it is unknown whether the window was
    in force.
    """

    ENDED = "ended"
    CHANGED = "changed"
    REMOVED = "removed"
    PAUSED = "paused"
    SKIP = "skip"
    OVERRULED = "overruled"
    MISSED = "missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedStart:
    """A start that opened no window."""

    schedule: str
    start: datetime
    reason: RunReason


def skipped_starts(schedules: Sequence[ScheduleSpec], since: datetime, until: datetime, opened: Sequence[Window]) -> Iterator[SkippedStart]:
    """Yield the starts in (since, until] that opened no window. `opened` are the windows that were known to have opened
    until `until`.

    `missed` are starts that were never reported: no state of the pool arrived during the whole window, because the
    operator, the control API or its database was unavailable. If only the API was unavailable, the operator applied the
    window nevertheless.
    """
    known = {(window.schedule, window.opens) for window in opened}
    for schedule in schedules:
        for number, start in enumerate(takewhile(lambda start: start <= until, planned_starts(schedule, since))):
            if number >= MOST:
                break
            if start in schedule.skip:
                yield SkippedStart(schedule=schedule.name, start=start, reason=RunReason.SKIP)
            elif schedule.paused:
                yield SkippedStart(schedule=schedule.name, start=start, reason=RunReason.PAUSED)
            elif (schedule.name, start) not in known:
                yield SkippedStart(schedule=schedule.name, start=start, reason=RunReason.MISSED)


def closing_reason(schedules: Mapping[str, ScheduleSpec], window: Window, now: datetime) -> RunReason:
    """Return the reason why an open window has closed."""
    schedule = schedules.get(window.schedule)
    if now >= window.closes:
        return RunReason.ENDED
    if schedule is None:
        return RunReason.REMOVED
    if window.opens in schedule.skip:
        return RunReason.SKIP
    return RunReason.PAUSED if schedule.paused else RunReason.CHANGED
