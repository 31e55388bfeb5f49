"""The effect of a change of schedules: what holds right after it, and the conflicts of the coming week. Pure."""

from datetime import datetime

from fairlead.pools import PoolSpec
from fairlead.schedules.conflicts import WEEK, conflicts
from fairlead.schedules.in_force import in_force
from fairlead.schedules.windows import next_change
from fairlead.schemas.writing import written
from fairlead_client.resources.plans import PlanEffect

_SHOWN = 3
"""Most conflicts that are named."""


def schedule_effect(after: PoolSpec, now: datetime) -> PlanEffect:
    """What the schedules of `after` set at once, when they change something next, and where they meet."""
    schedules = after.scaling.schedules
    found, change = in_force(schedules, now), next_change(schedules, now)
    words = [f"The window of {window.schedule} is open until {_said(window.closes)}." for window in found.windows]
    words += [f"Schedule {one.schedule} bounds {one.role.value} to {_range(one.min_replicas, one.max_replicas)}." for one in found.bounds]
    overrides = {"slo": found.slo_override, "earlyRejection": found.early_rejection_override, "ratio": found.ratio_override}
    words += [
        f"Schedule {found.deciding[section][0]} sets {section}.{name} to {value}."
        for section, given in overrides.items()
        if given is not None
        for name, value in written(given).items()
    ]
    if not found.windows:
        words.append("No window is open right after the change.")
    if change is not None:
        words.append(f"The next change is at {_said(change)}.")
    meetings = conflicts(schedules, now, now + WEEK)
    meet = [
        f"{one.schedule} and {one.other} are open together from {_said(one.begins)} to {_said(one.ends)}; "
        + (f"{one.decided_by} decides." if one.decided_by else "the larger bounds count.")
        for one in meetings[:_SHOWN]
    ]
    if len(meetings) > _SHOWN:
        meet.append(f"{len(meetings) - _SHOWN} more such times in the coming week.")
    return PlanEffect(notes=words, warnings=meet)


def _said(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")


def _range(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return f"at least {least}" if most is None else f"at most {most}"
    return f"{least} to {most}" if least != most else str(least)
