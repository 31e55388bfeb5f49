"""`/pools/{namespace}/{name}/forecast`: the forecast of a pool's demand in the coming week, and the schedules that are
proposed for it.
"""

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead.durations import parse_duration
from fairlead_client.problems import ApiProblem
from fairlead_client.public.calling import Query
from fairlead_client.resources.forecasts import PoolForecast, ScheduleTrial, TrialOf
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PROPOSER, Plan, PlanState
from fairlead_web.drawing.forecasts import HEIGHT, WIDTH, ForecastDrawing, drawn
from fairlead_web.forms.schedule_forms import sets_in_words
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.addresses import pool_path

TRIALS = {
    TrialOf.REACTIVE: "scaled by SLO alone",
    TrialOf.PRESENT: "present schedules",
    TrialOf.PROPOSED: "proposed, from what was known before that week",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedLine:
    """A proposed schedule, described in words."""

    name: str
    cron: str
    zone: str
    duration: str
    sets: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastPage(Context):
    """The page of a forecast: the forecast, its pictures, and the plan that was proposed from it and waits for a
    person, if there is one.
    """

    template: ClassVar[str] = "pages/forecast.html"
    shell: Shell
    found: PoolForecast
    drawing: ForecastDrawing | None
    width: int
    height: int
    lines: tuple[ProposedLine, ...]
    trials: tuple[tuple[str, ScheduleTrial], ...]
    waiting: Plan | None
    refusal: str | None


async def show(visit: Visit) -> Response:
    return await _show(visit, None)


async def _show(visit: Visit, refused: ApiProblem | None) -> Response:
    key = visit.pool_key()
    query: Query = {"created_by": PROPOSER, "pool": str(key), "kind": PlanKind.SCHEDULE.value, "limit": 5}
    found, plans = await asyncio.gather(visit.api.forecast(key), visit.attempt("proposals", visit.api.plans(query)))
    waiting = [one for one in plans.items if one.proposal and one.state is PlanState.OPEN] if plans else []
    crumbs = crumbs_below(str(key), Crumb(words="Schedules", path=f"{pool_path(str(key))}/schedules"), Crumb(words="Forecast"))
    page = ForecastPage(
        shell=await visit.shell(f"Forecast of {key}", "pools", crumbs=crumbs, pool=str(key), tab="schedules", live="pools"),
        found=found,
        drawing=drawn(found),
        width=WIDTH,
        height=HEIGHT,
        lines=tuple(
            ProposedLine(
                name=str(one.get("name", "")),
                cron=str(one.get("cron", "")),
                zone=str(one.get("timeZone", "")),
                duration=formats.span(parse_duration(one.get("duration", "0s"), "duration")),
                sets=sets_in_words(one),
            )
            for one in found.schedules
        ),
        trials=tuple((TRIALS[one.schedules], one) for one in found.trials),
        waiting=waiting[0] if waiting else None,
        refusal=None if refused is None else formats.told(refused.problem.detail, refused.problem.remedy),
    )
    return visit.page(page, status=refused.problem.status if refused else 200)


async def plan(visit: Visit) -> Response:
    """Request a plan of the schedules that are proposed now, and redirect to the plan."""
    found = await visit.api.forecast(visit.pool_key())
    if found.request is None:
        raise HTTPException(409, f"{found.unknown or 'the pool has these schedules already'}; nothing is to be planned")
    try:
        made = await visit.api.create_plan(visit.pool_key(), found.request)
    except ApiProblem as error:
        if error.problem.status in {400, 403, 409, 422}:
            return await _show(visit, error)
        raise
    return visit.redirect(f"/plans/{made.id}")


ROUTES = Routes(pages={f"{POOL}/forecast": show}, writes={f"{POOL}/forecast": plan})
