"""Converts the form of the schedule builder (days, times, a zone and bounds) to a schedule of a manifest, and back.
Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairlead.adoption_specs import MOST_BY_DEFAULT
from fairlead.durations import format_duration, parse_duration
from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schemas.reading import read
from fairlead.tables import EARLY_REJECTION_MODES
from fairlead_web.text.typed_text import number, whole_number

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WORKDAYS = frozenset({"1", "2", "3", "4", "5"})
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DAY_MINUTES = 24 * 60
TARGETS = (("ttft", "Time to first token"), ("tpot", "Time per output token"), ("percentile", "Goal, % in time"))
MODES = EARLY_REJECTION_MODES


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleBounds:
    """A role whose number of instances a schedule may bound: the role's bounds in the spec, `least` and `most`, and the
    typed bounds.
    """

    name: str
    least: int
    most: int
    minimum: str = ""
    maximum: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleForm:
    """The schedule builder's form, as typed. `days` are numbers of `DAYS`, from 1. `problem` is shown at the field
    named `at`.
    """

    pool: str
    name: str = ""
    days: frozenset[str] = WORKDAYS
    begins: str = "22:00"
    ends: str = "06:00"
    zone: str = "UTC"
    roles: tuple[RoleBounds, ...] = ()
    slo: Mapping[str, str] = field(default_factory=dict)
    mode: str = ""
    problem: str | None = None
    at: str = ""

    def refused(self, field: str, words: str) -> "ScheduleForm":
        """Return the form with a problem. `field` is the schedule's field at fault. The problem is shown at the
        corresponding field of the form or, without such a field, for the whole form.
        """
        at = _place(field)
        return replace(self, problem=words, at=at if at in self.fields else "")

    @property
    def fields(self) -> frozenset[str]:
        """The names of the form's fields."""
        roles = {f"roles.{place}.{bound}" for place in range(len(self.roles)) for bound in ("minimum", "maximum")}
        return frozenset({"pool", "name", "days", "begins", "ends", "zone", "mode", *roles, *(f"slo.{name}" for name, _ in TARGETS)})


_PLACES = {"cron": "days", "duration": "ends", "timeZone": "zone", "earlyRejection.mode": "mode"}


def _place(path: str) -> str:
    path = path.removeprefix("fields.").removeprefix("spec.")
    role = re.search(r"roles\[(\d+)\]\.(\w+)", path)
    if role is not None:
        return f"roles.{role[1]}.{'maximum' if role[2] == 'maxReplicas' else 'minimum'}"
    return _PLACES.get(path, path)


def roles_of(spec: Mapping[str, Any]) -> tuple[RoleBounds, ...]:
    """Return the roles of a pool, each with the bounds in the pool's spec."""
    roles = spec.get("roles") or [{"name": Role.BOTH.value}]
    return tuple(
        RoleBounds(name=str(one["name"]), least=one.get("minReplicas", 0), most=one.get("maxReplicas", MOST_BY_DEFAULT)) for one in roles
    )


def form_of(pool: str, roles: tuple[RoleBounds, ...], schedule: Mapping[str, Any]) -> ScheduleForm | None:
    """Return the form that describes a schedule of a manifest. None if the form cannot express the whole schedule, for
    example days of the month.
    """
    found = _form_of(pool, roles, schedule)
    return found if found is not None and _means(schedule_of(found), schedule) else None


def _means(built: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """Return whether both manifests describe the same schedule, however they are written."""
    try:
        one, other = (read(ScheduleSpec, {**each, "name": "same"}, "spec") for each in (built, written))
    except InvalidInput:
        return False
    return bool(one == other)


def _form_of(pool: str, roles: tuple[RoleBounds, ...], schedule: Mapping[str, Any]) -> ScheduleForm | None:
    cron = re.fullmatch(r" *(\d+) +(\d+) +\* +\* +([\d,*-]+) *", str(schedule.get("cron")))
    beyond = {"ratio", "skip", "runAt", "paused"} & {name for name, value in schedule.items() if value}
    if cron is None or beyond or (schedule.get("earlyRejection") or {}).keys() - {"mode"}:
        return None
    begins = int(cron[2]) * 60 + int(cron[1])
    minutes = parse_duration(schedule.get("duration"), "duration") / 60
    days = _days_of(cron[3])
    if days is None or minutes != int(minutes) or not 0 < minutes <= _DAY_MINUTES:
        return None
    bounds = {one["name"]: one for one in schedule.get("roles") or ()}
    return ScheduleForm(
        pool=pool,
        name=str(schedule.get("name", "")),
        days=days,
        begins=_clock(begins),
        ends=_clock(begins + int(minutes)),
        zone=str(schedule.get("timeZone", "UTC")),
        roles=tuple(_bounded(one, bounds.get(one.name, {})) for one in roles),
        slo={name: str(value) for name, value in (schedule.get("slo") or {}).items()},
        mode=str((schedule.get("earlyRejection") or {}).get("mode", "")),
    )


def _bounded(role: RoleBounds, given: Mapping[str, Any]) -> RoleBounds:
    least, most = (given.get(name, given.get("replicas", "")) for name in ("minReplicas", "maxReplicas"))
    return replace(role, minimum=str(least), maximum=str(most))


def _days_of(text: str) -> frozenset[str] | None:
    found: set[str] = set()
    for part in text.split(","):
        if part == "*":
            return frozenset("1234567")
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return None
        found |= {str(day or 7) for day in range(int(first), int(last or first) + 1)}
    return frozenset(found)


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}"


def typed(pool: str, roles: tuple[RoleBounds, ...], form: Mapping[str, str], days: Iterable[str]) -> ScheduleForm:
    """Return the form with the values that were submitted."""

    def text(name: str) -> str:
        return form.get(name, "").strip()

    return ScheduleForm(
        pool=pool,
        name=text("name"),
        days=frozenset(days),
        begins=text("begins"),
        ends=text("ends"),
        zone=text("zone"),
        roles=tuple(
            replace(one, minimum=text(f"roles.{place}.minimum"), maximum=text(f"roles.{place}.maximum")) for place, one in enumerate(roles)
        ),
        slo={name: value for name, _ in TARGETS if (value := text(f"slo.{name}"))},
        mode=text("mode"),
    )


def schedule_of(form: ScheduleForm) -> dict[str, Any]:
    """Return the schedule that the form describes, as in a manifest, without a name. Raises InvalidInput."""
    days = sorted(one for one in form.days if one in set("1234567"))
    if not days:
        raise InvalidInput("days", None, "choose at least one day")
    begins, ends = _minutes("begins", form.begins), _minutes("ends", form.ends)
    found: dict[str, Any] = {
        "cron": f"{begins % 60} {begins // 60} * * {_of_week(days)}",
        "duration": format_duration(60 * ((ends - begins) % _DAY_MINUTES or _DAY_MINUTES)),
        "timeZone": form.zone,
    }
    if roles := [bounds for place, one in enumerate(form.roles) if len(bounds := _role(place, one)) > 1]:
        found["roles"] = roles
    if form.slo:
        found["slo"] = {name: _target(name, value) for name, value in form.slo.items()}
    if form.mode:
        found["earlyRejection"] = {"mode": form.mode}
    return found


def _minutes(name: str, text: str) -> int:
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise InvalidInput(name, text, "write a time of day such as 22:00")
    return int(found[1]) * 60 + int(found[2])


def _of_week(days: Sequence[str]) -> str:
    """Return days of the week in cron's notation, in which Sunday is 0."""
    if len(days) == len(DAYS):
        return "*"
    numbers = sorted(int(day) % 7 for day in days)
    in_a_row = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]}-{numbers[-1]}" if in_a_row else ",".join(map(str, numbers))


def _role(place: int, role: RoleBounds) -> dict[str, Any]:
    given = {"minReplicas": (f"roles.{place}.minimum", role.minimum), "maxReplicas": (f"roles.{place}.maximum", role.maximum)}
    found: dict[str, Any] = {"name": role.name}
    for name, (at, text) in given.items():
        if text:
            found[name] = whole_number(text)
            if found[name] is None:
                raise InvalidInput(at, text, "write a number of instances such as 4")
    return found


def _target(name: str, text: str) -> Any:
    if name != "percentile":
        return text
    try:
        return number(text)
    except ValueError as error:
        raise InvalidInput("slo.percentile", text, "write a number from 1 to 100") from error


def sets_in_words(schedule: Mapping[str, Any]) -> str:
    """Return words for the settings of a schedule: `4 to 8 instances, TTFT 2s, early rejection Load`."""
    roles = schedule.get("roles") or []
    words = [_instances(one, alone=len(roles) == 1 and one.get("name") == Role.BOTH) for one in roles]
    slo, rejection, ratio = (schedule.get(name) or {} for name in ("slo", "earlyRejection", "ratio"))
    words += [f"{say} {slo[name]}{' %' if name == 'percentile' else ''}" for name, say in _SLO_WORDS.items() if name in slo]
    words += [f"early rejection {rejection['mode']}"] if "mode" in rejection else []
    words += [f"headroom {rejection['headroom']}"] if "headroom" in rejection else []
    words += [f"ratio {name} {value}" for name, value in ratio.items()]
    return ", ".join(words) or "nothing"


_SLO_WORDS = {"ttft": "TTFT", "tpot": "TPOT", "percentile": "goal"}


def _instances(role: Mapping[str, Any], *, alone: bool) -> str:
    least, most = (role.get(name, role.get("replicas")) for name in ("minReplicas", "maxReplicas"))
    number = f"{least} to {most}" if None not in (least, most) and least != most else f"{least if least is not None else most}"
    bound = "at least " if most is None else "at most " if least is None else ""
    noun = "instance" if number == "1" else "instances"
    return f"{bound}{number} {noun}" if alone else f"{bound}{number} {role.get('name')}"
