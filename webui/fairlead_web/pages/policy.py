"""`…/{namespace}/{name}/policy`: a description of each routing policy, and a form for the parameters of one policy. The
form makes a plan to change the pool.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

import yaml
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead.errors import InvalidInput
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.schemas.shapes import Shape
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.problems import Problem
from fairlead_client.resources.shadows import ShadowFigures, ShadowHour, with_error
from fairlead_process.yaml_documents import complaint, read_yaml
from fairlead_web.forms.change_forms import ChangeForm, FormField, help_of, placed
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text.typed_text import number
from fairlead_web.text.yaml_text import yaml_text

_NUMBERS = frozenset({"number", "integer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A policy in the list; `missing` names roles that the policy needs and the pool does not have."""

    name: str
    intent: str
    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRow:
    """A shadow policy, which only advises, compared with the policy that decided: how often both chose the same
    instance, and the predictions for the decisions in which they chose different ones.
    """

    at: datetime | None
    policy: str
    decided_by: str
    asked: int
    failed: int
    alike: float
    ttft: str
    hits: str
    off_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPage(Context):
    """The page of policies: the list, the form of the policy `chosen`, and the pool's shadow policies in total and by
    hour. `present` is the policy that the pool uses.
    """

    template: ClassVar[str] = "pages/policy.html"
    shell: Shell
    rows: list[PolicyRow]
    present: str
    chosen: str
    form: ChangeForm
    needed: AccessRole
    shadows: list[ShadowRow] | None
    """The pool's shadow policies in total; None if they could not be read."""
    shadow_hours: list[ShadowRow]


async def show(visit: Visit) -> Response:
    return await _page(visit, visit.param("policy"), None, None)


async def plan(visit: Visit) -> Response:
    """Request a plan and redirect to it. If the API refuses, the reason is shown at the field at fault."""
    form = {name: value for name, value in (await visit.form()).items() if isinstance(value, str)}
    chosen = form.get("policy", "")
    try:
        fields = {"policy": chosen, "parameters": parameters_of(_shapes(chosen), form)}
        made = await visit.api.create_plan(visit.pool_key(), PlanRequest(kind=PlanKind.POLICY, fields=fields))
    except InvalidInput as error:
        return await _page(visit, chosen, form, Problem(type="", title="", status=422, detail=str(error), field=error.field))
    except ApiProblem as error:
        if error.problem.status not in {400, 409, 422}:
            raise
        return await _page(visit, chosen, form, error.problem)
    return visit.redirect(f"/plans/{made.id}")


async def _page(visit: Visit, asked: str | None, typed: Mapping[str, str] | None, problem: Problem | None) -> Response:
    key = visit.pool_key()
    detail, shadowed = await asyncio.gather(visit.api.pool(key, instances=False), visit.attempt("shadows", visit.api.shadows(key)))
    routing = detail.spec.get("routing") or {}
    present = str(routing.get("policy", detail.pool.policy))
    chosen = asked or present
    given = routing.get("parameters") or {} if chosen == present else {}
    form = ChangeForm(
        id="chosen-policy",
        kind=PlanKind.POLICY,
        role="",
        title=chosen,
        now="",
        fields=fields_of(_shapes(chosen), given, typed),
        needed=PlanKind.POLICY.facts.role,
        problem=None,
        opened=True,
    )
    roles = {str(one.get("name")) for one in detail.spec.get("roles") or [{"name": "both"}]}
    crumbs = crumbs_below(str(key), Crumb(words="Policy"))
    return visit.page(
        PolicyPage(
            shell=await visit.shell(f"Policy of {key}", "pools", crumbs=crumbs, pool=str(key), tab="overview"),
            rows=[_row(name, roles) for name in sorted(BUILT_IN.names)],
            present=present,
            chosen=chosen,
            form=placed(form, problem),
            needed=PlanKind.POLICY.facts.role,
            shadows=None if shadowed is None else [_shadow(one) for one in shadowed.policies],
            shadow_hours=[] if shadowed is None else [_shadow(one) for one in shadowed.hours],
        ),
        status=problem.status if problem else 200,
    )


def _shadow(one: ShadowFigures) -> ShadowRow:
    return ShadowRow(
        at=one.at if isinstance(one, ShadowHour) else None,
        policy=one.policy,
        decided_by=one.decided_by,
        asked=one.asked,
        failed=one.failed,
        alike=one.alike / one.asked,
        ttft=with_error(one.ttft_change_seconds, one.ttft_error_seconds, "s", 3),
        hits=with_error(one.hit_change_tokens, one.hit_error_tokens, "tokens", 0),
        off_seconds=one.off_seconds,
    )


def _row(name: str, roles: set[str]) -> PolicyRow:
    entry = BUILT_IN.entry(name)
    missing = [role.value for role in entry.needs_roles if role.value not in roles]
    return PolicyRow(name=name, intent=entry.intent, missing=" and ".join(missing))


def _shapes(policy: str) -> dict[str, Shape]:
    """Return the schemas of a policy's parameters, by name. Raises a 404 for a policy that is not in the list."""
    if policy not in BUILT_IN.names:
        raise HTTPException(404)
    return BUILT_IN.parameters(policy)


def fields_of(shapes: Mapping[str, Shape], given: Mapping[str, Any], typed: Mapping[str, str] | None) -> tuple[FormField, ...]:
    """Return a form field for each parameter, with the value in the spec, or with the value in `typed`."""
    return tuple(_field(name, shape, _shown(given.get(name)) if typed is None else typed.get(name, "")) for name, shape in shapes.items())


def _field(name: str, shape: Shape, value: str) -> FormField:
    field = FormField(name=name, words=name.replace("_", " "), kind="text", value=value, help=help_of(shape))
    if shape.enum or shape.kind == "boolean":
        options = shape.enum or ("true", "false")
        return replace(field, kind="choice", options=("", *options))
    if shape.kind in _NUMBERS:
        return replace(field, kind="number")
    return field if shape.kind in {"string", "duration"} else replace(field, kind="yaml")


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return yaml_text(value).strip() if isinstance(value, dict | list) else str(value)


def parameters_of(shapes: Mapping[str, Shape], form: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters that have a typed value; all other parameters keep their defaults. Raises InvalidInput."""
    return {name: _value(name, shape, text) for name, shape in shapes.items() if (text := form.get(name, "").strip())}


def _value(name: str, shape: Shape, text: str) -> Any:
    try:
        if shape.kind in _NUMBERS:
            return number(text)
        if shape.kind in {"string", "duration"}:
            return text
        return read_yaml(text)
    except yaml.YAMLError as error:
        raise InvalidInput(name, text, f"write YAML ({complaint(error)})") from error
    except ValueError as error:
        raise InvalidInput(name, text, f"write {shape.wanted}") from error


ROUTES = Routes(pages={f"{POOL}/policy": show}, writes={f"{POOL}/policy": plan})
