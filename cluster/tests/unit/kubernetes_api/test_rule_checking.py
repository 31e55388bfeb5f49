"""Types and costs of rules.

Every figure and sentence here is the result of the real server's compiler (1.36) for the same rule and schema.
"""

from __future__ import annotations

from typing import Any

import pytest

from processkube.kubernetes_api.cel.checking import Checked, check_expression
from processkube.kubernetes_api.cel.rules import parsed
from processkube.kubernetes_api.cel.types import declared_type


def text(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["a"],
    "properties": {
        "a": {"type": "integer"},
        "d": {"type": "number"},
        "t": {"type": "boolean"},
        "s": text(),
        "ss": text(maxLength=20),
        "en": text(enum=["aa", "bbbb"]),
        "l": {"type": "array", "items": text()},
        "lb": {"type": "array", "maxItems": 10, "items": text(maxLength=5)},
        "li": {"type": "array", "maxItems": 7, "items": {"type": "integer"}},
        "lo": {
            "type": "array",
            "maxItems": 5,
            "items": {"type": "object", "required": ["n"], "properties": {"n": text(maxLength=9), "k": {"type": "integer"}, "in": text()}},
        },
        "m": {"type": "object", "maxProperties": 6, "additionalProperties": text(maxLength=8)},
        "mo": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "object", "properties": {"x": text(maxLength=3)}}},
        "ios": {"x-kubernetes-int-or-string": True},
        "o": {
            "type": "object",
            "properties": {"p": {"type": "integer"}, "deep": {"type": "object", "properties": {"z": {"type": "boolean"}}}},
        },
        "fd": text(format="duration"),
        "ft": text(format="date-time"),
        "x-y": {"type": "integer"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
    },
}


def checked(rule: str) -> Checked:
    root = declared_type(SCHEMA)
    assert root is not None
    return check_expression(parsed(rule), rule, root)


COSTS = {
    "self.a > 0": 3,
    "self.d >= 0.01": 3,
    "self.a < self.d": 5,
    "self == oldSelf": 2,
    "self.s == self.ss": 12,
    "self.en == 'aa'": 3,
    "self.en in ['aa', 'cc']": 14,
    "self.s in self.l": 1048579,
    "self.t ? self.ss == 'a' : self.s == 'b'": 5,
    "has(self.o.p) ? self.o.p > 3 : true": 6,
    "!has(self.o.deep.z) || self.o.deep.z": 8,
    "self.x__dash__y > 3": 3,
    "self.m['k'] == 'v'": 4,
    "'k' in self.m && self.m['k'].contains('z')": 10,
    "self.m.all(k, k.startsWith('a') && self.m[k] != k)": 63,
    "self.mo.all(k, self.mo[k].x == 'abc')": 39,
    "self.l.all(x, x.startsWith('a'))": 5242878,
    "self.lb.all(x, self.lb.exists(y, x == y))": 863,
    "self.l.exists_one(x, x == self.s)": 329858626354,
    "self.l.filter(x, x != 'q').size() > 2": 15728640,
    "self.li.map(x, x > 1, x * 2).size() == 3": 127,
    "self.lo.map(x, x.n).all(y, self.lo.exists(z, z.n == y))": 289,
    "self.lo.all(x, self.lo.all(y, self.lo.all(z, x.n == y.n || y.n == z.n)))": 2558,
    "self.lo.all(x, x.__in__ == 'q')": 33,
    "self.ss.matches('^(a|b)*$')": 20,
    "self.ss.replace('a', 'bb') == 'c'": 19,
    "self.ss.split(',').all(x, x == 'a')": 339,
    "self.lb.join(',') == 'a'": 24,
    "self.lb.isSorted() && self.li.sum() > 3": 42,
    "self.ft + self.fd > self.ft": 8,
    "string(self.a) == '1' && int(self.s) > 3": 8,
    "[self.s, self.ss].all(x, x.size() < 5)": 27,
    "(self.t ? self.lb : self.l).all(x, x == 'a')": 4194305,
    "quantity(self.ss).isLessThan(quantity('1Gi'))": 12,
    "dyn(self.l).all(x, x == 'a')": 4194304,
}


@pytest.mark.parametrize(("rule", "cost"), COSTS.items())
def test_a_rule_costs_what_the_real_server_estimates(rule: str, cost: int) -> None:
    found = checked(rule)
    assert found.problems == ()
    assert found.type.kind in {"bool", "unknown"}
    assert found.cost == cost


PROBLEMS = {
    "self.b > 0": "5: undefined field 'b'",
    "self.a.b > 0": "7: type 'int' does not support field selection",
    "self.free.z == 1": "10: undefined field 'z'",
    "self.any == 1": "5: undefined field 'any'",
    "has(self.nope)": "4: undefined field 'nope'",
    "has(self)": "5: invalid argument to has() macro",
    "self.a + 'x' == 's'": "8: found no matching overload for '_+_' applied to '(int, string)'",
    "self.a == self.d": "8: found no matching overload for '_==_' applied to '(int, double)'",
    "self.a == 'x'": "8: found no matching overload for '_==_' applied to '(int, string)'",
    "self.a == null": "8: found no matching overload for '_==_' applied to '(int, null)'",
    "self.s < self.a": "8: found no matching overload for '_<_' applied to '(string, int)'",
    "self.t && self.a": "15: expected type 'bool' but found 'int'",
    "!self.a": "1: found no matching overload for '!_' applied to '(int)'",
    "self.l.all(x, x)": "15: expected type 'bool' but found 'string'",
    "self.a.all(x, true)": "5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
    "self.lo.map(x, x.k, x.n).size() == 1": "12: found no matching overload for '_?_:_' applied to '(int, list(string), list(string))'",
    "self.a in self.l": "8: found no matching overload for '@in' applied to '(int, list(string))'",
    "self.li['a'] == 1": "8: found no matching overload for '_[_]' applied to '(list(int), string)'",
    "self.ss.startsWith(1)": "19: found no matching overload for 'startsWith' applied to 'string.(int)'",
    "self.a.size() > 1": "12: found no matching overload for 'size' applied to 'int.()'",
    "[1, 'a'].size() > 1": "5: expected type 'int' but found 'string'",
    "undeclared > 1": "1: undeclared reference to 'undeclared' (in container '')",
    "foo(self.a)": "4: undeclared reference to 'foo' (in container '')",
}


@pytest.mark.parametrize(("rule", "problem"), PROBLEMS.items())
def test_a_wrong_rule_is_told_where_and_why(rule: str, problem: str) -> None:
    assert checked(rule).problems[0].startswith(f"ERROR: <input>:1:{problem}\n | {rule}\n")


@pytest.mark.parametrize(
    "rule", ["self.ios == 3", "self.ios > 'a' || self.ios < 5", "dyn(self.a) == 'x'", "self.ft.getFullYear() > quantity('1')"]
)
def test_what_only_evaluation_can_tell_is_not_refused(rule: str) -> None:
    assert checked(rule).problems == ()


@pytest.mark.parametrize(("rule", "name"), [("isIP(self.s)", "isIP"), ("!format.dns1123Label().validate(self.s)", "format")])
def test_what_this_server_lacks_is_named_as_such(rule: str, name: str) -> None:
    problems = checked(rule).problems
    assert f"'{name}' is not supported by this server" in problems[0]
    assert not any("undeclared" in problem for problem in problems)
