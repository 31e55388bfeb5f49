"""`…/slo`: how well one pool's objectives were met, by version and priority class; the error budget; and how many
requests would have met other targets, with a button that plans those targets.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.slo import BurnWindow, SloAttainment, SloBurn, SloTask, SloTaskBurn, SloTasks, SloVersion, SloWhatIf
from fairlead_web.drawing.range_figures import ShownFigures, of_objectives, shown
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats

DAY = "now-24h"
"""The start of the page's default range."""
TARGETS = ("ttft", "tpot", "percentile")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """A version of the pool's objectives, and its differences from the previous version, as text."""

    version: SloVersion
    changes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSloPage(Context):
    """The page of a pool's objectives. `targets` are the other targets as typed or, if none were typed, the targets of
    the spec; `asked` is True if targets were typed. Each row of `windows` has a cell for all requests and then one for
    each class in `classes`; `task_windows` are the windows of the error budgets of tasks.
    """

    template: ClassVar[str] = "pages/pool_slo.html"
    shell: Shell
    shown: ShownFigures
    attainment: SloAttainment
    tasks: SloTasks | None
    task_burn: SloTaskBurn | None
    burn: SloBurn
    burning: list[str]
    """The alerts that are on, in words."""
    task_windows: list[str]
    classes: list[str]
    windows: list[tuple[str, list[BurnWindow | None]]]
    versions: list[VersionRow]
    targets: dict[str, str]
    asked: bool
    other: SloWhatIf | None
    problem: str | None
    needed: str


async def show(visit: Visit) -> Response:
    key = visit.pool_key()
    name = str(key)
    detail = await visit.api.pool(key, instances=False)
    visit = visit.over(DAY, detail.pool.created_at)
    start, end = visit.range.counted["from"], visit.range.counted["to"]
    found, attainment, tasks, task_burn, burn, page = await asyncio.gather(
        visit.figures(key),
        visit.api.slo_attainment(key, start=start, end=end),
        visit.attempt("targets of tasks", visit.api.slo_tasks(key, start=start, end=end)),
        visit.attempt("error budgets of tasks", visit.api.slo_task_burn(key)),
        visit.api.slo_burn(key),
        visit.attempt("versions", visit.api.slo_versions(key, limit=50)),
    )
    versions = sorted(page.items, key=lambda one: -one.version) if page else []
    typed = {target: visit.param(target) or "" for target in TARGETS}
    asked = any(typed.values())
    declared = detail.spec.get("slo") or {}
    other, problem = await _other(visit, start, end, typed) if asked else (None, None)
    shell = await visit.shell(
        f"Objectives of {name}", "pools", crumbs=crumbs_below(name, Crumb(words="SLO")), pool=name, tab="slo", ranged=True
    )
    age_seconds = (visit.now - detail.pool.created_at).total_seconds()
    classes = sorted({one.priority_class for one in burn.windows if one.priority_class is not None})
    return visit.page(
        PoolSloPage(
            shell=shell,
            shown=shown(found, of_objectives(attainment)),
            attainment=attainment,
            tasks=tasks,
            task_burn=task_burn,
            task_windows=list(dict.fromkeys(one.window for one in task_burn.windows)) if task_burn else [],
            burn=burn,
            classes=classes,
            windows=windows(burn, classes, age_seconds),
            burning=burning(burn, age_seconds),
            versions=[
                VersionRow(version=one, changes=changes(before, one)) for one, before in zip(versions, [*versions[1:], None], strict=False)
            ],
            targets={target: typed[target] or str(declared.get(target, "")) for target in TARGETS},
            asked=asked,
            other=other,
            problem=problem,
            needed=PlanKind.SLO.facts.role.value,
        ),
        status=422 if problem else 200,
    )


async def _other(visit: Visit, start: str, end: str, typed: dict[str, str]) -> tuple[SloWhatIf | None, str | None]:
    """Return the attainment under other targets and no reason, or None and the reason why it is unknown."""
    try:
        percentile = float(typed["percentile"]) if typed["percentile"] else None
    except ValueError:
        return None, f"percentile: {typed['percentile']!r} is not a number; write one such as 95."
    try:
        return await visit.api.slo_what_if(
            visit.pool_key(), ttft=typed["ttft"] or None, tpot=typed["tpot"] or None, percentile=percentile, start=start, end=end
        ), None
    except ApiProblem as error:
        if error.problem.status != 422:
            raise
        return None, formats.told(error.problem.detail, error.problem.remedy)


def windows(burn: SloBurn, classes: Sequence[str], age_seconds: float) -> list[tuple[str, list[BurnWindow | None]]]:
    """Return a row for each window of time, with cells for all requests and then for each class. After the first window
    that covers the pool's whole age, windows are left out, because they would have the same numbers.
    """
    found = {(one.window, one.priority_class): one for one in burn.windows}
    covering = _covering(burn, age_seconds)
    names = dict.fromkeys(one.window for one in burn.windows if one.seconds <= covering)
    return [(name, [found.get((name, each)) for each in (None, *classes)]) for name in names]


def _covering(burn: SloBurn, age_seconds: float) -> float:
    """Return the seconds of the first window that covers the pool's whole age; infinity if none does."""
    return min((one.seconds for one in burn.windows if one.seconds >= age_seconds), default=inf)


def burning(burn: SloBurn, age_seconds: float) -> list[str]:
    """Describe the alerts that are on. If an alert's window is longer than the last listed window, the text names the
    last listed window instead, because both cover the pool's whole age.
    """
    covering, lengths = _covering(burn, age_seconds), {one.window: one.seconds for one in burn.windows}
    last = next((name for name, seconds in lengths.items() if seconds == covering), None)
    return [
        f"burns {one.name}: above {formats.percentile(one.threshold)} over "
        f"{last if last is not None and lengths.get(one.long, 0.0) > covering else one.long}"
        for one in burn.alerts
        if one.burning
    ]


def changes(before: SloVersion | None, after: SloVersion) -> str:
    """Return words for the changes of the objectives from one version to the next; empty for the first version."""
    if before is None:
        return ""
    told = []
    for words, old, new in (
        ("TTFT", formats.seconds(before.ttft_seconds), formats.seconds(after.ttft_seconds)),
        ("TPOT", formats.seconds(before.tpot_seconds), formats.seconds(after.tpot_seconds)),
        ("goal", f"{formats.percentile(before.percentile)} %", f"{formats.percentile(after.percentile)} %"),
        ("classes", _classes(before), _classes(after)),
        ("targets of tasks", _tasks(before), _tasks(after)),
    ):
        if old != new:
            told.append(f"{words} {old} → {new}")
    return ", ".join(told)


def _classes(version: SloVersion) -> str:
    return ", ".join(f"{one.name} ({one.priority}, {formats.share(one.share)})" for one in version.classes) or "none"


def _tasks(version: SloVersion) -> str:
    return ", ".join(f"{one.name} ({_target(one)})" for one in version.task) or "none"


def _target(one: SloTask) -> str:
    times = (("turns", one.turn_time_seconds), ("whole task", one.wall_time_seconds))
    within = " and ".join(f"{name} within {formats.span(value)}" for name, value in times if value is not None)
    return f"{formats.percentile(one.percentile)} %: {within}"


ROUTES = Routes(
    pages={f"{POOL}/slo": show},
    exports={
        f"{POOL}/slo": Export(name="slo", of_pool=True),
        f"{POOL}/slo/tasks": Export(name="slo/tasks", of_pool=True, ranged=True),
        f"{POOL}/slo/tasks/burn": Export(name="slo/tasks/burn", of_pool=True),
        f"{POOL}/slo/attainment": Export(name="slo/attainment", of_pool=True, ranged=True),
    },
)
