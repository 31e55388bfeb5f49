"""`/pools/{namespace}/{name}`: one pool, spec against status, and the form that scales it through a plan."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.moves import Migration
from fairlead_client.resources.pools import PoolDetail, PoolEventItem
from fairlead_client.resources.problems import Problem
from fairlead_web import findings, formats
from fairlead_web.rendering import Context
from fairlead_web.routes import POOL, Export, Routes
from fairlead_web.shells import Crumb, Shell
from fairlead_web.visits import Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleForm:
    """The scale form as last submitted; `problem` says what was wrong with `field` and is shown beside it."""

    replicas: str
    least: int | None
    most: int | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPage(Context):
    template: ClassVar[str] = "pages/pool.html"
    shell: Shell
    detail: PoolDetail
    roles: list[tuple[str, int]]
    states: list[tuple[str, int]]
    routing: list[tuple[str, str]]
    mix: list[tuple[str, float]] | None
    migrations: list[Migration] | None
    events: list[PoolEventItem] | None
    scale: ScaleForm


REPLICAS_MOST = 100_000


async def show(visit: Visit) -> Response:
    return await _page(visit, None, None)


async def plan_scale(visit: Visit) -> Response:
    """Asks the API for a plan to scale and redirects to it; a problem with the number is shown beside it."""
    given = str((await visit.form()).get("replicas", "")).strip()
    if not (given.isascii() and given.isdigit() and int(given) <= REPLICAS_MOST):
        detail = f"replicas: {given!r} is not a number of instances; write a whole number such as 8"
        return await _page(visit, given, Problem(type="invalid-input", title="Invalid number", status=422, detail=detail, field="replicas"))
    try:
        plan = await visit.api.create_scale_plan(visit.pool_key(), int(given))
    except ApiProblem as error:
        if error.problem.status in {400, 409, 422}:
            return await _page(visit, given, error.problem)
        raise
    return visit.redirect(f"/plans/{plan.id}")


async def _page(visit: Visit, replicas: str | None, problem: Problem | None) -> Response:
    key = visit.pool_key()
    name = str(key)
    detail, migrations, events, decisions = await asyncio.gather(
        visit.api.pool(key),
        visit.attempt("migrations", visit.api.migrations({"pool": name, "limit": 8})),
        visit.attempt("events", visit.api.events(key, limit=10)),
        visit.attempt("decisions", visit.api.decisions({"pool": name, "limit": 100})),
    )
    visit = visit.since([detail.pool.created_at])
    shell = await visit.shell(
        name,
        "pools",
        crumbs=(Crumb(words="Pools", path="/pools"), Crumb(words=name)),
        pool=name,
        tab="overview",
        ranged=True,
        live="pools,instances,migrations",
        findings=findings.of_pool(detail.pool, detail.instances),
    )
    reasons = Counter(decision.reason for decision in decisions.items) if decisions else Counter()
    return visit.page(
        PoolPage(
            shell=shell,
            detail=detail,
            roles=sorted(Counter(instance.role for instance in detail.instances).items()),
            states=sorted(Counter(instance.state for instance in detail.instances).items(), key=lambda item: -item[1]),
            routing=routing_facts(detail),
            mix=[(reason, amount / reasons.total()) for reason, amount in reasons.most_common(6)] if decisions else None,
            migrations=migrations.items if migrations else None,
            events=events.items if events else None,
            scale=scale_form(detail, replicas, problem),
        ),
        status=problem.status if problem else 200,
    )


def scale_form(detail: PoolDetail, replicas: str | None, problem: Problem | None) -> ScaleForm:
    """The form with its bounds from the spec's first role, holding what was typed."""
    roles = detail.spec.get("roles") or [{}]
    return ScaleForm(
        replicas=replicas if replicas is not None else str(detail.pool.desired),
        least=roles[0].get("minReplicas"),
        most=roles[0].get("maxReplicas"),
        problem=None if problem is None else formats.told(problem.detail, problem.remedy),
    )


def routing_facts(detail: PoolDetail) -> list[tuple[str, str]]:
    """The pool's routing settings as words and values."""
    spec, pool = detail.spec, detail.pool
    facts = [("Model", pool.model), ("Engine", pool.engine), ("Policy", pool.policy)]
    facts += [(f"· {name}", str(value)) for name, value in sorted((_at(spec, "routing", "parameters", default={})).items())]
    facts += [
        ("Anchors per instance", str(_at(spec, "routing", "anchorsPerInstance", default=160))),
        ("Early rejection", str(_at(spec, "earlyRejection", "mode", default="Disabled"))),
        ("Session header", str(_at(spec, "routing", "session", "header", default="x-session-id"))),
        ("Drain timeout", str(_at(spec, "drain", "timeout", default="120s"))),
    ]
    return facts


def _at(document: dict[str, Any], *path: str, default: Any) -> Any:
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return default if found is None else found


ROUTES = Routes(
    pages={POOL: show},
    writes={f"{POOL}/plans": plan_scale},
    exports={f"{POOL}/events": Export(name="events", of_pool=True)},
)
