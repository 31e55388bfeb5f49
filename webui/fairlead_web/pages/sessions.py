"""`/sessions`: which instance holds each session's KV cache, and the instances that held one session over time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fairlead.instances import ACCEPTING, Role
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.instances import InstanceSummary
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.plan_kinds import OF_SESSIONS, PlanKind, PlanRequest
from fairlead_client.resources.problems import Problem
from fairlead_client.resources.sessions import BindingHistoryItem, KeepSessionRequest, KeptSession, SessionDetail, SessionSummary
from fairlead_web.drawing.holders import HolderBand, holder_band, holders_in_words
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.addresses import pool_path, session_path, with_query
from fairlead_web.text.time_ranges import TimeRange, covering_start


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsPage(Context):
    template: ClassVar[str] = "pages/sessions.html"
    shell: Shell
    listing: Listing[SessionSummary]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage(Context):
    template: ClassVar[str] = "pages/session.html"
    shell: Shell
    detail: SessionDetail
    homes: int
    """Number of times within the range that an instance held the session."""
    moved: str
    """Number of the session's moves within the range, as text."""
    band: HolderBand
    story: str
    holders: list[BindingHistoryItem]
    """The newest bindings of the session within the range."""
    migrations: list[Migration] | None
    reroutes: list[ReRoute] | None
    decisions: list[RoutingDecision] | None
    listed: dict[str, str]
    """For each list that shows only some of its rows: the list's name, and a text that says which rows it shows."""
    kept: KeptSession | None
    """The time until which every routing decision of the session is kept; None if only a sample of the decisions is
    kept.
    """
    targets: list[str]
    """Ids of instances to which the session can be moved."""
    problem: str | None


FILTERS = ("pool", "instance", "q")
FORMS = ("plans", "kept-decisions")
"""The forms of a session's page. Each is sent to its name below the session's address."""
HOLDERS = 50
"""Maximum number of a session's bindings that are listed; the newest are listed."""


async def index(visit: Visit) -> Response:
    listing = await visit.api.sessions(visit.filters(*FILTERS))
    shell = await visit.shell("Sessions", "sessions", crumbs=(Crumb(words="Sessions"),), pool=visit.param("pool"), live="migrations")
    return visit.page(SessionsPage(shell=shell, listing=listing))


async def show(visit: Visit) -> Response:
    return await _page(visit, session_of_address(visit.request), None)


async def plan(visit: Visit) -> Response:
    """Request a plan that moves the session or releases its binding, and redirect to the plan.

    A refusal is shown on the session's page.
    """
    form = await visit.form()
    kind, instance = str(form.get("kind", "")), str(form.get("instance", ""))
    if kind not in OF_SESSIONS:
        raise HTTPException(404)
    wanted = PlanKind(kind)
    home = instance if "instance" in wanted.facts.takes else None
    asked = PlanRequest(kind=wanted, session=_sent_to(visit), instance=home)
    try:
        made = await visit.api.create_plan(visit.pool_key(), asked)
    except ApiProblem as error:
        if error.problem.status in {400, 409, 422}:
            return await _page(visit, _sent_to(visit), error.problem)
        raise
    return visit.redirect(f"/plans/{made.id}")


async def keep(visit: Visit) -> Response:
    """Keep every routing decision of the session for some minutes or, if the form has `stop`, only a sample again."""
    form = await visit.form()
    key, session = visit.pool_key(), _sent_to(visit)
    try:
        if form.get("stop"):
            await visit.api.let_session_go(key, session)
        else:
            await visit.api.keep_session(key, KeepSessionRequest(session=session))
    except ApiProblem as error:
        if error.problem.status in {400, 404, 409, 422}:
            return await _page(visit, _sent_to(visit), error.problem)
        raise
    return visit.redirect(session_path(str(key), session))


def session_of_address(request: Request) -> str:
    """Return the session that the address names, without the name of a form (FORMS) at its end.

    Links write a session as a single segment of the path. In such an address, a slash that belongs to the session's
    name is escaped, and the word after it is not the name of a form. If a proxy has decoded the address, the two cases
    look the same; a last word that is the name of a form then counts as the form.
    """
    whole = str(request.path_params["session"])
    head, slash, form = whole.rpartition("/")
    escaped = bytes(request.scope.get("raw_path") or b"").lower().endswith(f"%2f{form}".encode())
    return head if slash and form in FORMS and not escaped else whole


def _sent_to(visit: Visit) -> str:
    """Return the session to whose form the visit was sent."""
    return str(visit.request.path_params["session"])


async def _page(visit: Visit, session: str, problem: Problem | None) -> Response:
    key = visit.pool_key()
    detail = await visit.api.session(key, session)
    if detail.session.session != session and problem is None:
        return visit.redirect(with_query(session_path(str(key), detail.session.session), visit.here.params))
    session = detail.session.session
    visit = visit.over(covering_start(min((item.bound_at for item in detail.history), default=detail.session.bound_at), visit.now))
    asked = visit.filters(ranged=True) | {"pool": str(key), "session": session}
    migrations, reroutes, decisions, pool, kept = await asyncio.gather(
        visit.attempt("migrations", visit.api.migrations(asked | {"limit": 50}), ["migrations", "held"]),
        visit.attempt("re-routes", visit.api.reroutes(asked | {"limit": 20}), ["reroutes"]),
        visit.attempt("decisions", visit.api.decisions(asked | {"limit": 20}), ["decisions"]),
        visit.attempt("instances", visit.api.pool(key), ["targets"]),
        visit.attempt("kept sessions", visit.api.kept_sessions(key), ["kept"]),
    )
    lists: list[tuple[str, Listing[Any] | None]] = [("migrations", migrations), ("reroutes", reroutes), ("decisions", decisions)]
    shell = await visit.shell(
        f"Session {session}",
        "pools",
        crumbs=crumbs_below(str(key), Crumb(words="Sessions", path=f"{pool_path(str(key))}/sessions"), Crumb(words=session)),
        pool=str(key),
        tab="sessions",
        ranged=True,
        live="migrations,reroutes,decisions",
        about={"session": session},
    )
    homes = homes_within(detail.history, visit.range)
    ever = detail.session.version if len(homes) == len(detail.history) else len(homes)
    return visit.page(
        SessionPage(
            shell=shell,
            detail=detail,
            homes=len(homes),
            moved=count_of(migrations),
            band=holder_band(homes, visit.now),
            story=holders_in_words(homes, ever, visit.now),
            holders=sorted(homes, key=lambda item: item.version, reverse=True)[:HOLDERS],
            migrations=migrations.items if migrations else None,
            reroutes=reroutes.items if reroutes else None,
            decisions=decisions.items if decisions else None,
            listed={name: newest_of(len(page.items), page.total, page.total_at_least) if page else "" for name, page in lists},
            kept=next((one for one in kept.sessions if one.session == session), None) if kept else None,
            targets=targets_of(detail, pool.instances if pool else ()),
            problem=formats.told(problem.detail, problem.remedy) if problem else None,
        ),
        status=problem.status if problem else 200,
    )


def homes_within(history: Sequence[BindingHistoryItem], chosen: TimeRange) -> list[BindingHistoryItem]:
    """Return the bindings that were in force at any time within the range."""
    return [item for item in history if item.bound_at <= chosen.end and (item.released_at is None or item.released_at > chosen.start)]


def count_of(page: Listing[Any] | None) -> str:
    """Return the total number of a list's items as text, as far as it is known."""
    if page is None:
        return formats.NONE
    return formats.count(page.total) if page.total is not None else f"at least {formats.count(page.total_at_least)}"


def newest_of(shown: int, total: int | None, at_least: int | None) -> str:
    """Describe which part of a list is shown, the newest `shown` items; empty if all of them are shown."""
    if total is not None:
        return f"The newest {shown} of {formats.count(total)} in the range." if total > shown else ""
    return f"The newest {shown} of at least {formats.count(at_least)} in the range." if at_least and at_least > shown else ""


def targets_of(detail: SessionDetail, instances: Sequence[InstanceSummary]) -> list[str]:
    """Return the ids of the instances to which the session may be moved: instances that accept requests and compute
    prompts, the least loaded first.
    """
    able = [one for one in instances if one.state in ACCEPTING and one.role is not Role.DECODE and one.id != detail.session.instance]
    return [one.id for one in sorted(able, key=lambda one: (one.pending_prefill_tokens, one.id))]


ROUTES = Routes(
    pages={
        "/sessions": index,
        f"{POOL}/sessions": index,
        # A refused plan is shown at its form's address; a reload shows the session.
        "/sessions/{namespace}/{name}/{session:path}": show,
    },
    writes={
        "/sessions/{namespace}/{name}/{session:path}/plans": plan,
        "/sessions/{namespace}/{name}/{session:path}/kept-decisions": keep,
    },
    exports=dict.fromkeys(("/sessions", f"{POOL}/sessions"), Export(name="sessions", filters=FILTERS)),
)
