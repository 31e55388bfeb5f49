"""`/plans/{id}`: the effect of a change, the button that applies it, and the one that undoes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plans import NEEDED_ROLE, ApplyRequest, Plan, PlanState
from fairlead_client.resources.pools import PoolRevision
from fairlead_client.resources.problems import Problem
from fairlead_web import formats
from fairlead_web.addresses import pool_path
from fairlead_web.differences import Change, changes_of
from fairlead_web.rendering import Context
from fairlead_web.routes import Routes
from fairlead_web.shells import Crumb, Shell
from fairlead_web.visits import Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage(Context):
    """The page of a plan.

    `confirm` and `reason` are the last values sent; `problem` says why applying was refused. `meanwhile` lists the
    revisions made since the plan, each with its changes. `wanted` is the number of replicas to plan again, None if the
    pool already has it.
    """

    template: ClassVar[str] = "pages/plan.html"
    shell: Shell
    plan: Plan
    pool_name: str
    changes: list[Change]
    problem: Problem | None
    confirm: str
    reason: str
    can_apply: bool
    can_undo: bool
    meanwhile: list[tuple[PoolRevision, list[Change]]]
    wanted: int | None
    needed: AccessRole


REFUSALS = frozenset({400, 403, 409, 422})


async def show(visit: Visit) -> Response:
    return await _page(visit, await visit.api.plan(_id(visit)), None, "", "")


async def apply(visit: Visit) -> Response:
    """Applies the plan; safe to send twice.

    A refusal shows the plan again with the text that was typed and the reason.
    """
    form = await visit.form()
    confirm, reason = str(form.get("confirm", "")).strip(), str(form.get("reason", "")).strip()
    plan_id = _id(visit)
    try:
        await visit.api.apply_plan(plan_id, ApplyRequest(confirm=confirm or None, reason=reason or None))
    except ApiProblem as error:
        if error.problem.status not in REFUSALS:
            raise
        return await _page(visit, await visit.api.plan(plan_id), error.problem, confirm, reason)
    return visit.redirect(f"/plans/{plan_id}")


async def undo(visit: Visit) -> Response:
    """Makes the inverse plan and leads to it."""
    plan_id = _id(visit)
    try:
        inverse = await visit.api.undo_plan(plan_id)
    except ApiProblem as error:
        if error.problem.status not in REFUSALS:
            raise
        return await _page(visit, await visit.api.plan(plan_id), error.problem, "", "")
    return visit.redirect(f"/plans/{inverse.id}")


async def _page(visit: Visit, plan: Plan, problem: Problem | None, confirm: str, reason: str) -> Response:
    key = PoolKey.parse(plan.pool)
    shell = await visit.shell(
        f"Plan: {formats.words(plan.kind)} {plan.pool}",
        "pools",
        crumbs=(Crumb(words="Pools", path="/pools"), Crumb(words=plan.pool, path=pool_path(plan.pool)), Crumb(words=f"Plan {plan.id}")),
        pool=plan.pool,
    )
    needed = NEEDED_ROLE[plan.kind]
    may = shell.may(needed)
    meanwhile = await _meanwhile(visit, key, plan)
    context = PlanPage(
        shell=shell,
        plan=plan,
        pool_name=key.name,
        changes=changes_of(plan.diff),
        problem=problem,
        confirm=confirm,
        reason=reason,
        can_apply=may and plan.state is PlanState.OPEN and not meanwhile and plan.owner is None and plan.expires_at > visit.now,
        can_undo=may and plan.state is PlanState.APPLIED and plan.undo_until is not None and plan.undo_until > visit.now,
        meanwhile=meanwhile,
        wanted=_wanted(plan, meanwhile),
        needed=needed,
    )
    return visit.page(context, status=problem.status if problem else 200)


async def _meanwhile(visit: Visit, pool: PoolKey, plan: Plan) -> list[tuple[PoolRevision, list[Change]]]:
    """Revisions of the pool made after a plan that was not applied, newest first: the other person's changes."""
    if plan.state not in (PlanState.OPEN, PlanState.SUPERSEDED):
        return []
    found = await visit.attempt("revisions", visit.api.revisions(pool, limit=10))
    return [(revision, changes_of(revision.diff)) for revision in found.items if revision.at > plan.created_at] if found else []


def _wanted(plan: Plan, meanwhile: Sequence[tuple[PoolRevision, object]]) -> int | None:
    """The number of replicas that the plan wanted; None if the pool has it already."""
    after = next((item.get("after") for item in plan.diff if item.get("path") == "/spec/replicas"), None)
    now = meanwhile[0][0].spec.get("replicas") if meanwhile else None
    return after if isinstance(after, int) and after != now else None


def _id(visit: Visit) -> str:
    return str(visit.request.path_params["plan"])


ROUTES = Routes(
    # A refusal is shown at the address of the form; a reload and the live parts ask for that one.
    pages=dict.fromkeys(("/plans/{plan}", "/plans/{plan}/apply", "/plans/{plan}/undo"), show),
    writes={"/plans/{plan}/apply": apply, "/plans/{plan}/undo": undo},
)
