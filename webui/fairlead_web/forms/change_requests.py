"""What was typed into the forms that change a pool, as a plan's request."""

from collections.abc import Mapping
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead_client.resources.plans import EngineAction, PlanKind, PlanRequest
from fairlead_web.forms.changed_sections import SECTIONS, Input
from fairlead_web.text.typed_text import number, whole_number

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
