"""Label and field selectors, which are parsed once and then applied to objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from processkube.kubernetes_api.objects.errors import BadRequest
from processkube.kubernetes_api.objects.objects import Object, at_path, metadata_of

_TERM = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>[^\s,=!()<>]+)
      | (?P<key>[^\s,=!()<>]+)\s*
        (?: (?P<operator>==|=|!=|<|>)\s*(?P<value>[^\s,()]*)
          | (?P<membership>in|notin)\s*\((?P<values>[^()]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_KEY = re.compile(r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
"""Operator of a `metav1.LabelSelector` object → the equivalent operator in a selector's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One term of a label selector. Its operator is =, !=, in, notin, exists, absent, < or >."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: dict[str, str]) -> bool:
        present = self.key in labels
        value = labels.get(self.key, "")
        match self.operator:
            case "exists":
                return present
            case "absent":
                return not present
            case "=" | "in":
                return present and value in self.values
            case "!=" | "notin":
                return not present or value not in self.values
        try:
            number, bound = int(value), int(next(iter(self.values)))
        except ValueError:
            return False
        return present and (number > bound if self.operator == ">" else number < bound)


_NEVER = Requirement(key="", operator="in")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """A label selector as terms, which must all hold. A selector without terms matches every object."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: dict[str, str] | None) -> bool:
        found = labels or {}
        return all(requirement.matches(found) for requirement in self.requirements)

    def label(self) -> tuple[str, str] | None:
        """Return the key and the value of a label that every matched object has. Return None if no term of the selector
        requires one exact value.
        """
        for requirement in self.requirements:
            if requirement.operator in {"=", "in"} and len(requirement.values) == 1:
                return requirement.key, next(iter(requirement.values))
        return None


def parse_label_selector(text: str) -> LabelSelector:
    """Return the selector in a text such as `app=web,tier in (a, b),!debug`. Raises BadRequest."""
    requirements = []
    position = 0
    while position < len(text.rstrip()):
        found = _TERM.match(text, position)
        if found is None or found.end() == position:
            raise BadRequest(f"unable to parse requirement: found {text[position:]!r}, write for example app=web,tier in (a,b)")
        requirements.append(_requirement(found))
        position = found.end()
    return LabelSelector(requirements=tuple(requirements))


def _requirement(found: re.Match[str]) -> Requirement:
    key = found["absent_key"] or found["key"]
    if not _KEY.match(key):
        raise BadRequest(f'unable to parse requirement: <nil>: Invalid value: "{key}": is not a valid label key')
    if found["absent"]:
        return Requirement(key=key, operator="absent")
    if found["membership"]:
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Requirement(key=key, operator=found["membership"], values=values)
    if found["operator"]:
        operator = "=" if found["operator"] == "==" else found["operator"]
        return Requirement(key=key, operator=operator, values=frozenset({found["value"]}))
    return Requirement(key=key, operator="exists")


def selector_of_object(selector: Object | None) -> LabelSelector:
    """Return the selector for a `metav1.LabelSelector` object (matchLabels, matchExpressions).

    For None, the selector matches nothing; for an empty object, it matches everything. A term with an unknown operator
    matches nothing. Such a term raises no error, because an object in an old state folder may have one.
    """
    if selector is None:
        return LabelSelector(requirements=(_NEVER,))
    requirements = [
        Requirement(key=key, operator="=", values=frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    requirements += [
        Requirement(key=term["key"], operator=OPERATORS[term["operator"]], values=frozenset(term.get("values") or ()))
        if term["operator"] in OPERATORS
        else _NEVER
        for term in selector.get("matchExpressions") or ()
    ]
    return LabelSelector(requirements=tuple(requirements))


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSelector:
    """A field selector as terms (path, is_equal, value), which must all hold."""

    terms: tuple[tuple[str, bool, str], ...] = ()

    def matches(self, item: Object) -> bool:
        return all((_field_text(item, path) == value) == is_equal for path, is_equal, value in self.terms)


def parse_field_selector(text: str, allowed: Iterable[str]) -> FieldSelector:
    """Return the selector in a text such as `metadata.name=x,status.phase!=Running`.

    Raises BadRequest for a field by which objects of this kind cannot be selected.
    """
    known = {"metadata.name", "metadata.namespace", *allowed}
    terms = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        found = re.match(r"^([^=!]+?)\s*(==|=|!=)\s*(.*)$", term)
        if found is None:
            raise BadRequest(f"invalid selector: {text!r}; can't understand {term!r}")
        if found[1] not in known:
            raise BadRequest(f"field label not supported: {found[1]}")
        terms.append((found[1], found[2] != "!=", found[3]))
    return FieldSelector(terms=tuple(terms))


def _field_text(item: Object, path: str) -> str:
    value: Any = at_path(item, *path.split("."))
    if path == "source" and isinstance(value, dict):
        value = value.get("component")
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path in {"spec.unschedulable", "spec.hostNetwork"} else ""
    return str(value)


Selects = Callable[[Object], bool]


def selects(labels: LabelSelector, fields: FieldSelector) -> Selects | None:
    """Return a function of an object that returns whether both selectors match the object; None if they match every
    object.
    """
    if not labels.requirements and not fields.terms:
        return None
    return lambda item: labels.matches(metadata_of(item).get("labels")) and fields.matches(item)
