"""`/plans/{id}`: what a change would do, the button that does it, and the way back."""

from starlette.responses import Response

from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources import ApplyRequest, Plan, Problem
from fairlead_web.addresses import pool_path
from fairlead_web.contexts.governance import Change, PlanPage
from fairlead_web.rendering import plain
from fairlead_web.shells import Crumb
from fairlead_web.visits import Visit

REFUSALS = frozenset({400, 403, 409, 422})


async def show(visit: Visit) -> Response:
    return await _page(visit, await visit.api.plan(_id(visit)), None, "", "")


async def apply(visit: Visit) -> Response:
    """Applies the plan; safe to send twice. A refusal shows the plan again with what was typed and why nothing happened."""
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
        f"Plan: {plan.kind} {plan.pool}",
        "pools",
        crumbs=(Crumb(words="Pools", path="/pools"), Crumb(words=plan.pool, path=pool_path(plan.pool)), Crumb(words=f"Plan {plan.id}")),
        pool=plan.pool,
    )
    may = shell.may("operator")
    context = PlanPage(
        shell=shell,
        plan=plan,
        pool_name=key.name,
        changes=[
            Change(path=str(item.get("path", "")), before=plain(item.get("before")), after=plain(item.get("after"))) for item in plan.diff
        ],
        problem=problem,
        confirm=confirm,
        reason=reason,
        can_apply=may and plan.state == "open" and plan.owner is None and plan.expires_at > visit.now,
        can_undo=may and plan.state == "applied" and plan.undo_until is not None and plan.undo_until > visit.now,
    )
    return visit.page(context, status=problem.status if problem else 200)


def _id(visit: Visit) -> str:
    return str(visit.request.path_params["plan"])
