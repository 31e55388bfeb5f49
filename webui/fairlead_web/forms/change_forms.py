"""The forms by which people change a pool: their fields, and the typed text as a plan's request.

Fields are filled in from the spec. A refused form keeps the typed text and shows the problem next to it. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from fairlead.errors import InvalidInput
from fairlead.instances import Role
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
    """One field. `kind` is number, text, choice (one of `options`), names (`options` are suggested) or yaml."""

    name: str
    words: str
    kind: str
    value: str
    hint: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeForm:
    """One form; `id` is unique on the page. `now` shows the present values, `problem` why the last try was refused."""

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
    """All forms of a pool; `wanted` are its desired instances, by role.

    A pool of running engines has only the forms that need no instance created or removed; one from a file also has a
    form for its engines, and one that scales its pods' workload the forms for their number. `typed` is the refused
    form, and `problem` the reason.
    """
    roles = spec.get("roles") or [{"name": Role.BOTH.value}]
    forms: list[ChangeForm] = []
    for kind in PLAN_KINDS:
        if not _is_offered(kind.facts, pool, several=len(roles) > 1):
            continue
        if "replicas" in kind.facts.takes:
            forms += [_scale_form(spec, role, wanted, typed, problem) for role in roles]
        else:
            forms.append(_form(kind, spec, typed, problem))
    return forms


def offered(pool: PoolSummary) -> list[PlanKind]:
    """The kinds of change whose forms the pool's page has, whatever its roles."""
    return [kind for kind in PLAN_KINDS if _is_offered(kind.facts, pool, several=False)]


def _is_offered(facts: KindFacts, pool: PoolSummary, *, several: bool) -> bool:
    """Whether a pool, with `several` roles or one, has the form of this kind."""
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
    """The form for a role's declared number, which a plan changes.

    A window, the load or the ratio may require another number now. If the spec leaves the number out, the role's
    InferencePoolRole has it, and the form shows the number desired now.
    """
    name = str(role.get("name", Role.BOTH))
    alone = name == Role.BOTH
    mine = bool(typed) and (typed.get("kind") or PlanKind.SCALE) == PlanKind.SCALE and (alone or typed.get("role") == name)
    declared = spec.get("replicas", 1) if alone else role.get("replicas")
    now = wanted.get(name, 1 if declared is None else declared)
    number = now if declared is None else declared
    bounds = "" if "minReplicas" not in role or "maxReplicas" not in role else f"{role['minReplicas']} to {role['maxReplicas']}"
    value = typed.get("replicas", "") if mine else str(number)
    return ChangeForm(
        id="scale" if alone else f"scale-{name}",
        kind=PlanKind.SCALE,
        role="" if alone else name,
        title="Scale" if alone else f"Scale {name}",
        now=formats.count(number) if number == now else f"{formats.count(number)} declared, {formats.count(now)} desired now",
        fields=(FormField(name="replicas", words="Replicas", kind="number", value=value, hint=bounds),),
        needed=PlanKind.SCALE.facts.role,
        problem=_told(problem) if mine else None,
        opened=mine or not typed,
    )


def _form(kind: PlanKind, spec: Mapping[str, Any], typed: Mapping[str, str], problem: Problem | None) -> ChangeForm:
    """The form with a kind's inputs, filled in from the kind's section of the spec."""
    mine, facts = typed.get("kind") == kind, kind.facts
    section = spec.get(facts.section) or {}
    present = {one.name: _shown(one, _at(section, one.name)) for one in facts.inputs}
    return ChangeForm(
        id=kind.value,
        kind=kind,
        role="",
        title=facts.title,
        now=", ".join(one.told.format(value) for one in facts.inputs if one.told and (value := present[one.name])),
        fields=tuple(
            FormField(
                name=one.name,
                words=one.words,
                kind=(InputKind.CHOICE if one.kind is InputKind.SWITCH else one.kind).value,
                value=typed.get(one.name, "") if mine else present[one.name],
                hint=one.hint,
                options=one.options,
            )
            for one in facts.inputs
        ),
        needed=facts.role,
        problem=_told(problem) if mine else None,
        opened=mine,
    )


def _shown(one: Input, value: Any) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return yaml_text(value).strip() if one.kind is InputKind.YAML else str(value)


def _told(problem: Problem | None) -> str | None:
    return None if problem is None else formats.told(problem.detail, problem.remedy)


REPLICAS_MOST = 100_000


def asked(form: Mapping[str, str]) -> PlanRequest:
    """The plan request that a form describes. Raises InvalidInput for text that cannot be sent."""
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
    """The fields by path, as the kind defines them: `zero.holdFor` becomes `holdFor` in `zero`. An empty field of a
    section is reset to its default; other empty fields are left out.
    """
    facts = kind.facts
    found: dict[str, Any] = dict(facts.says)
    for one in facts.inputs:
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
"""For each type of field, how its value is read from a form."""


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
        case InputKind.TEXT | InputKind.CHOICE | InputKind.NAMES:
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
