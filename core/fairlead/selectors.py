"""Selection of running pods by a role: a label selector with the syntax and semantics of Kubernetes."""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fairlead.schemas.shapes import Rule, labels, listing, text, texts

_MOST = 16
"""Maximum number of labels, and of expressions, of a selector."""
_NAME = r"^([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$"
VALUE = r"^([a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?)?$"
_SETS = ("In", "NotIn")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionSpec:
    """A requirement on one label of a pod."""

    RULES: ClassVar = (
        Rule(
            cel="!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
            holds=lambda one: one.operator not in _SETS or bool(one.values),
            field="values",
            message="values must not be empty for the operators In and NotIn",
        ),
        Rule(
            cel="self.operator in ['In', 'NotIn'] || !has(self.values) || self.values.size() == 0",
            holds=lambda one: one.operator in _SETS or not one.values,
            field="values",
            message="values is only for the operators In and NotIn; remove it",
        ),
    )

    key: str = text("Name of the label.", pattern=_NAME, max_length=317)
    operator: str = text("Relation between the label's value and values.", enum=(*_SETS, "Exists", "DoesNotExist"))
    values: tuple[str, ...] = texts("Values of the label.", pattern=VALUE, max_length=63, max_items=64, convert=str)

    def holds(self, found: Mapping[str, str]) -> bool:
        """Return whether these labels meet the requirement; a pod without the label meets NotIn, as in Kubernetes."""
        match self.operator:
            case "In":
                return found.get(self.key) in self.values
            case "NotIn":
                return found.get(self.key) not in self.values
            case "Exists":
                return self.key in found
            case _:
                return self.key not in found

    def __str__(self) -> str:
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case _:
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorSpec:
    """The labels of the pods that a role selects; all requirements must hold."""

    RULES: ClassVar = (
        Rule(
            cel="self.matchLabels.size() > 0 || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",
            holds=lambda selector: bool(selector.match_labels or selector.match_expressions),
            field="matchLabels",
            message="selector must not be empty, because it would select every pod of the namespace; write matchLabels or matchExpressions",
        ),
    )

    match_labels: dict[str, str] = labels("Labels that a pod must have, with these values.", pattern=VALUE, max_length=63, max_items=_MOST)
    match_expressions: tuple[ExpressionSpec, ...] = listing(
        ExpressionSpec, "Requirements on labels of a pod.", (), key="key", max_items=_MOST
    )

    def holds(self, found: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels is selected."""
        return self.match_labels.items() <= found.items() and all(one.holds(found) for one in self.match_expressions)

    def bad_name(self) -> str | None:
        """Return a name in `matchLabels` that is not a valid label name; None if all are valid. A schema cannot check a
        map's keys.
        """
        return next((name for name in self.match_labels if re.search(_NAME[:-1] + r"\Z", name) is None), None)

    def __str__(self) -> str:
        """Return the selector as the Kubernetes API takes it in a query: `app=vllm,tier in (a,b)`."""
        return ",".join([*(f"{name}={value}" for name, value in self.match_labels.items()), *map(str, self.match_expressions)])
