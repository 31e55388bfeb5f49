"""`/plans/{id}`: the effect of a change, with the buttons that apply and undo it."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from starlette.responses import Response

from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.comments import Comment
from fairlead_client.resources.expectations import ExpectationState, ExpectedFigure, PlanExpectation, Quantity
from fairlead_client.resources.plan_kinds import OF_INSTANCES, PlanKind
from fairlead_client.resources.plans import ApplyRequest, HandOverResult, Plan, PlanEffect, PlanState, needed_role
from fairlead_client.resources.pools import PoolSummary
from fairlead_client.resources.problems import PlanConflict, Problem
from fairlead_web.drawing.differences import Change, changes_of
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.addresses import pool_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Meanwhile:
    """A change that somebody made after the plan was made: a revision of the pool's spec, or a change that the operator
    has not reported yet.
    """

    revision: int | None
    by: str
    at: datetime | None
    reason: str | None
    changes: list[Change]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRow:
    """A quantity of a plan's expected effect as text: without the change and with it. `unknown` is the reason why the
    expectation is not reliable; empty if it is reliable.
    """

    words: str
    before: str
    after: str
    unknown: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A figure of a plan's effect; `level` is warn or bad if the figure is a loss."""

    words: str
    value: str
    note: str = ""
    level: str = ""


def tiles_of(effect: PlanEffect) -> list[Tile]:
    """Return the figures of an effect that are not zero, for any kind of plan."""
    replaced = effect.instances_added == effect.instances_removed > 0
    figures = [
        ("Instances replaced", effect.instances_removed if replaced else 0, formats.count, "", "warn"),
        ("Instances added", 0 if replaced else effect.instances_added, formats.count, "", ""),
        ("Instances removed", 0 if replaced else effect.instances_removed, formats.count, "", "warn"),
        ("Keys that change owner", effect.key_share_moved, formats.share, "", ""),
        ("Sessions lost", effect.sessions_lost, formats.count, "", "bad"),
        ("Sessions moved", effect.sessions_moved, formats.count, "with their next request", "warn"),
        ("Cached tokens lost", effect.cache_tokens_lost, formats.compact, "", ""),
        ("Requests in flight there", effect.requests_in_flight, formats.count, "served to their end", ""),
    ]
    return [Tile(words=words, value=say(value), note=note, level=level) for words, value, say, note, level in figures if value]


TITLES = {
    PlanKind.SLO: "SLO",
    PlanKind.REVERT: "Roll back",
    PlanKind.ROLLBACK: "Roll back the template of",
    PlanKind.SPEC: "Edit",
    PlanKind.PACE: "Pace of scaling",
    PlanKind.CLASSES: "Priority classes",
    PlanKind.FAIRNESS: "Tenants",
}
"""Titles of the kinds of plans whose names are not good titles."""
TABS = {
    PlanKind.SLO: "slo",
    PlanKind.SCHEDULE: "schedules",
    PlanKind.SCALING: "scaling",
    PlanKind.BOUNDS: "scaling",
    PlanKind.PACE: "scaling",
    PlanKind.RING: "ring",
    PlanKind.MOVE: "sessions",
    PlanKind.UNPIN: "sessions",
    **dict.fromkeys((PlanKind.SCALE, PlanKind.ENGINES, *OF_INSTANCES), "instances"),
}
"""The tab of the pool's pages that shows the setting changed by a kind of plan. For kinds that are missing here, the
tab is `spec`.
"""


AT_WORK = frozenset({ExpectationState.QUEUED, ExpectationState.RUNNING})
QUANTITIES = {
    Quantity.ATTAINMENT: "In time",
    Quantity.REFUSED_SHARE: "Refused",
    Quantity.HIT_RATE: "Hit rate",
    Quantity.SESSIONS_MOVED: "Sessions that move, for any reason",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage(Context):
    """The page of a plan.

    `confirm` and `reason` are the values last submitted; `problem` is why the plan was not applied. `meanwhile` lists
    the changes that others have made since the plan was made. `can_repeat` is True if the plan was not applied, so that
    the same change can be planned again. `expectation` is the effect according to a simulation, None if it could not be
    read; `at_work` is True while that simulation is in progress.
    """

    template: ClassVar[str] = "pages/plan.html"
    shell: Shell
    plan: Plan
    pool_name: str
    title: str
    tiles: list[Tile]
    followed: bool
    """Whether the plan was applied and starts or stops instances."""
    carried_out: PoolSummary | None
    """The pool as the operator reported it after it received the applied plan; None if the plan starts and stops no
    instances, or the operator has not reported the pool since. An earlier report has the numbers of the former spec.
    """
    changes: list[Change]
    problem: Problem | None
    confirm: str
    reason: str
    can_apply: bool
    can_undo: bool
    meanwhile: list[Meanwhile]
    can_repeat: bool
    needed: AccessRole
    expectation: PlanExpectation | None
    hand_over: HandOverResult | None
    """The result of handing over the caches of the instances that leave: how much of them was kept; None if this could
    not be read.
    """
    comments: list[Comment]
    at_work: bool
    expected: list[ExpectedRow]
    headline: ExpectedRow | None
    """The share of requests within the objectives, according to the simulation; None if it is not reliable."""
    estimates: bool
    """Whether the plan's own estimates are shown. They are hidden if a simulation has ended or is expected, because its
    results might contradict them.
    """


REFUSALS = frozenset({400, 403, 409, 422})


async def show(visit: Visit) -> Response:
    return await _page(visit, await visit.api.plan(_id(visit)), None, "", "")


async def apply(visit: Visit) -> Response:
    """Apply the plan. The same form can safely be sent twice.

    If the API refuses, the plan is shown again with the typed text and the reason.
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
    """Make a plan that undoes this plan, and redirect to the new plan."""
    plan_id = _id(visit)
    try:
        inverse = await visit.api.undo_plan(plan_id)
    except ApiProblem as error:
        if error.problem.status not in REFUSALS:
            raise
        return await _page(visit, await visit.api.plan(plan_id), error.problem, "", "")
    return visit.redirect(f"/plans/{inverse.id}")


async def again(visit: Visit) -> Response:
    """Plan the same change for the object in its present state, and redirect to the new plan."""
    plan_id = _id(visit)
    try:
        anew = await visit.api.plan_again(plan_id)
    except ApiProblem as error:
        if error.problem.status not in REFUSALS:
            raise
        return await _page(visit, await visit.api.plan(plan_id), error.problem, "", "")
    return visit.redirect(f"/plans/{anew.id}")


async def _page(visit: Visit, plan: Plan, problem: Problem | None, confirm: str, reason: str) -> Response:
    key = PoolKey.parse(plan.pool)
    followed = plan.state is PlanState.APPLIED and bool(plan.effect.instances_added or plan.effect.instances_removed)
    shell = await visit.shell(
        f"Plan: {TITLES.get(plan.kind, formats.words(plan.kind))} {plan.pool}",
        "pools",
        crumbs=(Crumb(words="Pools", path="/pools"), Crumb(words=plan.pool, path=pool_path(plan.pool)), Crumb(words=f"Plan {plan.id}")),
        pool=plan.pool,
        tab=TABS.get(plan.kind, "spec"),
        live="pools" if followed else "",
    )
    needed = needed_role(plan)
    may = shell.may(needed)
    told = problem.conflict if problem is not None else None
    meanwhile = await _meanwhile(visit, key, plan) if told is None else meanwhile_of(told)
    expectation = await visit.attempt("what is expected of the plan", visit.api.plan_expectation(plan.id))
    hand_over = await visit.attempt("what sessions kept", visit.api.plan_hand_over(plan.id))
    comments = await visit.attempt("comments", visit.api.comments({"plan": plan.id}))
    context = PlanPage(
        shell=shell,
        plan=plan,
        title=TITLES.get(plan.kind, formats.words(plan.kind).capitalize()),
        tiles=tiles_of(plan.effect),
        followed=followed,
        carried_out=await _carried_out(visit, key, plan) if followed else None,
        pool_name=key.name,
        changes=changes_of(plan.diff),
        problem=problem,
        confirm=confirm,
        reason=reason,
        can_apply=may and plan.state is PlanState.OPEN and not meanwhile and plan.owner is None and plan.expires_at > visit.now,
        can_undo=may and plan.state is PlanState.APPLIED and plan.undo_until is not None and plan.undo_until > visit.now,
        meanwhile=meanwhile,
        can_repeat=may and plan.state not in {PlanState.APPLIED, PlanState.UNDONE},
        needed=needed,
        expectation=expectation,
        hand_over=hand_over,
        comments=comments.comments if comments else [],
        at_work=expectation is not None and expectation.state in AT_WORK,
        expected=[_row(one) for one in expectation.figures] if expectation else [],
        headline=None if expectation is None else _headline(expectation),
        estimates=expectation is None or expectation.state is ExpectationState.UNKNOWN,
    )
    return visit.page(context, status=problem.status if problem else 200)


async def _carried_out(visit: Visit, key: PoolKey, plan: Plan) -> PoolSummary | None:
    """Return the pool after the plan was applied; None if the operator has not reported it since."""
    found = await visit.attempt("the pool", visit.api.pool(key, instances=False))
    since = None if found is None else found.observed_at
    return found.pool if found and since and plan.applied_at and since >= plan.applied_at else None


def meanwhile_of(conflict: PlanConflict) -> list[Meanwhile]:
    """Return the changes that others have made since the plan, newest first. The API's description of the conflict
    contains them.
    """
    found = [
        Meanwhile(revision=None, by=one.by or "somebody", at=one.at, reason=one.reason, changes=changes_of(one.diff))
        for one in conflict.meanwhile
    ]
    return found[::-1]


def _headline(expectation: PlanExpectation) -> ExpectedRow | None:
    known = (one for one in expectation.figures if one.quantity is Quantity.ATTAINMENT and one.unknown is None)
    return next(map(_row, known), None)


def _row(one: ExpectedFigure) -> ExpectedRow:
    shown = formats.count if one.quantity is Quantity.SESSIONS_MOVED else formats.share
    return ExpectedRow(words=QUANTITIES[one.quantity], before=shown(one.before), after=shown(one.after), unknown=one.unknown)


async def _meanwhile(visit: Visit, pool: PoolKey, plan: Plan) -> list[Meanwhile]:
    """Return the revisions of the pool's spec that were made after a plan that was not applied, newest first. They are
    changes by other people.
    """
    if plan.state not in (PlanState.OPEN, PlanState.SUPERSEDED) or not plan.target.startswith("InferencePool ") or plan.kind.facts.creates:
        return []
    found = await visit.attempt("revisions", visit.api.revisions(pool, limit=10))
    return [
        Meanwhile(revision=one.number, by=one.actor, at=one.at, reason=one.reason, changes=changes_of(one.diff))
        for one in (found.items if found else ())
        if one.at > plan.created_at
    ]


def _id(visit: Visit) -> str:
    return str(visit.request.path_params["plan"])


ROUTES = Routes(
    # A refusal is shown at the address of the form; a reload and the live parts ask for that one.
    pages=dict.fromkeys(("/plans/{plan}", "/plans/{plan}/again", "/plans/{plan}/apply", "/plans/{plan}/undo"), show),
    writes={"/plans/{plan}/again": again, "/plans/{plan}/apply": apply, "/plans/{plan}/undo": undo},
)
