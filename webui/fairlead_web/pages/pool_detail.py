"""`/pools/{namespace}/{name}`: one pool with its spec and status, and the forms that change the pool by plans."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from starlette.responses import Response

from fairlead.errors import FairleadError, InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.reports.engines import Quantity
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.decisions import ReasonCount
from fairlead_client.resources.moves import Migration
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.pools import PoolDetail, PoolEventItem
from fairlead_client.resources.problems import Problem
from fairlead_client.resources.rollouts import Rollout, TemplateRevision
from fairlead_web.drawing import findings
from fairlead_web.drawing.differences import Change, changes_of
from fairlead_web.drawing.learnt_figures import Learnt, learnt_of
from fairlead_web.drawing.range_figures import ShownFigures, shown
from fairlead_web.forms.change_forms import ChangeForm, asked, change_forms
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.yaml_text import yaml_text

MOST_REASONS = 6
"""Maximum number of reasons for decisions that are shown individually."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRow:
    """The numbers of a role's instances in each state, and the desired number (`wanted`)."""

    name: str
    wanted: int
    serving: int
    starting: int
    cordoned: int
    draining: int
    lost: int
    asleep: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDocument:
    """A parameter of a policy whose value is a whole document, such as an EndpointPickerConfig, as YAML."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPage(Context):
    template: ClassVar[str] = "pages/pool.html"
    shell: Shell
    detail: PoolDetail
    shown: ShownFigures | None
    """The pool's figures over the range; None if they could not be read."""
    roles: list[RoleRow]
    ratio: str | None
    states: list[tuple[str, int]]
    routing: list[tuple[str, str]]
    documents: list[PolicyDocument]
    notes: tuple[str, ...]
    """One text for each parameter of the policy that is accepted but has no effect in this pool."""
    mix: list[tuple[str, float]] | None
    mixed: int
    learnt: Learnt
    migrations: list[Migration] | None
    events: list[PoolEventItem] | None
    forms: list[ChangeForm]
    rollout: Rollout | None
    revisions: list[tuple[TemplateRevision, list[Change]]]
    refusal: str | None
    """The reason why a rollback could not be planned."""


async def show(visit: Visit) -> Response:
    return await _page(visit, {}, None)


async def plan(visit: Visit) -> Response:
    """Request a plan from the API and redirect to it. If the API refuses, the problem is shown in the
    submitted form.
    """
    form = {name: value for name, value in (await visit.form()).items() if isinstance(value, str)}
    try:
        made = await visit.api.create_plan(visit.pool_key(), asked(form))
    except InvalidInput as error:
        told = Problem(type="invalid-input", title="Invalid value", status=422, detail=str(error), field=error.field)
        return await _page(visit, form, told)
    except ApiProblem as error:
        if error.problem.status in {400, 409, 422}:
            return await _page(visit, form, error.problem)
        raise
    return visit.redirect(f"/plans/{made.id}")


async def _page(visit: Visit, typed: dict[str, str], problem: Problem | None) -> Response:
    key = visit.pool_key()
    name = str(key)
    detail, advice, migrations, events, reasons, rollout = await asyncio.gather(
        visit.api.pool(key, instances=False),
        visit.attempt("advice", visit.api.advice(key)),
        visit.attempt("migrations", visit.api.migrations({"pool": name, "limit": 8}), ["migrations"]),
        visit.attempt("events", visit.api.events(key, limit=10), ["events"]),
        visit.attempt("decisions", visit.api.decision_reasons(key), ["mix"]),
        visit.attempt("rollout", visit.api.rollout(key), ["rollout"]),
    )
    visit = visit.since([detail.pool.created_at])
    found = await visit.attempt("figures", visit.figures(key), ["status", "facts"])
    shell = await visit.shell(
        name,
        "pools",
        crumbs=(Crumb(words="Pools", path="/pools"), Crumb(words=name)),
        pool=name,
        tab="overview",
        ranged=True,
        live="pools,instances,migrations",
        findings=findings.first(findings.of_advice(advice.items if advice else ())),
        summary=detail.pool,
    )
    return visit.page(
        PoolPage(
            shell=shell,
            detail=detail,
            shown=shown(found) if found else None,
            roles=role_rows(detail),
            ratio=ratio_of(detail),
            states=sorted(states_of(detail).items(), key=lambda item: -item[1]),
            routing=routing_facts(detail),
            documents=[PolicyDocument(name=name, text=yaml_text(value)) for name, value in parameters(detail) if isinstance(value, dict)],
            notes=parameter_notes(detail),
            mix=mix_of(reasons.reasons) if reasons else None,
            mixed=sum(one.decisions for one in reasons.reasons) if reasons else 0,
            learnt=learnt_of(detail.learnt, tuple(Quantity), detail.capability),
            migrations=migrations.items if migrations else None,
            events=events.items if events else None,
            forms=[
                replace(one, opened=one.opened or one.kind == visit.param("change"))
                for one in change_forms(detail.pool, detail.spec, detail.desired, typed, problem)
            ],
            rollout=rollout,
            revisions=[(one, changes_of(one.diff)) for one in rollout.revisions] if rollout else [],
            refusal=formats.told(problem.detail, problem.remedy) if problem and typed.get("kind") == PlanKind.ROLLBACK else None,
        ),
        status=problem.status if problem else 200,
    )


def mix_of(reasons: Sequence[ReasonCount]) -> list[tuple[str, float]]:
    """Return the most frequent reasons for decisions with their shares, and at the end the share of all other reasons
    together.
    """
    of = sum(one.decisions for one in reasons)
    shares: list[tuple[str, float]] = [(one.reason, one.decisions / of) for one in reasons[:MOST_REASONS]]
    rest = len(reasons) - len(shares)
    return [*shares, (f"{rest} other{'s' if rest > 1 else ''}", 1 - sum(share for _, share in shares))] if rest else shares


def states_of(detail: PoolDetail, role: str | None = None) -> Counter[InstanceState]:
    """Count the instances of a role, or of all roles (None), by state."""
    found = Counter[InstanceState]()
    for one in detail.counts:
        if role is None or one.role == role:
            found[one.state] += one.count
    return found


def role_rows(detail: PoolDetail) -> list[RoleRow]:
    """Return a row for each role that has desired or existing instances."""
    rows = []
    for name in [role.value for role in Role if role in detail.desired or any(one.role == role for one in detail.counts)]:
        states = states_of(detail, name)
        rows.append(
            RoleRow(
                name=name,
                wanted=detail.desired.get(name, 0),
                serving=states[InstanceState.SERVING],
                starting=sum(states[one] for one in (InstanceState.PENDING, InstanceState.STARTING, InstanceState.WARMING)),
                cordoned=states[InstanceState.CORDONED],
                draining=states[InstanceState.DRAINING],
                lost=states[InstanceState.LOST],
                asleep=states[InstanceState.ASLEEP],
            )
        )
    return rows


def ratio_of(detail: PoolDetail) -> str | None:
    """Return the ratio of prefill to decode instances, desired and serving; None for a pool with one role."""
    rows = {row.name: row for row in role_rows(detail)}
    if not {Role.PREFILL.value, Role.DECODE.value} <= rows.keys():
        return None
    prefill, decode = rows[Role.PREFILL], rows[Role.DECODE]
    return f"{prefill.wanted} : {decode.wanted} wanted, {prefill.serving} : {decode.serving} serving"


def routing_facts(detail: PoolDetail) -> list[tuple[str, str]]:
    """Return the pool's routing settings as words and values."""
    spec, pool = detail.spec, detail.pool
    engine = pool.engine if pool.engines_file is None else "runs already"
    facts = [("Model", pool.model), ("Engine", engine), ("Policy", pool.policy)]
    facts += [(f"· {name}", str(value)) for name, value in parameters(detail) if not isinstance(value, dict)]
    facts += [
        ("Anchors per instance", str(_at(spec, "routing", "anchorsPerInstance", default=160))),
        ("Early rejection", str(_at(spec, "earlyRejection", "mode", default="Disabled"))),
        ("Session header", str(_at(spec, "routing", "session", "header", default="x-session-id"))),
        ("Drain timeout", str(_at(spec, "drain", "timeout", default="120s"))),
    ]
    return facts


def parameters(detail: PoolDetail) -> list[tuple[str, Any]]:
    """Return the policy's parameters in the spec, by name."""
    return sorted(_at(detail.spec, "routing", "parameters", default={}).items())


def parameter_notes(detail: PoolDetail) -> tuple[str, ...]:
    """Return texts about parameters of the policy that have no effect in this pool; empty for a policy that is not
    Fairlead's.
    """
    try:
        policy = _at(detail.spec, "routing", "policy", default=detail.pool.policy)
        return BUILT_IN.check_parameters(policy, dict(parameters(detail))).notes
    except FairleadError:
        return ()


def _at(document: dict[str, Any], *path: str, default: Any) -> Any:
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return default if found is None else found


ROUTES = Routes(
    # A form that was refused is shown at its own address; a reload and the live parts ask for that one.
    pages={POOL: show, f"{POOL}/plans": show},
    writes={f"{POOL}/plans": plan},
    exports={f"{POOL}/events": Export(name="events", of_pool=True)},
)
