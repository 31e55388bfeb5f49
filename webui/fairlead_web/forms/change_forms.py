"""Makes the forms with which people change a pool, and turns their typed text into the request for a plan.

Fields show the present values of the spec. A refused form keeps the typed text and shows the problem next to it. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import yaml

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.pools import PoolSpec
from fairlead.schemas.shapes import Shape, document_name, shape_at, shape_of
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.kind_facts import Input, InputKind, KindFacts
from fairlead_client.resources.plan_kinds import PLAN_KINDS, PlanKind, PlanRequest
from fairlead_client.resources.pools import PoolSummary
from fairlead_client.resources.problems import Problem
from fairlead_process.yaml_documents import complaint, read_yaml
from fairlead_web.text import formats
from fairlead_web.text.typed_text import number, whole_number
from fairlead_web.text.yaml_text import yaml_text


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field of a form. `kind` is number, text, choice (one of `options`), names (`options` are suggested), yaml, or
    rows (a list of objects, with one line of fields for each object). `help` is the schema's description, `problem` the
    reason why the field was refused.
    """

    name: str
    words: str
    kind: str
    value: str
    hint: str = ""
    options: tuple[str, ...] = ()
    help: str = ""
    problem: str | None = None
    rows: tuple[tuple["FormField", ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeForm:
    """One form for a change of a pool; `id` is unique on the page. `now` shows the present values. `problem` is the
    reason why the whole form was refused; a problem of a single field is in that field.
    """

    id: str
    kind: PlanKind
    role: str
    title: str
    now: str
    fields: tuple[FormField, ...]
    needed: AccessRole
    problem: str | None
    opened: bool


def change_forms(
    pool: PoolSummary, spec: Mapping[str, Any], wanted: Mapping[str, int], typed: Mapping[str, str], problem: Problem | None
) -> list[ChangeForm]:
    """Return all forms of a pool. `wanted` is the pool's desired number of instances, by role.

    A pool whose engines already run gets only the forms that neither create nor remove instances. There are two
    exceptions: a pool that is defined in a file also gets a form for its engines, and a pool that scales the workload
    of its pods also gets the forms for the number of pods. `typed` are the values of a refused form, and `problem` is
    the reason of the refusal.
    """
    roles = spec.get("roles") or [{"name": Role.BOTH.value}]
    forms: list[ChangeForm] = []
    for kind in PLAN_KINDS:
        if not _is_offered(kind.facts, pool, several=len(roles) > 1):
            continue
        if "replicas" in kind.facts.takes:
            forms += [_scale_form(spec, role, wanted, typed, problem) for role in roles]
        elif "role" in kind.facts.takes:
            forms += [_form(kind, role, typed, problem, role=str(role.get("name", Role.BOTH))) for role in roles]
        else:
            forms.append(_form(kind, spec.get(kind.facts.section) or {} if kind.facts.section else spec, typed, problem))
    return forms


def offered(pool: PoolSummary) -> list[PlanKind]:
    """Return the kinds of change for which the pool's page has forms, without the kinds that need two roles."""
    return [kind for kind in PLAN_KINDS if _is_offered(kind.facts, pool, several=False)]


def _is_offered(facts: KindFacts, pool: PoolSummary, *, several: bool) -> bool:
    """Return whether a pool has the form of this kind of change. `several` is True for a pool with more than
    one role.
    """
    if not facts.title:
        return False
    if pool.runs_already and pool.scale_target is None:
        return facts.for_running_engines and (not facts.pods_refusal or pool.engines_file is not None)
    possible = not pool.runs_already or facts.for_scale_targets or not facts.workload_refusal
    return possible and not facts.pods_refusal and (several or not facts.for_pairs)


def _at(section: Mapping[str, Any], path: str) -> Any:
    found: Any = section
    for name in path.split("."):
        found = (found or {}).get(name)
    return found


def _scale_form(
    spec: Mapping[str, Any], role: Mapping[str, Any], wanted: Mapping[str, int], typed: Mapping[str, str], problem: Problem | None
) -> ChangeForm:
    """Return the form for the declared number of a role's instances, which a plan changes.

    The number that is desired now may differ, because of a schedule's window, the load, or the ratio between roles. If
    the spec has no number, the role's InferencePoolRole declares it, and the form shows the desired number.
    """
    name = str(role.get("name", Role.BOTH))
    alone = name == Role.BOTH
    mine = bool(typed) and (typed.get("kind") or PlanKind.SCALE) == PlanKind.SCALE and (alone or typed.get("role") == name)
    declared = spec.get("replicas", 1) if alone else role.get("replicas")
    now = wanted.get(name, 1 if declared is None else declared)
    number = now if declared is None else declared
    bounds = "" if "minReplicas" not in role or "maxReplicas" not in role else f"{role['minReplicas']} to {role['maxReplicas']}"
    value = typed.get("replicas", "") if mine else str(number)
    field = FormField(name="replicas", words="Replicas", kind="number", value=value, hint=bounds)
    return placed(
        ChangeForm(
            id="scale" if alone else f"scale-{name}",
            kind=PlanKind.SCALE,
            role="" if alone else name,
            title="Scale" if alone else f"Scale {name}",
            now=formats.count(number) if number == now else f"{formats.count(number)} declared, {formats.count(now)} desired now",
            fields=(field,),
            needed=PlanKind.SCALE.facts.role,
            problem=None,
            opened=mine or not typed,
        ),
        problem if mine else None,
    )


def _form(kind: PlanKind, section: Mapping[str, Any], typed: Mapping[str, str], problem: Problem | None, role: str = "") -> ChangeForm:
    """Return the form with the inputs of a kind of change. Values are from `section` of the spec, or from the `role` in
    that section.
    """
    facts, alone = kind.facts, role in {"", Role.BOTH}
    mine = typed.get("kind") == kind and (alone or typed.get("role") == role)
    present = {one.name: _shown(one, _at(section, one.name)) for one in facts.inputs}
    return placed(
        ChangeForm(
            id=kind.value if alone else f"{kind.value}-{role}",
            kind=kind,
            role="" if alone else role,
            title=facts.title if alone else f"{facts.title} of {role}",
            now=", ".join(one.told.format(value) for one in facts.inputs if one.told and (value := present[one.name])),
            fields=tuple(_field(kind, one, _at(section, one.name), typed if mine else None) for one in facts.inputs),
            needed=facts.role,
            problem=None,
            opened=mine or (not typed and kind is PlanKind.BOUNDS),
        ),
        problem if mine else None,
    )


def _field(kind: PlanKind, one: Input, present: Any, typed: Mapping[str, str] | None) -> FormField:
    """Return the field for one input of a kind of change, with its present value, or with the value in `typed`."""
    shape = schema_of(kind, one.name)
    rows = () if one.kind is not InputKind.ROWS or shape is None else _rows(one.name, shape, present or [], typed)
    return FormField(
        name=one.name,
        words=one.words,
        kind=(InputKind.CHOICE if one.kind is InputKind.SWITCH else one.kind).value,
        value=_shown(one, present) if typed is None else typed.get(one.name, ""),
        hint=one.hint,
        options=one.options,
        help="" if shape is None or rows else help_of(shape),
        rows=rows,
    )


_SECTIONS = {PlanKind.BOUNDS: "roles"}
"""The section of the spec that a kind of change is about, for the kinds whose `facts.section` is empty."""


def schema_of(kind: PlanKind, name: str) -> Shape | None:
    """Return the schema of the input `name` of a kind of change, from the schema of a pool's spec; None if the spec has
    no such field.
    """
    section = kind.facts.section or _SECTIONS.get(kind, "")
    return shape_at(PoolSpec, f"{section}.{name}".removeprefix("."))


def help_of(shape: Shape) -> str:
    """Return the schema's description of a field, with its bounds and its default."""
    bounds = "" if shape.minimum is None and shape.maximum is None else f" Write {shape.wanted}."
    default = f" Default {shape.default}." if isinstance(shape.default, str | int | float) else ""
    return f"{shape.description}{bounds}{default}"


NEW_ROWS = 2
"""Number of empty lines that a list in a form has for new entries."""
REMOVED = "remove"


def _rows(
    name: str, shape: Shape, present: Sequence[Mapping[str, Any]], typed: Mapping[str, str] | None
) -> tuple[tuple[FormField, ...], ...]:
    """Return the lines of a list in a form: one line for each entry, and empty lines for new entries. `typed` has the
    values of a submitted form.
    """
    count = min(len(present) + NEW_ROWS, shape.max_items) if typed is None else _row_count(name, typed)
    return tuple(
        tuple(
            FormField(
                name=f"{name}.{row}.{column}",
                words=column.capitalize(),
                kind="number" if one.kind in {"number", "integer"} else "text",
                value=_cell(present, row, column) if typed is None else typed.get(f"{name}.{row}.{column}", ""),
                help=help_of(one),
            )
            for column, one in _columns(shape).items()
        )
        for row in range(count)
    )


def _columns(shape: Shape) -> dict[str, Shape]:
    return {document_name(item): shape_of(item) for item in fields(shape.of or object)}  # type: ignore[arg-type]  # a list has a class


def _cell(present: Sequence[Mapping[str, Any]], row: int, column: str) -> str:
    value = present[row].get(column) if row < len(present) else None
    return "" if value is None else str(value)


def _row_count(name: str, form: Mapping[str, str]) -> int:
    rows = [int(part) for one in form if (part := one.removeprefix(f"{name}.").partition(".")[0]).isdecimal() and len(part) < 4]
    return max(rows, default=-1) + 1


def placed(form: ChangeForm, problem: Problem | None) -> ChangeForm:
    """Return the form with the problem shown at the field that the problem names. If the form does not have this field,
    the problem is shown for the whole form.
    """
    if problem is None:
        return form
    detail = formats.labelled(problem.detail, problem.field, {one.name: one.words for one in form.fields})
    told, path = formats.told(detail, problem.remedy), f".{problem.field or ''}"
    named = max((one.name for one in form.fields if path.endswith(f".{one.name}")), key=len, default=None)
    if named is None:
        return replace(form, problem=told)
    return replace(form, fields=tuple(replace(one, problem=told if one.name == named else None) for one in form.fields))


def _shown(one: Input, value: Any) -> str:
    if value is None or value == {}:
        return ""
    if one.kind is InputKind.ROWS:
        return ", ".join(str(item.get("name")) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return yaml_text(value).strip() if one.kind is InputKind.YAML else str(value)


REPLICAS_MOST = 100_000


def asked(form: Mapping[str, str]) -> PlanRequest:
    """Return the plan request that a submitted form describes. Raises InvalidInput for text that cannot be sent."""
    kind = _kind(form)
    given: dict[str, Any] = {name: _READ[name](kind, form) for name in kind.facts.takes}
    return PlanRequest(kind=kind, **given)


def _kind(form: Mapping[str, str]) -> PlanKind:
    given = form.get("kind") or PlanKind.SCALE.value
    if given not in [kind.value for kind in PlanKind if kind.facts.title or kind.facts.has_button]:
        raise InvalidInput("kind", given, "use a form of this page")
    return PlanKind(given)


def _replicas(_kind: PlanKind, form: Mapping[str, str]) -> int:
    given = form.get("replicas", "").strip()
    replicas = whole_number(given)
    if replicas is None or replicas > REPLICAS_MOST:
        raise InvalidInput("replicas", given, "it is not a number of instances; write a whole number such as 8")
    return replicas


def _role(_kind: PlanKind, form: Mapping[str, str]) -> Role | None:
    role = form.get("role")
    return Role(role) if role in set(Role) else None


def _revision(_kind: PlanKind, form: Mapping[str, str]) -> int:
    given = form.get("revision", "")
    revision = whole_number(given)
    if revision is None:
        raise InvalidInput("revision", given, "use a button of this page")
    return revision


def _fields(kind: PlanKind, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a form by path, as the kind of change defines the paths: `zero.holdFor` becomes `holdFor` in
    `zero`. An empty field of a section is reset to its default; other empty fields are left out.
    """
    facts = kind.facts
    found: dict[str, Any] = dict(facts.says)
    for one in facts.inputs:
        if one.kind is InputKind.ROWS:
            found[one.name] = _listed(kind, one.name, form)
            continue
        text = form.get(one.name, "").strip()
        if text or facts.section:
            *sections, name = one.name.split(".")
            inner = found
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[name] = _parsed(one, text)
    return found


_READ: Mapping[str, Callable[[PlanKind, Mapping[str, str]], Any]] = {
    "replicas": _replicas,
    "role": _role,
    "revision": _revision,
    "fields": _fields,
}
"""For each input with a special type, the function that reads the input's value from a form."""


def _listed(kind: PlanKind, name: str, form: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the list that the lines of a form describe, without empty lines and lines marked for removal."""
    shape = schema_of(kind, name)
    lines = [] if shape is None else [_line(f"{name}.{row}", _columns(shape), form) for row in range(_row_count(name, form))]
    return [line for line in lines if line]


def _line(at: str, columns: Mapping[str, Shape], form: Mapping[str, str]) -> dict[str, Any]:
    texts = {column: form.get(f"{at}.{column}", "").strip() for column in columns}
    if form.get(f"{at}.{REMOVED}"):
        return {}
    return {column: _cell_value(f"{at}.{column}", columns[column], text) for column, text in texts.items() if text}


def _cell_value(name: str, shape: Shape, text: str) -> Any:
    if shape.kind not in {"number", "integer"}:
        return text
    try:
        return number(text)
    except ValueError as error:
        raise InvalidInput(name, text, f"write {shape.wanted}") from error


def _parsed(one: Input, text: str) -> Any:
    if not text:
        return {} if one.kind is InputKind.YAML else None
    try:
        return _value(one.kind, text)
    except ValueError as error:
        raise InvalidInput(one.name, text, one.remedy) from error


def _value(kind: InputKind, text: str) -> Any:
    match kind:
        case InputKind.NUMBER:
            return number(text)
        case InputKind.YAML:
            return _mapping(text)
        case InputKind.SWITCH:
            return _truth(text)
        case InputKind.TEXT | InputKind.CHOICE | InputKind.NAMES | InputKind.ROWS:
            return text


def _truth(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(text)
    return text == "true"


def _mapping(text: str) -> dict[str, Any]:
    try:
        found = read_yaml(text)
    except yaml.YAMLError as error:
        raise ValueError(complaint(error)) from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError("no mapping")  # noqa: TRY004 - what is wrong with text is a ValueError
    return found
