"""Changes of a pool's schedules, as a merge patch of its spec. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.schedules.specs import ScheduleSpec, parse_instant
from fairlead.schedules.windows import next_starts, planned_starts
from fairlead.schemas.reading import read
from fairlead.schemas.writing import written
from fairlead_client.resources.plans import ScheduleAction

_KEPT = timedelta(days=62)
"""Skipped and added starts older than this, before the one that is planned, are cleared away."""

_FIELDS = ("name", "action", "spec", "start")


def schedule_patch(fields: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that replaces the list of schedules. Raises InvalidInput for an action that cannot be done."""
    for name, value in fields.items():
        if name not in _FIELDS:
            raise InvalidInput(f"fields.{name}", value, f"remove it; a plan of kind schedule takes {', '.join(_FIELDS)}")
    actions = [action.value for action in ScheduleAction]
    if fields.get("action") not in actions:
        raise InvalidInput("fields.action", fields.get("action"), f"write one of {', '.join(actions)}")
    if not isinstance(fields.get("name"), str):
        raise InvalidInput("fields.name", fields.get("name"), "write the name of a schedule")
    before = [dict(item) for item in (spec.get("scaling") or {}).get("schedules") or ()]
    return {"scaling": {"schedules": _changed(before, ScheduleAction(fields["action"]), fields)}}


def _changed(before: list[dict[str, Any]], action: ScheduleAction, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    name = fields["name"]
    place = next((number for number, item in enumerate(before) if item.get("name") == name), None)
    if action is ScheduleAction.SET:
        wanted = fields.get("spec")
        if not isinstance(wanted, Mapping):
            raise InvalidInput("fields.spec", wanted, "write the schedule as a manifest has it")
        schedule = _document(read(ScheduleSpec, {**wanted, "name": name}, "fields.spec"))
        return [*before, schedule] if place is None else [*before[:place], schedule, *before[place + 1 :]]
    if place is None:
        known = ", ".join(str(item.get("name")) for item in before) or "none"
        raise InvalidInput("fields.name", name, f"the pool's schedules are: {known}")
    if action is ScheduleAction.DELETE:
        return [*before[:place], *before[place + 1 :]]
    schedule = _document(_acted(read(ScheduleSpec, before[place], f"spec.scaling.schedules[{place}]"), action, fields.get("start")))
    return [*before[:place], schedule, *before[place + 1 :]]


def _acted(schedule: ScheduleSpec, action: ScheduleAction, start: object) -> ScheduleSpec:
    if action in {ScheduleAction.PAUSE, ScheduleAction.RESUME}:
        return replace(schedule, paused=action is ScheduleAction.PAUSE)
    at = _start(start)
    if schedule.paused:
        raise InvalidInput("fields.action", action.value, f"schedule {schedule.name} is paused; resume it first")
    skip, run_at = (tuple(one for one in starts if one > at - _KEPT and one != at) for starts in (schedule.skip, schedule.run_at))
    if action is ScheduleAction.RUN:
        return replace(schedule, skip=skip, run_at=(*run_at, at))
    if next(planned_starts(schedule, at - timedelta(microseconds=1)), None) != at:
        following = next(next_starts(schedule, at), None)
        known = f"; its next is {following.isoformat().replace('+00:00', 'Z')}" if following is not None else ""
        raise InvalidInput("fields.start", start, f"schedule {schedule.name} has no start then{known}")
    return replace(schedule, skip=(*skip, at), run_at=run_at)


def _start(start: object) -> datetime:
    try:
        if isinstance(start, str):
            return parse_instant(start).replace(microsecond=0)
    except ValueError:
        pass
    raise InvalidInput("fields.start", start, "write an instant, such as 2026-12-01T07:00:00Z")


def _document(schedule: ScheduleSpec) -> dict[str, Any]:
    """The schedule as a manifest has it, without empty lists."""
    return {name: value for name, value in written(schedule).items() if value != []}
