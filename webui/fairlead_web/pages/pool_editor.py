"""`/pools/new` and `…/{namespace}/{name}/edit`: an editor for the text of a pool's spec, which is checked and then
planned.
"""

from dataclasses import dataclass
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_web.drawing.differences import DiffLine, yaml_diff
from fairlead_web.forms.spec_forms import Example, Fault, Faulty, SchemaField, check_spec, examples, fault_of, read_spec, schema_fields
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text.addresses import pool_path
from fairlead_web.text.yaml_text import yaml_text

REFUSALS = frozenset({400, 403, 404, 409, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorPage(Context):
    """The page of the editor. `action` is the address to which its form is sent; `name` is the name of a new pool, None
    for a pool that exists. `checked` is True if the text was checked and is valid; `diff` is then its difference from
    the present spec.
    """

    template: ClassVar[str] = "pages/pool_editor.html"
    shell: Shell
    action: str
    name: str | None
    name_problem: str | None
    text: str
    fault: Fault | None
    checked: bool
    diff: list[DiffLine]
    schema: tuple[SchemaField, ...]
    examples: list[Example]
    example: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The submitted values of the editor's form, and their faults."""

    text: str
    name: str | None = None
    name_problem: str | None = None
    fault: Fault | None = None
    checked: bool = False
    status: int = 200


async def edit(visit: Visit) -> Response:
    return await _edit(visit, None)


async def plan_edit(visit: Visit) -> Response:
    """Check the text, or request a plan that changes the pool to it and redirect to that plan."""
    return await _sent(visit, visit.pool_key(), PlanKind.SPEC, None)


async def new(visit: Visit) -> Response:
    chosen = next((one for one in examples() if one.name == visit.param("example")), None)
    if visit.param("example") and chosen is None:
        raise HTTPException(404)
    return await _new(visit, Typed(text=chosen.text if chosen else "", name=f"default/{chosen.name}" if chosen else ""))


async def plan_new(visit: Visit) -> Response:
    """Check the text, or request a plan that creates a pool from it and redirect to that plan."""
    form = await visit.form()
    name = str(form.get("name", "")).strip()
    try:
        key = PoolKey.named(name)
    except ValueError:
        text = str(form.get("spec", ""))
        return await _new(
            visit, Typed(text=text, name=name, name_problem="A pool cannot have this name; write a name, or namespace/name.", status=422)
        )
    return await _sent(visit, key, PlanKind.CREATE, name)


async def _sent(visit: Visit, key: PoolKey, kind: PlanKind, name: str | None) -> Response:
    form = await visit.form()
    text = str(form.get("spec", "")).replace("\r\n", "\n")
    show = _edit if name is None else _new
    try:
        spec = read_spec(text)
        check_spec(text, spec)
        if form.get("action") == "check":
            return await show(visit, Typed(text=text, name=name, checked=True))
        made = await visit.api.create_plan(key, PlanRequest(kind=kind, fields=spec))
    except Faulty as error:
        return await show(visit, Typed(text=text, name=name, fault=error.fault, status=422))
    except ApiProblem as error:
        if error.problem.status not in REFUSALS:
            raise
        return await show(visit, Typed(text=text, name=name, fault=fault_of(text, error.problem), status=error.problem.status))
    return visit.redirect(f"/plans/{made.id}")


async def _edit(visit: Visit, typed: Typed | None) -> Response:
    key = visit.pool_key()
    detail = await visit.api.pool(key, instances=False)
    typed = typed or Typed(text=yaml_text(detail.spec))
    crumbs = crumbs_below(str(key), Crumb(words="Spec", path=f"{pool_path(str(key))}/spec"), Crumb(words="Edit"))
    shell = await visit.shell(f"Edit the spec of {key}", "pools", crumbs=crumbs, pool=str(key), tab="spec")
    return _page(visit, shell, typed, f"{pool_path(str(key))}/edit", yaml_diff(detail.spec, read_spec(typed.text)) if typed.checked else [])


async def _new(visit: Visit, typed: Typed) -> Response:
    crumbs = (Crumb(words="Pools", path="/pools"), Crumb(words="New pool"))
    return _page(visit, await visit.shell("New pool", "pools", crumbs=crumbs), typed, "/pools/new", [])


def _page(visit: Visit, shell: Shell, typed: Typed, action: str, diff: list[DiffLine]) -> Response:
    page = EditorPage(
        shell=shell,
        action=action,
        name=typed.name,
        name_problem=typed.name_problem,
        text=typed.text,
        fault=typed.fault,
        checked=typed.checked,
        diff=diff,
        schema=schema_fields(),
        examples=[] if typed.name is None else list(examples()),
        example=visit.param("example"),
    )
    return visit.page(page, status=typed.status)


ROUTES = Routes(
    pages={"/pools/new": new, f"{POOL}/edit": edit},
    writes={"/pools/new": plan_new, f"{POOL}/edit": plan_edit},
)
