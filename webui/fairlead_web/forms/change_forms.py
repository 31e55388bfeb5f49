"""The forms by which people change a pool: what they show, and what was typed as a plan's request.

Fields are filled in as the spec has them. A form that was refused keeps what was typed and says what was wrong beside
it. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plans import NEEDED_ROLE, EngineAction, PlanKind, PlanRequest
from fairlead_client.resources.pools import PoolSummary
from fairlead_client.resources.problems import Problem
from fairlead_web.forms.changed_sections import SECTIONS, Input, Section
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


OF_RUNNING_ENGINES = frozenset({PlanKind.POLICY, PlanKind.SLO, PlanKind.EARLY_REJECTION, PlanKind.RING, PlanKind.MIGRATIONS})
"""The changes that are possible for a pool whose instances nobody here makes or scales."""


def change_forms(
    pool: PoolSummary, spec: Mapping[str, Any], wanted: Mapping[str, int], typed: Mapping[str, str], problem: Problem | None
) -> list[ChangeForm]:
    """All forms of a pool; `wanted` are its instances wanted now, by role. A pool whose engines run already has those
    forms only that need no instance made or ended; one of a file has another for its engines, and one that scales the
    workload of its pods the forms of their number.

    `typed` is the form that was refused, and `problem` why.
    """
    if pool.runs_already and pool.scale_target is None:
        possible = {kind: section for kind, section in SECTIONS.items() if kind in OF_RUNNING_ENGINES}
        listed = [_engine_form(typed, problem)] if pool.engines_file is not None else []
        return [*listed, *(_section_form(kind, section, spec, typed, problem) for kind, section in possible.items())]
    roles = spec.get("roles") or [{"name": Role.BOTH.value}]
    made = [_scale_form(spec, role, wanted, typed, problem) for role in roles]
    several = len(roles) > 1
    left_out = {PlanKind.RATIO} if not several else set()
    if pool.runs_already:
        left_out |= {PlanKind.RATIO, PlanKind.ROLLOUT}
    sections = {kind: section for kind, section in SECTIONS.items() if kind not in left_out}
    forms = [*made, *(_section_form(kind, section, spec, typed, problem) for kind, section in sections.items())]
    return [*forms, _deletion_form(pool, typed, problem)]


def _at(section: Mapping[str, Any], path: str) -> Any:
    found: Any = section
    for name in path.split("."):
        found = (found or {}).get(name)
    return found


def _engine_form(typed: Mapping[str, str], problem: Problem | None) -> ChangeForm:
    mine = typed.get("kind") == PlanKind.ENGINES
    kept = typed if mine else {}
    asked_for = (
        ("url", "Address", "text", "http://HOST:PORT"),
        ("name", "Name", "text", "by default host and port"),
        ("weight", "Weight", "number", "share of the keys beside engines of weight 1"),
    )
    return ChangeForm(
        id="engines",
        kind=PlanKind.ENGINES,
        role="",
        title="Add an engine",
        now="",
        fields=tuple(
            FormField(name=name, words=words, kind=kind, value=kept.get(name, ""), hint=hint) for name, words, kind, hint in asked_for
        ),
        needed=NEEDED_ROLE[PlanKind.ENGINES],
        problem=_told(problem) if mine else None,
        opened=mine,
    )


def _scale_form(
    spec: Mapping[str, Any], role: Mapping[str, Any], wanted: Mapping[str, int], typed: Mapping[str, str], problem: Problem | None
) -> ChangeForm:
    """The form of a role's declared number, which a plan changes.

    A window, the load or the ratio may want another number now. Where the spec leaves the number out, the role's
    InferencePoolRole has it, and the number wanted now stands for it.
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
        now=formats.count(number) if number == now else f"{formats.count(number)} declared, {formats.count(now)} wanted now",
        fields=(FormField(name="replicas", words="Replicas", kind="number", value=value, hint=bounds),),
        needed=NEEDED_ROLE[PlanKind.SCALE],
        problem=_told(problem) if mine else None,
        opened=mine or not typed,
    )


def _deletion_form(pool: PoolSummary, typed: Mapping[str, str], problem: Problem | None) -> ChangeForm:
    mine = typed.get("kind") == PlanKind.DELETE
    return ChangeForm(
        id="delete",
        kind=PlanKind.DELETE,
        role="",
        title="Delete the pool",
        now="",
        fields=(),
        needed=NEEDED_ROLE[PlanKind.DELETE],
        problem=_told(problem) if mine else None,
        opened=mine,
    )


def _section_form(
    kind: PlanKind, section: Section, spec: Mapping[str, Any], typed: Mapping[str, str], problem: Problem | None
) -> ChangeForm:
    mine, found = typed.get("kind") == kind, spec.get(section.section) or {}
    present = {one.name: _shown(one, _at(found, one.name)) for one in section.inputs}
    return ChangeForm(
        id=kind.value,
        kind=kind,
        role="",
        title=section.title,
        now=", ".join(one.told.format(value) for one in section.inputs if one.told and (value := present[one.name])),
        fields=tuple(
            FormField(
                name=one.name,
                words=one.words,
                kind=one.kind,
                value=typed.get(one.name, "") if mine else present[one.name],
                hint=one.hint,
                options=one.options,
            )
            for one in section.inputs
        ),
        needed=NEEDED_ROLE[kind],
        problem=_told(problem) if mine else None,
        opened=mine,
    )


def _shown(one: Input, value: Any) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return yaml_text(value).strip() if one.kind == "yaml" else str(value)


def _told(problem: Problem | None) -> str | None:
    return None if problem is None else formats.told(problem.detail, problem.remedy)


REPLICAS_MOST = 100_000


def asked(form: Mapping[str, str]) -> PlanRequest:
    """The request of a form. Raises InvalidInput for text that cannot be sent."""
    kind = _kind(form)
    section = SECTIONS.get(kind)
    if section is not None:
        return PlanRequest(kind=kind, fields=_nested({one.name: _parsed(one, form.get(one.name, "").strip()) for one in section.inputs}))
    if kind is PlanKind.ROLLBACK:
        return PlanRequest(kind=kind, revision=_whole("revision", form.get("revision", ""), "use a button of this page"))
    if kind is PlanKind.ENGINES:
        return PlanRequest(kind=kind, fields=_engine(form))
    if kind is PlanKind.DELETE:
        return PlanRequest(kind=kind)
    given = form.get("replicas", "").strip()
    replicas = whole_number(given)
    if replicas is None or replicas > REPLICAS_MOST:
        raise InvalidInput("replicas", given, "it is not a number of instances; write a whole number such as 8")
    role = form.get("role")
    return PlanRequest(kind=kind, replicas=replicas, role=Role(role) if role in set(Role) else None)


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by path as the section has them: `zero.holdFor` becomes `holdFor` in `zero`."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        inner = found
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return found


def _whole(name: str, text: str, remedy: str) -> int:
    found = whole_number(text)
    if found is None:
        raise InvalidInput(name, text, remedy)
    return found


def _kind(form: Mapping[str, str]) -> PlanKind:
    given = form.get("kind") or PlanKind.SCALE.value
    others = {PlanKind.SCALE.value, PlanKind.ROLLBACK.value, PlanKind.ENGINES.value, PlanKind.DELETE.value}
    if given not in {*others, *(kind.value for kind in SECTIONS)}:
        raise InvalidInput("kind", given, "use a form of this page")
    return PlanKind(given)


def _parsed(one: Input, text: str) -> Any:
    if not text:
        return {} if one.kind == "yaml" else None
    try:
        return one.parse(text)
    except ValueError as error:
        raise InvalidInput(one.name, text, one.remedy) from error


def _engine(form: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a plan that adds an engine; one is taken out where it is listed."""
    given = {"action": EngineAction.ADD.value} | {name: text for name in ("url", "name") if (text := form.get(name, "").strip())}
    weight = form.get("weight", "").strip()
    try:
        return {**given, "weight": number(weight)} if weight else given
    except ValueError as error:
        raise InvalidInput("weight", weight, "write a number such as 2") from error
