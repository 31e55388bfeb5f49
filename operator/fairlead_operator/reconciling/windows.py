"""The effect of the pool's schedules on this round: status, events, the state sent to the API, the next
wake-up. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

from fairlead.pool_states import SchedulesInForce
from fairlead.pools import PoolSpec
from fairlead.scaling.specs import RatioSpec
from fairlead.schedules.in_force import InForce, in_force
from fairlead.schedules.windows import next_change, next_starts, open_windows
from fairlead_operator.times import format_second, parse_time


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEvent:
    """A window that opened or closed since the status was written."""

    reason: str
    message: str
    schedule: str
    opened: str

    @property
    def figure(self) -> dict[str, Any]:
        """Return the window in the form of the pool's history."""
        return {"schedule": self.schedule, "opened": self.opened}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """The effect of a spec's schedules at a point in time. `wake_in` is the number of seconds until the next window
    opens or closes; infinite if no window will.

    `ratio` is the pool's ratio section, with the overrides of open windows.
    """

    found: InForce
    ratio: RatioSpec
    told: SchedulesInForce
    status: tuple[dict[str, Any], ...]
    wake_in: float


SUSPENDED_BY = "scaling without the forecast, because demand is outside of it"
"""The reason shown for a schedule that follows a forecast and is suspended, because demand is outside of the forecast.
A schedule that another schedule overrules shows the name of that schedule in the same place.
"""


def scheduled(spec: PoolSpec | None, now: float, *, forecast_left: bool = False) -> Scheduled | None:
    """Return the effect of the spec's schedules at `now` (Unix seconds); None without a spec. If `forecast_left` is
    True, demand is outside of the forecast, and the schedules that follow the forecast have no effect.
    """
    if spec is None:
        return None
    instant = datetime.fromtimestamp(now, UTC)
    schedules = tuple(one for one in spec.scaling.schedules if not (forecast_left and one.follows_forecast))
    found = in_force(schedules, instant)
    change = next_change(spec.scaling.schedules, instant)
    overruled = {schedule.name: " and ".join(found.overruling(schedule)) for schedule in schedules if found.is_open(schedule.name)}
    suspended = {one.name: SUSPENDED_BY for one in spec.scaling.schedules if one not in schedules}
    return Scheduled(
        found=found,
        ratio=found.ratio(spec.ratio),
        told=SchedulesInForce(
            at=instant,
            windows=open_windows(spec.scaling.schedules, instant),
            slo=found.slo(spec.slo),
            early_rejection=found.early_rejection(spec.early_rejection),
            overruled={name: by for name, by in overruled.items() if by} | suspended,
        ),
        status=_status(spec, found, instant),
        wake_in=inf if change is None else max(0.0, change.timestamp() - now),
    )


def _status(spec: PoolSpec, found: InForce, instant: datetime) -> tuple[dict[str, Any], ...]:
    open_ = {window.schedule: window for window in found.windows}
    lines = []
    for schedule in spec.scaling.schedules:
        line: dict[str, Any] = {"name": schedule.name}
        if window := open_.get(schedule.name):
            line |= {"opened": format_second(window.opens.timestamp()), "closes": format_second(window.closes.timestamp())}
        if following := next(next_starts(schedule, instant), None):
            line["next"] = format_second(following.timestamp())
        lines.append(line)
    return tuple(lines)


def window_events(status: Mapping[str, Any], after: Scheduled | None, now: float) -> tuple[WindowEvent, ...]:
    """Return an event for each window that opened or closed since the status was written, in the order of closing and
    opening.

    A window that ends as the next window of its schedule begins makes no event.
    """
    if after is None:
        return ()
    before = _open(status.get("schedules") or ())
    present = _open(after.status)
    closed = [_closed(name, line, name in {item["name"] for item in after.status}, now) for name, line in before.items()]
    same = {name for name, line in present.items() if name in before and _goes_on(before[name], line)}
    opened = [
        WindowEvent(
            reason="WindowOpened",
            message=f"The window of schedule {name} is open from {line['opened']} until {line['closes']}",
            schedule=name,
            opened=line["opened"],
        )
        for name, line in present.items()
        if name not in same
    ]
    return (*(event for event in closed if event.schedule not in same), *opened)


def _open(lines: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {line["name"]: line for line in lines if line.get("opened")}


def _goes_on(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether the window `after` is the window `before` of the same schedule, or began no later than `before`
    ended.
    """
    ended, began = parse_time(before.get("closes")), parse_time(after["opened"])
    return before["opened"] == after["opened"] or (ended is not None and began is not None and began <= ended)


def _closed(name: str, line: Mapping[str, Any], exists: bool, now: float) -> WindowEvent:
    closes = parse_time(line.get("closes"))
    if not exists:
        why = "the schedule was removed"
    elif closes is not None and now >= closes:
        why = f"its end was {line['closes']}"
    else:
        why = "the schedule was changed, skipped, paused or suspended, or the clock was set"
    return WindowEvent(
        reason="WindowClosed", message=f"The window of schedule {name} is closed: {why}", schedule=name, opened=str(line["opened"])
    )
