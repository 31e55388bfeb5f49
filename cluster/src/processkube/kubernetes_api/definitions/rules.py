"""Checks the rules of a definition before any object exists: whether they compile, their type and their maximum cost.

A rule's estimated cost is multiplied by the number of times its data can occur: the product of `maxItems` and
`maxProperties` of the schemas around it. If a limit is not set, the number of items that fit into the largest request
is used. The module follows k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from processkube.kubernetes_api.cel.checking import Checked, check_expression
from processkube.kubernetes_api.cel.costs import bounded
from processkube.kubernetes_api.cel.rules import InvalidRule, parsed, uses_old_self
from processkube.kubernetes_api.cel.types import LARGEST_REQUEST_BYTES, CelType, declared_type
from processkube.kubernetes_api.objects.errors import Cause, forbidden_value, invalid_value
from processkube.kubernetes_api.objects.objects import Object, encode
from processkube.kubernetes_api.schemas.schemas import LIST_TYPE, RULES, item_schema

LARGEST_RULE_COST = 10_000_000
LARGEST_DEFINITION_COST = 100_000_000

_SHOWN_RULES = 4
_REMEDY = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A schema on the way from the root to a rule.

    - `times`: the maximum number of times that its data can occur; None = without limit.
    - `uncorrelated`: the path of the outermost list around it whose items have no keys, so that an item cannot be
      matched with its old value; None if there is no such list.
    """

    schema: Object
    path: str
    times: int | None = 1
    root: bool = False
    uncorrelated: str | None = None

    def below(self, schema: Object, step: str, *, uncorrelated: bool = False) -> _Node:
        most = _most_children(self.schema)
        times = None if self.times is None or most is None else bounded(self.times * most)
        split = self.uncorrelated or (self.path if uncorrelated else None)
        return replace(self, schema=schema, path=f"{self.path}.{step}", times=times, root=False, uncorrelated=split)


@dataclass(slots=True, kw_only=True)
class _Budget:
    total: int = 0
    dear: list[tuple[int, str]] = field(default_factory=list)

    def spend(self, path: str, cost: int) -> None:
        self.total = bounded(self.total + cost)
        if cost >= LARGEST_DEFINITION_COST // 100:
            self.dear.append((cost, path))


def rule_faults(schema: Object, path: str, known: Sequence[Cause]) -> list[Cause]:
    """Return the faults of all rules of a schema.

    Rules at a node are skipped if the schema has `known` faults at this node or below it, because its types would be
    meaningless.
    """
    budget = _Budget()
    causes = list(_faults(_Node(schema=schema, path=path, root=True), budget, [cause.field for cause in known]))
    if budget.total > LARGEST_DEFINITION_COST:
        detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        causes += [forbidden_value(at, detail) for _, at in sorted(budget.dear, key=lambda one: -one[0])[:_SHOWN_RULES]]
        name = f"{RULES} estimated rule cost total for entire OpenAPIv3 schema"
        causes.append(forbidden_value(path, _too_dear(name, budget.total, LARGEST_DEFINITION_COST)))
    return causes


def _faults(node: _Node, budget: _Budget, wrong: Sequence[str]) -> Iterator[Cause]:
    for child in _children(node):
        yield from _faults(child, budget, wrong)
    rules = node.schema.get(RULES, ())
    if not rules or any(at.startswith(node.path) for at in wrong):
        return
    seen = declared_type(node.schema, root=node.root)
    if seen is None:
        return
    for index, rule in enumerate(rules):
        yield from _faults_of_rule(rule, f"{node.path}.{RULES}[{index}]", node, seen, budget)


def _children(node: _Node) -> Iterator[_Node]:
    schema = node.schema
    for name, inner in schema.get("properties", {}).items():
        yield node.below(inner, f"properties[{name}]")
    if isinstance(extra := schema.get("additionalProperties"), dict):
        yield node.below(extra, "additionalProperties")
    if (items := item_schema(schema)) is not None:
        yield node.below(items, "items", uncorrelated=schema.get(LIST_TYPE) != "map")


def _most_children(schema: Object) -> int | None:
    """Return the maximum number of values that a child schema can have within one value of this schema; None = without
    limit.
    """
    kind, most = schema.get("type"), None
    if kind == "array":
        most = schema.get("maxItems")
    elif kind == "object" and schema.get("additionalProperties") is not None:
        most = schema.get("maxProperties")
    else:
        return 1
    return None if most is None else max(0, int(most))


def _faults_of_rule(rule: Object, path: str, node: _Node, seen: CelType, budget: _Budget) -> Iterator[Cause]:
    at = f"{path}.rule"
    try:
        tree = parsed(str(rule.get("rule", "")))
        checked = check_expression(tree, str(rule.get("rule", "")), seen)
    except InvalidRule as error:
        yield _of_rule(at, rule, str(error))
        return
    if checked.problems:
        yield _of_rule(at, rule, "compilation failed: " + "\n".join(checked.problems))
        return
    if checked.type.kind not in {"bool", "unknown"}:
        yield _of_rule(at, rule, "cel expression must evaluate to a bool")
        return
    yield from _costs(at, "estimated rule cost", checked, node, seen, budget)
    if rule.get("messageExpression"):
        yield from _faults_of_message(rule, path, seen, budget)
    if uses_old_self(tree) and node.uncorrelated is not None:
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {node.uncorrelated}"
        yield invalid_value(at, rule["rule"], detail)
    if rule.get("optionalOldSelf") is not None:
        told = "is not supported by this server" if uses_old_self(tree) else "may not be set if oldSelf is not used in rule"
        yield invalid_value(f"{path}.optionalOldSelf", rule["optionalOldSelf"], told)


def _faults_of_message(rule: Object, path: str, seen: CelType, budget: _Budget) -> Iterator[Cause]:
    at, text = f"{path}.messageExpression", str(rule["messageExpression"])
    try:
        checked = check_expression(parsed(text), text, seen)
    except InvalidRule as error:
        yield _of_rule(at, rule, f"messageExpression {error}")
        return
    if checked.problems:
        yield _of_rule(at, rule, "messageExpression compilation failed: " + "\n".join(checked.problems))
    elif checked.type.kind not in {"string", "unknown"}:
        yield _of_rule(at, rule, "messageExpression must evaluate to a string")
    else:
        if checked.cost > LARGEST_RULE_COST:
            yield forbidden_value(at, _too_dear("estimated messageExpression cost", checked.cost, LARGEST_RULE_COST))
        budget.spend(at, checked.cost)


def _costs(at: str, name: str, checked: Checked, node: _Node, seen: CelType, budget: _Budget) -> Iterator[Cause]:
    times = node.times if node.times is not None else LARGEST_REQUEST_BYTES // (seen.min_bytes + 1)
    cost = bounded(checked.cost * times)
    if cost > LARGEST_RULE_COST:
        yield forbidden_value(at, _too_dear(name, cost, LARGEST_RULE_COST))
    budget.spend(at, cost)


def _too_dear(name: str, cost: int, limit: int) -> str:
    times = cost / limit
    factor = "more than 100x" if times > 100 else f"{times:f}x" if times < 1.5 else f"{times:.1f}x"
    return f"{name} exceeds budget by factor of {factor} {_REMEDY}"


def _of_rule(path: str, rule: Object, detail: str) -> Cause:
    """Return a fault of a rule. As in the real server, its message contains the whole rule as Go prints it."""
    shown = {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    text = encode(shown).decode()
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Cause(reason="FieldValueInvalid", field=path, message=f"Invalid value: {text}: {detail}")
