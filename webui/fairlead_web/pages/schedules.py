"""`/schedules` and `…/{namespace}/{name}/{schedule}`: schedules' windows of time, the values that they set, and the
outcomes of their starts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import yaml
from starlette.datastructures import FormData
from starlette.responses import Response

from fairlead.errors import InvalidInput
from fairlead.instances import MAX_REPLICAS, Role
from fairlead.schedules.conflicts import WEEK
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import Window, windows_between
from fairlead.schedules.zones import known_zones
from fairlead.schemas.reading import read
from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest, ScheduleAction, role_for_schedule
from fairlead_client.resources.problems import Problem
from fairlead_client.resources.schedules import InForceAt, ScheduleDetail, ScheduleItem, ScheduleRun
from fairlead_process.yaml_documents import complaint, read_yaml
from fairlead_web.drawing.charts import WeekGrid, local_grid
from fairlead_web.forms.schedule_forms import (
    DAYS,
    MODES,
    TARGETS,
    ScheduleForm,
    form_of,
    roles_of,
    schedule_of,
    sets_in_words,
    typed,
)
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.addresses import pool_path, with_query
from fairlead_web.text.time_ranges import stamp
from fairlead_web.text.yaml_text import yaml_text

ONE = "/schedules/{namespace}/{name}/{schedule}"

_MOST_WINDOWS = 200
OFFICE_HOURS = """cron: "0 8 * * 1-5"
duration: 10h
timeZone: Europe/Berlin
roles:
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewForm:
    """The form for the text of a new schedule, as last submitted; `problem` is the fault of the text."""

    pool: str
    name: str
    text: str
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnWeek:
    """The coming week of a schedule for which no plan has been made, in the time zone `zone`, and its first starts."""

    zone: str
    grid: WeekGrid
    starts: tuple[str, ...]
    sets: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulesPage(Context):
    """The page with all schedules and the outcomes of their newest starts."""

    template: ClassVar[str] = "pages/schedules.html"
    shell: Shell
    listing: Listing[ScheduleItem]
    runs: list[ScheduleRun] | None
    form: NewForm
    built: ScheduleForm
    """The form of the schedule builder, next to the form for a schedule's text."""
    changes: bool
    """Whether the schedule builder changes an existing schedule or makes a new one."""
    week: DrawnWeek | None
    days: tuple[str, ...]
    targets: tuple[tuple[str, str], ...]
    modes: tuple[str, ...]
    zones: tuple[str, ...]
    sets: dict[str, str]
    """Words for the settings of each schedule, by pool and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePage(Context):
    """The page of one schedule. `preview` has the values in force in its pool at the requested time `at`. A change of
    the schedule needs the role `needed`.
    """

    template: ClassVar[str] = "pages/schedule.html"
    shell: Shell
    detail: ScheduleDetail
    grid: WeekGrid
    sets: str
    runs: Listing[ScheduleRun] | None
    preview: InForceAt | None
    at: str
    text: str
    problem: str | None
    actions: tuple[tuple[str, str], ...]
    needed: AccessRole
    in_builder: str | None
    """Address at which the schedule builder opens the schedule; None if the builder's form cannot express the whole
    schedule.
    """


def week_of(form: ScheduleForm, now: datetime) -> DrawnWeek:
    """Return the week of the form's schedule, seven days from today. Raises InvalidInput for a schedule that the schema
    refuses.
    """
    spec = schedule_of(form)
    schedule = read(ScheduleSpec, {**spec, "name": form.name or "new"}, "spec")
    local = now.astimezone(schedule.time_zone)
    start = local.replace(hour=0, minute=0, second=0, microsecond=0)
    windows = list(islice(windows_between(schedule, now - timedelta(days=1), now + WEEK), _MOST_WINDOWS))
    starts = [one.opens.astimezone(schedule.time_zone) for one in windows if one.opens > now]
    return DrawnWeek(
        zone=form.zone,
        grid=local_grid(windows, [schedule.name], start, now),
        starts=tuple(f"{one:%a %d %b %H:%M %Z}" for one in starts[:3]),
        sets=sets_in_words(spec),
    )


async def index(visit: Visit) -> Response:
    return await _index(visit, None)


async def _index(visit: Visit, form: NewForm | None, status: int = 200, built: ScheduleForm | None = None) -> Response:
    filters = visit.filters("pool")
    listing, runs = await asyncio.gather(
        visit.api.schedules(filters), visit.attempt("schedule runs", visit.api.schedule_runs({"pool": visit.param("pool"), "limit": 15}))
    )
    shell = await visit.shell("Schedules", "schedules", crumbs=(Crumb(words="Schedules"),), pool=visit.param("pool"))
    pool = visit.param("pool") or next((f"{one.namespace}/{one.name}" for one in shell.pools if one.engines_file is None), "")
    spec, desired = await _pool_of(visit, pool)
    opened_one = next((one for one in listing.items if one.pool == pool and one.name == visit.param("edit")), None)
    built = built or (form_of(pool, roles_of(spec), {**opened_one.spec, "name": opened_one.name}) if opened_one else None)
    built = built or ScheduleForm(pool=pool, zone=_usual_zone(visit, listing.items), roles=roles_of(spec))
    page = SchedulesPage(
        shell=shell,
        listing=listing,
        runs=runs.items if runs else None,
        form=form or _new_form(pool, spec, desired),
        built=built,
        changes=any(one.pool == pool and one.name == built.name for one in listing.items),
        week=None if built.problem else _drawn(built, visit),
        days=DAYS,
        targets=TARGETS,
        modes=MODES,
        zones=tuple(sorted(known_zones())),
        sets={f"{one.pool}/{one.name}": sets_in_words(one.spec) for one in listing.items},
    )
    return visit.page(page, status)


def _drawn(built: ScheduleForm, visit: Visit) -> DrawnWeek | None:
    """Return the week of the schedule builder's form; None while the form is incomplete."""
    try:
        return week_of(built, visit.now)
    except InvalidInput:
        return None


def _usual_zone(visit: Visit, listed: Sequence[ScheduleItem]) -> str:
    """Return the time zone of the existing schedules or, if there are none, the reader's time zone."""
    return listed[0].time_zone if listed else visit.preferences.zone


async def _pool_of(visit: Visit, pool: str) -> tuple[Mapping[str, Any], Mapping[str, int]]:
    """Return the pool's spec and its desired number of instances by role; both are empty for a pool that cannot be
    read.
    """
    try:
        detail = await visit.attempt("pool", visit.api.pool(PoolKey.parse(pool), instances=False))
    except ValueError:
        detail = None
    if detail is None:
        return {}, {}
    return detail.spec, detail.desired


def _new_form(pool: str, spec: Mapping[str, Any], desired: Mapping[str, int]) -> NewForm:
    """Return a form with an example schedule as text: twice as many instances of each role during office hours, within
    the pool's bounds.
    """
    wanted = {role.value: desired[role] for role in Role if role in desired} or {Role.BOTH.value: 1}
    most = {role["name"]: role["maxReplicas"] for role in spec.get("roles") or [] if "maxReplicas" in role}
    bounds = [{"name": role, "minReplicas": min(max(1, 2 * now), most.get(role, MAX_REPLICAS))} for role, now in wanted.items()]
    return NewForm(pool=pool, name="", text=OFFICE_HOURS + yaml_text(bounds), problem=None)


async def show(visit: Visit) -> Response:
    return await _show(visit, None, None)


async def _show(visit: Visit, text: str | None, problem: Problem | None) -> Response:
    key, name, at = visit.pool_key(), str(visit.request.path_params["schedule"]), visit.param("at")
    found, runs, preview = await asyncio.gather(
        visit.api.schedule(key, name),
        visit.attempt("schedule runs", visit.api.schedule_runs({"pool": str(key), "schedule": name, "limit": 30})),
        visit.attempt("preview", visit.api.bounds(key, at=at or "now")),
    )
    detail, start = await _in_its_zone(visit, found)
    names = list(dict.fromkeys([name, *sorted(window.schedule for window in detail.windows)]))
    crumbs = crumbs_below(str(key), Crumb(words="Schedules", path=f"{pool_path(str(key))}/schedules"), Crumb(words=name))
    schedule = detail.schedule
    return visit.page(
        SchedulePage(
            shell=await visit.shell(f"Schedule {name}", "pools", crumbs=crumbs, pool=str(key), tab="schedules"),
            detail=detail,
            grid=local_grid(opened(detail.windows, name, runs, visit.now), names, start, visit.now),
            sets=sets_in_words(detail.schedule.spec),
            runs=runs,
            preview=preview,
            at=at or "",
            text=text
            if text is not None
            else yaml_text({field: value for field, value in schedule.spec.items() if field != "name" and value != []}),
            problem=None if problem is None else _told(problem),
            actions=_actions(schedule),
            needed=role_for_schedule(schedule.subjects),
            in_builder=await _in_builder(visit, schedule),
        ),
        status=problem.status if problem else 200,
    )


def opened(windows: Sequence[Window], name: str, runs: Listing[ScheduleRun] | None, now: datetime) -> list[Window]:
    """Return the windows that opened or will open. A past window of the schedule `name` is left out if no run of the
    schedule is recorded for it, because the schedule did not exist at that time. If `runs` is None, all windows are
    returned.
    """
    if runs is None:
        return list(windows)
    ran = {run.start for run in runs.items}
    return [one for one in windows if one.schedule != name or one.opens > now or one.opens in ran]


async def _in_its_zone(visit: Visit, found: ScheduleDetail) -> tuple[ScheduleDetail, datetime]:
    """Return the schedule with the week from today's midnight in the schedule's time zone, and that midnight."""
    zone = found.schedule.time_zone
    local = visit.now.astimezone(ZoneInfo(zone if zone in known_zones() else "UTC"))
    start = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if start == found.start:
        return found, start
    key = PoolKey.parse(found.schedule.pool)
    return await visit.api.schedule(key, found.schedule.name, start=stamp(start)), start


async def _in_builder(visit: Visit, schedule: ScheduleItem) -> str | None:
    spec, _ = await _pool_of(visit, schedule.pool)
    if form_of(schedule.pool, roles_of(spec), {**schedule.spec, "name": schedule.name}) is None:
        return None
    return with_query(f"{pool_path(schedule.pool)}/schedules", {"edit": schedule.name}) + "#builder"


def _actions(schedule: ScheduleItem) -> tuple[tuple[str, str], ...]:
    """Return the actions that one button can plan, each as its name and its text."""
    if schedule.paused:
        return (("resume", "Resume"), ("delete", "Delete"))
    skip = (("skip", "Skip the next start"),) if schedule.next_starts else ()
    return (*skip, ("run", "Run now"), ("pause", "Pause"), ("delete", "Delete"))


async def plan(visit: Visit) -> Response:
    """Request a plan for an action on a schedule, and redirect to the plan. A refusal is shown next to the form."""
    form = await visit.form()
    name, action = str(visit.request.path_params["schedule"]), str(form.get("action", ""))
    text = str(form.get("spec", "")) if action == ScheduleAction.SET else None
    fields: dict[str, Any] = {"name": name, "action": action}
    try:
        if text is not None:
            fields["spec"] = read_yaml(text)
        if action == ScheduleAction.RUN:
            fields["start"] = visit.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        if action == ScheduleAction.SKIP:
            starts = (await visit.api.schedule(visit.pool_key(), name)).schedule.next_starts
            fields["start"] = starts[0].at.strftime("%Y-%m-%dT%H:%M:%SZ") if starts else ""
        made = await visit.api.create_plan(visit.pool_key(), PlanRequest(kind=PlanKind.SCHEDULE, fields=fields))
    except ApiProblem as error:
        if error.problem.status not in {400, 403, 409, 422}:
            raise
        return await _show(visit, text, error.problem)
    except yaml.YAMLError as error:
        return await _show(visit, text, _unreadable(error))
    return visit.redirect(f"/plans/{made.id}")


async def create(visit: Visit) -> Response:
    """Request a plan for a new schedule, or for a new spec of an existing one, and redirect to the plan. On a page
    below a pool, the schedule belongs to that pool.
    """
    form = await visit.form()
    pool, name, text = (str(form.get(field, "")).strip() for field in ("pool", "name", "spec"))
    pool = str(visit.pool_key()) if visit.in_pool else pool
    if "begins" in form:
        return await _build(visit, pool, form)
    try:
        key = PoolKey.parse(pool)
        fields = {"name": name, "action": ScheduleAction.SET.value, "spec": read_yaml(text)}
        made = await visit.api.create_plan(key, PlanRequest(kind=PlanKind.SCHEDULE, fields=fields))
    except ApiProblem as error:
        if error.problem.status not in {400, 403, 404, 409, 422}:
            raise
        problem = _told(error.problem)
    except yaml.YAMLError as error:
        problem = _unreadable(error).detail
    except ValueError as error:
        problem = f"pool: {error}; write it as in default/chat."
    else:
        return visit.redirect(f"/plans/{made.id}")
    return await _index(visit, NewForm(pool=pool, name=name, text=text, problem=problem), 422)


async def _build(visit: Visit, pool: str, form: FormData) -> Response:
    """Request a plan for the schedule in the builder's form, or only draw its week."""
    spec, _ = await _pool_of(visit, pool)
    texts = {name: value for name, value in form.items() if isinstance(value, str)}
    built = typed(pool, roles_of(spec), texts, [str(one) for one in form.getlist("days")])
    try:
        week_of(built, visit.now)
        if texts.get("action") == "draw":
            return await _index(visit, None, built=built)
        fields = {"name": built.name, "action": ScheduleAction.SET.value, "spec": schedule_of(built)}
        made = await visit.api.create_plan(PoolKey.parse(pool), PlanRequest(kind=PlanKind.SCHEDULE, fields=fields))
    except InvalidInput as error:
        built = built.refused(error.field, str(error).removeprefix("spec."))
    except ApiProblem as error:
        if error.problem.status not in {400, 403, 404, 409, 422}:
            raise
        built = built.refused(error.problem.field or "", _told(error.problem))
    except ValueError as error:
        built = built.refused("pool", f"{error}; write it as in default/chat.")
    else:
        return visit.redirect(f"/plans/{made.id}")
    return await _index(visit, None, 200 if texts.get("action") == "draw" else 422, built=built)


def _unreadable(error: yaml.YAMLError) -> Problem:
    return Problem(type="invalid-input", title="Invalid YAML", status=422, detail=f"Schedule: no valid YAML: {complaint(error)}.")


def _told(problem: Problem) -> str:
    """Return the text of the problem, in which the field has the name on the form and not the API's name: `cron` for
    `fields.spec.cron`.
    """
    return formats.told(problem.detail, problem.remedy).removeprefix("fields.").removeprefix("spec.")


ROUTES = Routes(
    pages={"/schedules": index, f"{POOL}/schedules": index, ONE: show, f"{ONE}/plans": show},
    writes={"/schedules": create, f"{POOL}/schedules": create, f"{ONE}/plans": plan},
    exports=dict.fromkeys(("/schedules", f"{POOL}/schedules"), Export(name="schedules", filters=("pool",))),
)
