"""Decides whether a page of the audit log offers to undo the change of an entry."""

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import Identity
from fairlead_client.resources.audit import AuditAction, AuditEntry, AuditResult
from fairlead_client.resources.plans import Plan, PlanState, needed_role
from fairlead_web.frame.visits import Visit


async def undoable(visit: Visit, entry: AuditEntry, identity: Identity | None) -> bool:
    """Return whether the entry records that a plan was applied, and this person may still undo that plan."""
    if identity is None or entry.action != AuditAction.PLAN_APPLIED or entry.result is not AuditResult.OK or entry.plan is None:
        return False
    plan = await visit.attempt("plan", _kept(visit, entry.plan))
    if plan is None or plan.undo_until is None:
        return False
    allowed = identity.reaches(needed_role(plan), plan.pool.partition("/")[0])
    return allowed and plan.state is PlanState.APPLIED and plan.undo_until > visit.now


async def _kept(visit: Visit, plan: str) -> Plan | None:
    """Return the plan; None if it is no longer stored. The audit log can name plans that were deleted."""
    try:
        return await visit.api.plan(plan)
    except ApiProblem as error:
        if error.problem.status == 404:
            return None
        raise
