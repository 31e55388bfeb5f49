"""Changes a pool's schedules. The effect shows the values in force right after the change, and the conflicts between
schedules in the coming week.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instants import read_instant
from fairlead.pools import PoolSpec
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.schedules.conflicts import WEEK, conflicts
from fairlead.schedules.in_force import in_force
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import next_change, next_starts, planned_starts
from fairlead.schemas.reading import read
from fairlead.schemas.writing import written
from fairlead_api.infra.times import check_instant
from fairlead_api.plans.changes import Asked, Change, Kind, Spec, SpecQuestion, checked
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Question, Tried
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plan_kinds import PlanKind, ScheduleAction, role_for_schedule
from fairlead_client.resources.plans import PlanEffect

_KEPT = timedelta(days=62)
"""Age after which the skipped starts and the added starts of a schedule are removed from the spec."""

_FIELDS = ("name", "action", "spec", "start", "schedules")


class ScheduleQuestion(SpecQuestion):
    """Finds the effect of changed schedules."""

    async def effect(self, known: Known) -> PlanEffect:
        return await asyncio.to_thread(schedule_effect, self.after, known.now)  # a week has up to 10,080 starts of each

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("it changes the pool at times other than now")


async def _change(asked: Asked) -> Change:
    target, found = await asked.its_pool()
    return Change(target=target, found=found, patch=schedule_patch(asked.request.fields or {}, found.spec, asked.now))


def _questions(change: Change, policies: PolicyCatalogue) -> Sequence[Question]:
    return [ScheduleQuestion(after=checked(change.part, change.patch, policies))]


def _is_part(before: Spec, after: Spec) -> bool:
    return (before.get("scaling") or {}).get("schedules") != (after.get("scaling") or {}).get("schedules")


def schedule_patch(fields: Mapping[str, Any], spec: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the merge patch that replaces the list of schedules. Raises InvalidInput for an action that is
    impossible.
    """
    for name, value in fields.items():
        if name not in _FIELDS:
            raise InvalidInput(f"fields.{name}", value, f"remove it; a plan of kind schedule takes {', '.join(_FIELDS)}")
    actions = [action.value for action in ScheduleAction]
    if fields.get("action") not in actions:
        raise InvalidInput("fields.action", fields.get("action"), f"write one of {', '.join(actions)}")
    if not isinstance(fields.get("name"), str):
        raise InvalidInput("fields.name", fields.get("name"), "write the name of a schedule")
    return {"scaling": {"schedules": _changed(_schedules(spec), ScheduleAction(fields["action"]), fields, now)}}


def is_for_admins(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether changing the spec from `before` to `after` needs an admin: whether the change adds, removes or
    alters a schedule that sets a value that only admins may change.
    """
    stays = [one for one in _schedules(before) if one in _schedules(after)]
    changed = [one for one in (*_schedules(before), *_schedules(after)) if one not in stays]
    return any(role_for_schedule(one) is AccessRole.ADMIN for one in changed)


def _schedules(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(item) for item in (spec.get("scaling") or {}).get("schedules") or ()]


def _changed(before: list[dict[str, Any]], action: ScheduleAction, fields: Mapping[str, Any], now: datetime) -> list[dict[str, Any]]:
    name = fields["name"]
    if fields["action"] == ScheduleAction.REPLACE:
        return [*(one for one in before if not str(one.get("name")).startswith(name)), *_given(fields.get("schedules"), name)]
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
    schedule = _document(_acted(read(ScheduleSpec, before[place], f"spec.scaling.schedules[{place}]"), action, fields.get("start"), now))
    return [*before[:place], schedule, *before[place + 1 :]]


def _given(listed: object, prefix: str) -> list[dict[str, Any]]:
    """Return the schedules that the request lists. Raises InvalidInput unless all their names begin with the prefix."""
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise InvalidInput("fields.schedules", listed, "write a list of schedules as a manifest has them")
    found = [read(ScheduleSpec, dict(one), f"fields.schedules[{number}]") for number, one in enumerate(listed)]
    for number, one in enumerate(found):
        if not prefix or not one.name.startswith(prefix):
            raise InvalidInput(f"fields.schedules[{number}].name", one.name, f"begin it with fields.name, {prefix!r}")
    return [_document(one) for one in found]


def _acted(schedule: ScheduleSpec, action: ScheduleAction, start: object, now: datetime) -> ScheduleSpec:
    if action in {ScheduleAction.PAUSE, ScheduleAction.RESUME}:
        return replace(schedule, paused=action is ScheduleAction.PAUSE)
    at = _start(start)
    if schedule.paused:
        raise InvalidInput("fields.action", action.value, f"schedule {schedule.name} is paused; resume it first")
    oldest = min(at, now) - _KEPT
    skip, run_at = (tuple(one for one in starts if one > oldest and one != at) for starts in (schedule.skip, schedule.run_at))
    if action is ScheduleAction.RUN:
        return replace(schedule, skip=skip, run_at=(*run_at, at))
    if next(planned_starts(schedule, at - timedelta(microseconds=1)), None) != at:
        following = next(next_starts(schedule, at), None)
        known = f"; its next is {following.isoformat().replace('+00:00', 'Z')}" if following is not None else ""
        raise InvalidInput("fields.start", start, f"schedule {schedule.name} has no start then{known}")
    return replace(schedule, skip=(*skip, at), run_at=run_at)


def _start(start: object) -> datetime:
    try:
        found = read_instant(start) if isinstance(start, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:  # what has no offset would be read in this server's time zone
        raise InvalidInput("fields.start", start, "write an instant with its offset, such as 2026-12-01T07:00:00Z")
    return check_instant("fields.start", start, found).astimezone(UTC).replace(microsecond=0)


def _document(schedule: ScheduleSpec) -> dict[str, Any]:
    """Return the schedule in the form of a manifest, without empty lists. `followsForecast` is included only if it is
    true.
    """
    told = {name: value for name, value in written(schedule).items() if value != []}
    return told if schedule.follows_forecast else {name: value for name, value in told.items() if name != "followsForecast"}


_SHOWN = 3
"""Maximum number of conflicts between schedules that an effect names."""


def schedule_effect(after: PoolSpec, now: datetime) -> PlanEffect:
    """Return the effect of the schedules in `after`: the values that they set at once, the time of their next change,
    and their conflicts.
    """
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


KIND = Kind(name=PlanKind.SCHEDULE, change=_change, questions=_questions, is_part=_is_part, is_for_admins=is_for_admins)
