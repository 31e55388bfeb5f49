"""Validation rules of custom resources (`x-kubernetes-validations`), which are compiled once and evaluated at each
write.

`definitions.rules` checks their types and costs when a definition is created. Unlike the real server, this module does
not limit the cost of an evaluation, and does not support optional values (`optionalOldSelf`, `?.`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, cast

import celpy
import lark
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from processkube.kubernetes_api.cel.functions import FUNCTIONS
from processkube.kubernetes_api.cel.parts import innermost
from processkube.kubernetes_api.cel.values import to_cel
from processkube.kubernetes_api.objects.errors import Cause, duplicate_value, forbidden_value, invalid_value, required_value
from processkube.kubernetes_api.objects.objects import Object, canonical
from processkube.kubernetes_api.schemas.schemas import RULES, item_schema, key_of, list_keys
from processkube.kubernetes_api.schemas.validation import ABSENT

_SELVES = frozenset({"self", "oldSelf"})
_PASSED_KEPT = 1000


class InvalidRule(ValueError):
    """Raised for a rule that cannot be compiled. The message names the fault in the rule's text."""


class _Runner(Protocol):
    def evaluate(self, context: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One compiled rule of a schema."""

    text: str
    runner: _Runner
    is_transition: bool
    reads: frozenset[str] | None
    """Names of the members of `self` and `oldSelf` that the rule and its message read; None if they may read all
    members.
    """
    message: str
    message_runner: _Runner | None
    reason: str
    field_path: str


@dataclass(slots=True, kw_only=True)
class RuleTree:
    """The rules of a schema and of the schemas below it. Schemas without rules at or below them are left out."""

    schema: Object
    rules: tuple[Rule, ...] = ()
    properties: dict[str, RuleTree] = field(default_factory=dict)
    additional: RuleTree | None = None
    items: RuleTree | None = None
    passed: dict[str, None] = field(default_factory=dict)
    """The values that passed all rules here most recently, oldest first. Rules depend only on the value, so an equal
    value need not be evaluated again.
    """


def compile_rules(schema: Object, path: str = "") -> RuleTree | None:
    """Return the compiled rules of a schema; None if it has no rules. Raises InvalidRule, which names the rule."""
    tree = RuleTree(schema=schema, rules=tuple(_compile(rule) for rule in schema.get(RULES, ())))
    for name, inner in schema.get("properties", {}).items():
        if below := compile_rules(inner, f"{path}.{name}"):
            tree.properties[name] = below
    if isinstance(extra := schema.get("additionalProperties"), dict):
        tree.additional = compile_rules(extra, path)
    if (items := item_schema(schema)) is not None:
        tree.items = compile_rules(items, path)
    return tree if tree.rules or tree.properties or tree.additional or tree.items else None


def check_rules(value: Any, tree: RuleTree, path: str = "", old: Any = ABSENT) -> list[Cause]:
    """Return one cause for each rule that the value violates.

    A part of the value that equals its old value is not evaluated again (the real server calls this ratcheting).
    """
    if value is None or (old is not ABSENT and old == value):
        return []
    causes = _check_here(value, tree, path, old) if tree.rules else []
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, member in value.items():
            if name in tree.properties:
                inner = f"{path}.{name}" if path else name
                causes += check_rules(member, tree.properties[name], inner, before.get(name, ABSENT))
            elif tree.additional is not None:
                causes += check_rules(member, tree.additional, f"{path}[{name}]", before.get(name, ABSENT))
    elif isinstance(value, list) and tree.items is not None:
        keys = list_keys(tree.schema)
        before = {canonical(list(key_of(item, keys, tree.schema))): item for item in old} if keys and isinstance(old, list) else {}
        for index, item in enumerate(value):
            counterpart = before.get(canonical(list(key_of(item, keys, tree.schema))), ABSENT)
            causes += check_rules(item, tree.items, f"{path}[{index}]", counterpart)
    return causes


def _check_here(value: Any, tree: RuleTree, path: str, old: Any) -> list[Cause]:
    visible = _visible_at_root if not path else _unchanged
    read = {"self": _read_by(tree.rules, visible(value))}
    if old is not ABSENT and old is not None:
        read["oldSelf"] = _read_by(tree.rules, visible(old))
    key = canonical(read)
    if key in tree.passed:
        return []
    causes = _evaluate(value, tree, path, {name: to_cel(one, tree.schema) for name, one in read.items()})
    if not causes:
        tree.passed[key] = None
        if len(tree.passed) > _PASSED_KEPT:
            del tree.passed[next(iter(tree.passed))]
    return causes


def _read_by(rules: tuple[Rule, ...], value: Any) -> Any:
    """Return the members of a value that these rules read; the whole value if they may read all members."""
    if not isinstance(value, dict) or any(rule.reads is None for rule in rules):
        return value
    names = frozenset[str]().union(*(rule.reads for rule in rules if rule.reads is not None))
    return {name: member for name, member in value.items() if name in names}


def _evaluate(value: Any, tree: RuleTree, path: str, context: Mapping[str, Any]) -> list[Cause]:
    causes = []
    for rule in tree.rules:
        if rule.is_transition and "oldSelf" not in context:
            continue
        at = path + (rule.field_path if path else rule.field_path.lstrip("."))
        try:
            if not rule.runner.evaluate(context):
                causes.append(_fault(rule, at, value, _message(rule, context)))
        except (CELEvalError, TypeError, ValueError) as error:  # cel-python's macros raise Python's errors, too
            causes.append(invalid_value(at, value, f"{_reason_of(error)} evaluating rule: {rule.message or rule.text}"))
    return causes


def _visible_at_root(item: Object) -> Object:
    """Return the object with only `name` and `generateName` in its metadata. Rules cannot see other metadata."""
    names = {name: value for name, value in item.get("metadata", {}).items() if name in {"name", "generateName"}}
    return {**item, "metadata": names}


def _unchanged(value: Any) -> Any:
    return value


def _fault(rule: Rule, path: str, value: Any, message: str) -> Cause:
    match rule.reason:
        case "FieldValueRequired":
            return required_value(path, message)
        case "FieldValueForbidden":
            return forbidden_value(path, message)
        case "FieldValueDuplicate":
            return duplicate_value(path, value)
    if isinstance(value, dict | list):
        return Cause(reason="FieldValueInvalid", field=path, message=f"Invalid value: {message}")
    return invalid_value(path, value, message)


def _message(rule: Rule, context: Mapping[str, Any]) -> str:
    if rule.message_runner is not None:
        try:
            return str(rule.message_runner.evaluate(context))
        except (CELEvalError, TypeError, ValueError):
            pass  # the real server, too, falls back to the fixed message
    return rule.message or f"failed rule: {rule.text}"


def _reason_of(error: Exception) -> str:
    cause = error.args[2] if len(error.args) > 2 and error.args[2] else ()
    if error.args[1:2] == (KeyError,) or "no such member" in str(error.args[0]):
        return str(error.args[0]).replace("no such member in mapping", "no such key").replace("'", "")
    return f"{error.args[0]}{f' {cause[0]}' if cause else ''}".split(" (in activation")[0]


def _compile(rule: Object) -> Rule:
    text = str(rule.get("rule", ""))
    if rule.get("optionalOldSelf"):
        raise InvalidRule(f"rule {text!r}: optionalOldSelf is not supported by this server; test has() on self instead")
    runner = _program(text)
    expression = str(rule.get("messageExpression", ""))
    reads = [members_read(parsed(one)) for one in (text, expression) if one]
    return Rule(
        text=text,
        runner=runner,
        is_transition=uses_old_self(parsed(text)),
        reads=None if None in reads else frozenset[str]().union(*(names for names in reads if names is not None)),
        message=str(rule.get("message", "")).strip(),
        message_runner=_program(expression) if expression else None,
        reason=str(rule.get("reason", "FieldValueInvalid")),
        field_path=str(rule.get("fieldPath", "")),
    )


@cache
def _environment() -> celpy.Environment:
    return celpy.Environment()


@cache
def parsed(text: str) -> lark.Tree[Any]:
    """Return the syntax tree of an expression. Raises InvalidRule."""
    try:
        return _environment().compile(text)
    except CELParseError as error:
        if re.search(r"[.\[{]\s*\?", text):
            raise InvalidRule("compilation failed: optional values (`.?`, `[?`) are not supported by this server; use has()") from error
        line, column = error.line or 1, error.column or 1
        shown = (text.splitlines() or [""])[min(line, len(text.splitlines() or [""])) - 1]
        raise InvalidRule(
            f"compilation failed: ERROR: <input>:{line}:{column}: Syntax error\n | {shown}\n | {'.' * (column - 1)}^"
        ) from error


def uses_old_self(tree: lark.Tree[Any]) -> bool:
    """Return whether a rule uses `oldSelf`, the value before the write."""
    return any(str(node.children[0]) == "oldSelf" for node in tree.find_data("ident"))


def members_read(tree: lark.Tree[Any]) -> frozenset[str] | None:
    """Return the names of the members of `self` and `oldSelf` that an expression reads. Return None if it uses `self`
    or `oldSelf` as a whole.

    Return None also if a member's name is written with an escape, because the escaped name is not the member's name in
    the object.
    """
    used = sum(str(node.children[0]) in _SELVES for node in tree.find_data("ident"))
    members = [
        str(node.children[1])
        for node in tree.find_data("member_dot")
        if (object_ := innermost(cast("lark.Tree[Any]", node.children[0]))).data == "ident" and str(object_.children[0]) in _SELVES
    ]
    if used > len(members) or any(name.startswith("__") for name in members):
        return None
    return frozenset(members)


@cache
def _program(text: str) -> _Runner:
    functions: Any = dict(FUNCTIONS)
    return cast("_Runner", _environment().program(parsed(text), functions))
