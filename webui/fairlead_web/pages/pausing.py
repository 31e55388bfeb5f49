"""`/pause-migrations`: pauses or resumes the session migrations of all pools, with one plan per pool and one click to
apply all plans.

If there are more pools than fit on a page, they are planned in parts, ordered by name.
"""

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead.tables import MIGRATIONS_MODES, MIGRATIONS_PAUSED, PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanState
from fairlead_client.resources.pools import PoolSummary
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats

PATH = "/pause-migrations"
MOST = 200
"""Maximum number of pools that one page shows and makes plans for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PausingPage(Context):
    """The page with the pools and, once they are planned, the plan of each pool. `refused` says, by pool, why a plan
    could not be made or applied.
    """

    template: ClassVar[str] = "pages/pausing.html"
    shell: Shell
    pools: list[PoolSummary]
    """The pools that the page shows: first the pools with a plan, then the pools that are not in the desired
    state yet.
    """
    total: int
    """The number of all pools."""
    wanted: str
    changing: int
    """The number of all pools that are not in the desired state (paused or resumed)."""
    left: int
    """The number of pools that are not in the desired state and have no plan on this page."""
    after: str
    """The name of the last pool for which a plan was made. The next part begins after it."""
    at_once: int
    """Number of pools in the next part."""
    plans: dict[str, Plan]
    refused: dict[str, str]
    can_apply: bool
    needed: AccessRole


async def show(visit: Visit) -> Response:
    return await _page(visit, _mode(visit.param("to")), {})


async def plan(visit: Visit) -> Response:
    """Request plans for those pools of the next part that are not in the desired state, and show the plans on
    one page.
    """
    form = await visit.form()
    wanted = _mode(str(form.get("to", "")))
    pools = _next([one for one in await _pools(visit) if one.migrations != wanted], str(form.get("after", "")))
    made = await asyncio.gather(*(_planned(visit, PoolKey(namespace=one.namespace, name=one.name), wanted) for one in pools))
    refused = {str(key): told for key, told in made if not isinstance(told, Plan)}
    ids = [told.id for _, told in made if isinstance(told, Plan)]
    if refused or not ids:
        return await _page(visit, wanted, refused, ids, 409 if refused else 200)
    return visit.redirect(f"{PATH}?to={wanted}&plans={','.join(ids)}")


async def apply(visit: Visit) -> Response:
    """Apply the page's open plans, each once. If a plan is refused, the reason is shown next to its pool."""
    form = await visit.form()
    wanted, reason = _mode(str(form.get("to", ""))), str(form.get("reason", "")).strip()
    ids = _ids(str(form.get("plans", "")))
    found = [one for one in await asyncio.gather(*(_known(visit, one) for one in ids)) if one is not None]
    tried = await asyncio.gather(*(_applied(visit, one, reason) for one in found if one.state is PlanState.OPEN and one.owner is None))
    refused = {pool: told for pool, told in tried if told is not None}
    if refused:
        return await _page(visit, wanted, refused, ids, 409)
    return visit.redirect(f"{PATH}?to={wanted}&plans={','.join(ids)}")


async def _page(visit: Visit, wanted: str, refused: dict[str, str], ids: list[str] | None = None, status: int = 200) -> Response:
    pools = await _pools(visit)
    asked = _ids(visit.param("plans") or "") if ids is None else ids
    found = await asyncio.gather(*(_known(visit, one) for one in asked))
    plans = {one.pool: one for one in found if one is not None and one.kind is PlanKind.MIGRATIONS}
    shell = await visit.shell("Pause all migrations", "overview", crumbs=(Crumb(words="Pause all migrations"),))
    needed = PlanKind.MIGRATIONS.facts.role
    waiting = [one for one in plans.values() if one.state is PlanState.OPEN and one.owner is None and one.expires_at > visit.now]
    changing = [one for one in pools if one.migrations != wanted]
    left = [one for one in changing if _name(one) not in plans]
    after = max([*plans, *refused], key=_order, default="")
    ranked = sorted(pools, key=lambda one: (_name(one) not in plans and _name(one) not in refused, one.migrations == wanted))
    return visit.page(
        PausingPage(
            shell=shell,
            pools=ranked[:MOST],
            total=len(pools),
            wanted=wanted,
            changing=len(changing),
            left=len(left),
            after=after,
            at_once=len(_next(left, after)),
            plans=plans,
            refused=refused,
            can_apply=shell.may(needed) and bool(waiting),
            needed=needed,
        ),
        status=status,
    )


async def _pools(visit: Visit) -> list[PoolSummary]:
    return (await visit.first_pools(None)).items


def _next(pools: list[PoolSummary], after: str) -> list[PoolSummary]:
    """Return the next part of the pools: the pools that follow `after` in the order of names. If no pool follows,
    return the first part again.
    """
    return [one for one in pools if _order(_name(one)) > _order(after)][:MOST] or pools[:MOST]


def _name(pool: PoolSummary) -> str:
    return f"{pool.namespace}/{pool.name}"


def _order(name: str) -> tuple[str, ...]:
    """Return the sort key by which the API lists pools: namespace, then name."""
    return tuple(name.split("/"))


async def _planned(visit: Visit, pool: PoolKey, wanted: str) -> tuple[PoolKey, Plan | str]:
    try:
        return pool, await visit.api.create_plan(pool, PlanRequest(kind=PlanKind.MIGRATIONS, fields={"migrations": wanted}))
    except ApiProblem as error:
        return pool, formats.told(error.problem.detail, error.problem.remedy)


async def _applied(visit: Visit, one: Plan, reason: str) -> tuple[str, str | None]:
    try:
        await visit.api.apply_plan(one.id, ApplyRequest(confirm=one.pool.partition("/")[2], reason=reason or None))
    except ApiProblem as error:
        return one.pool, formats.told(error.problem.detail, error.problem.remedy)
    return one.pool, None


async def _known(visit: Visit, plan_id: str) -> Plan | None:
    try:
        return await visit.api.plan(plan_id)
    except ApiProblem as error:
        if error.problem.status != 404:
            raise
        return None


def _mode(text: str | None) -> str:
    if text and text not in MIGRATIONS_MODES:
        raise HTTPException(404)
    return text or MIGRATIONS_PAUSED


def _ids(text: str) -> list[str]:
    return [one for one in dict.fromkeys(text.split(",")) if one][:MOST]


ROUTES = Routes(
    pages=dict.fromkeys((PATH, f"{PATH}/plans", f"{PATH}/apply"), show),
    writes={f"{PATH}/plans": plan, f"{PATH}/apply": apply},
)
