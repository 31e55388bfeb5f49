"""The CRD and `read` accept and refuse the same specs.

Each bound, pattern and rule is declared once and judged twice, by CEL and by Python.
"""

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from functools import cache, partial
from typing import Any, TypeVar, cast

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from fairlead.durations import format_duration
from fairlead.engine_specs import EngineSpec
from fairlead.errors import InvalidInput
from fairlead.forecasts.calendars import CalendarDay, parse_day
from fairlead.pool_roles import PoolRoleSpec
from fairlead.pools import PoolSpec
from fairlead.role_specs import RoleSpec, TurnsSpec
from fairlead.rollout_specs import CanarySpec, RolloutSpec
from fairlead.schedules.crons import parse_cron
from fairlead.schedules.specs import ScheduledRole, ScheduleSpec
from fairlead.schedules.zones import parse_zone
from fairlead.schemas.openapi import structural_schema
from fairlead.schemas.reading import read
from fairlead.schemas.shapes import Rule, Shape, document_name, shape_of
from fairlead.schemas.writing import differences, written
from fairlead.selectors import ExpressionSpec, SelectorSpec
from fairlead.tables import KvTransferFacts, TaskTarget
from fairlead_testing.examples import examples, search
from processkube.kubernetes_api.cel.rules import RuleTree, check_rules, compile_rules
from processkube.kubernetes_api.schemas.schemas import apply_defaults, prune
from processkube.kubernetes_api.schemas.validation import validate

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}, "metadata": {}}
WRONG_TEMPLATES: tuple[Any, ...] = (
    {"spec": {"containers": [{"name": "engine"}]}},
    {"spec": {"containers": [{"name": "engine", "image": ""}]}},
    {"spec": {"containers": []}},
    {"spec": {"containers": ["engine"]}},
    {"spec": "x"},
    {},
    {**TEMPLATE, "metadata": {"annotations": {"prometheus.io/port": 8000}}},
    {**TEMPLATE, "metadata": {"labels": {"on": True}}},
)
MARKED: tuple[dict[str, Any], ...] = (
    {},
    {"labels": {"app": "x"}, "annotations": {"fairlead.dev/weight": "2", "fairlead.dev/kv-revision": "r"}},
    {"labels": {"fairlead.dev/group-of": "x"}},
    {"annotations": {"fairlead.dev/drain": "true"}},
)
"""Labels and annotations of templates, which only some may have."""
WRONG: tuple[Any, ...] = ("3", True, 2.5, -7, [], {}, "two words", "", 10**13)
"""Values that fit few fields."""


TEXTS: dict[str, tuple[str, ...]] = {
    "instant": ("2026-12-01T07:00:00Z", "2026-12-01T07:00:00+01:00"),
    "cron": ("0 8 * * 1-5", "@daily", "*/15 8-17 ? jan,JUL MON-fri", "00 09 31 * *", "0 0 30 2 1"),
    "day": ("2026-12-25", "2028-02-29"),
    "zone": ("UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"),
}
WRONG_CRONS = (
    "61 * * * *",
    "0 24 * * *",
    "0 0 0 * *",
    "0 0 * 13 *",
    "0 0 * * 7",
    "*/0 * * * *",
    "0 8 * *",
    "@reboot",
    "0 0 30 2 *",
    "0 0 31 apr ?",
)
CONVERTED: dict[Any, str] = {parse_cron: "cron", parse_day: "day", parse_zone: "zone"}
"""Functions that convert a text, and texts that each can convert."""


Making = TypeVar("Making", bound=Callable[..., Any])


def kept(make: Making) -> Making:
    """Make each strategy once, as Hypothesis takes longer to examine a new strategy than to draw from it."""
    return cast("Making", cache(make))


@st.composite
def values(draw: st.DrawFn, shape: Shape, faulty: bool) -> Any:
    """Return values of a field, often at its bounds; if it may be `faulty`, sometimes invalid ones."""
    if faulty and draw(st.integers(0, 9)) == 0:
        beyond = [
            bound + side for bound, side in ((shape.minimum, -1), (shape.maximum, 1)) if bound is not None and shape.kind != "duration"
        ]
        others = WRONG_TEMPLATES if shape.kind == "verbatim" else (*beyond, *WRONG)
        return copy.deepcopy(draw(st.sampled_from(others)))
    if shape.kind == "object" and shape.of is not None:
        return draw(documents(shape.of, faulty))
    if shape.kind == "list" and shape.of is not None:
        return draw(lists(shape.of, shape.list_key, min(shape.max_items, MOST_ITEMS), faulty))
    if shape.kind == "boolean":
        return draw(st.booleans())
    if shape.kind == "free":
        return draw(st.dictionaries(st.sampled_from("ab"), st.integers(-(2**63), 2**63 - 1), max_size=1))
    if shape.kind == "verbatim":
        return {**copy.deepcopy(TEMPLATE), "metadata": copy.deepcopy(draw(st.sampled_from(MARKED)))}
    if shape.kind == "texts":
        fitting_texts = tuple(one for one in (*TEXTS["instant"], "blue") if re.search(shape.pattern or "", one))
        return draw(st.lists(st.sampled_from(fitting_texts + ("not so",) * faulty), max_size=2))
    if shape.kind == "labels":
        return draw(st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["vllm", ""] + ["not so", 1] * faulty), max_size=2))
    if shape.kind == "string" and shape.convert in CONVERTED:
        return draw(st.sampled_from(TEXTS[CONVERTED[shape.convert]] + WRONG_CRONS * faulty))
    if shape.kind == "string":
        some = ("m", "/a", "a:b", "x-y", "EUR", "2.20", "m\n", "x" * 300)
        fitting = some if faulty else [one for one in some[:6] if shape.pattern and re.search(shape.pattern, one)]
        return draw(st.sampled_from(shape.enum or fitting))
    least, most = shape.minimum, shape.maximum
    assert least is not None
    if shape.kind == "duration":
        assert most is not None
        return format_duration(draw(st.floats(least + 1e-6, min(most, least + 5000))))
    edge = draw(st.sampled_from([least, least + 1, least + 2, least + 3, most or least]))
    return int(edge) if shape.kind == "integer" else edge


MOST_ITEMS = 2
"""The most items of a generated list."""


@kept
def lists(of: type[Any], key: str, most: int, faulty: bool) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return values of a field that is a list, with too many items if it may be faulty."""
    if faulty:
        return st.lists(documents(of, True), min_size=1, max_size=most + 1)
    fit = documents(of, False).filter(partial(is_read, of))
    return st.lists(fit, min_size=1, max_size=most, unique_by=lambda item: item[key])


@kept
def members(of: type[Any], name: str, faulty: bool) -> st.SearchStrategy[Any]:
    """Return values of the fields of a class, by attribute name."""
    return values(next(shape_of(item) for item in fields(of) if item.name == name), faulty)


@st.composite
def pools_with_windows(draw: st.DrawFn) -> dict[str, Any]:
    """Return pools whose only possible fault is what their schedule says of a role or of early rejection."""
    bounds = draw(st.sampled_from(["replicas", "minReplicas", "maxReplicas"]))
    role = {"name": draw(st.sampled_from(["both", "prefill"])), bounds: draw(st.integers(1, 5))}
    change: dict[str, Any] = draw(st.sampled_from([{"roles": [role]}, {"earlyRejection": {"mode": "AfterPrefill"}}]))
    schedule = {"name": "day", "cron": "0 8 * * *", "duration": "10h", **change}
    roles = [{"name": "both", "minReplicas": 2, "maxReplicas": 4}]
    return {"model": "m", "replicas": 3, "roles": roles, "scaling": {"schedules": [schedule]}}


@st.composite
def pools_that_scale(draw: st.DrawFn) -> dict[str, Any]:
    """Return pools whose only possible fault is the sum of the least numbers of their roles."""
    roles = [{"name": name, "minReplicas": draw(st.integers(0, 2))} for name in ("prefill", "decode")]
    return {"model": "m", "roles": roles, "scaling": {"mode": draw(st.sampled_from(["Fixed", "SLO", "Advise"]))}}


@st.composite
def pools_of_an_engine(draw: st.DrawFn) -> dict[str, Any]:
    """Return pools whose only possible fault is their roles, which not every engine takes."""
    names, warm = draw(st.sampled_from([("prefill", "decode"), ("both",)])), draw(st.sampled_from([{}, {"warm": {"asleep": 1}}]))
    roles = [{"name": name, "template": copy.deepcopy(TEMPLATE), **warm} for name in names]
    transfers: dict[str, Any] = draw(st.sampled_from([{}, {"kvTransfer": {}}]))
    return {"model": "m", "roles": roles, "engine": {"type": draw(st.sampled_from(["vllm", "sglang"])), **transfers}}


@st.composite
def roles_that_adopt(draw: st.DrawFn) -> dict[str, Any]:
    """Return roles that select pods of a workload or scale it, with one fault at most."""
    role: dict[str, Any] = {
        "name": draw(st.sampled_from(["both", "prefill"])),
        "selector": {"matchLabels": {"app": "vllm"}},
        "scaleTargetRef": {"name": "vllm"},
        "minReplicas": 1,
        "replicas": 1,
        **draw(st.sampled_from([{}, {"warm": {"asleep": 1}}])),
    }
    for left_out in draw(st.sets(st.sampled_from(["selector", "scaleTargetRef", "minReplicas", "replicas"]), max_size=2)):
        del role[left_out]
    return role


@st.composite
def pools_that_adopt(draw: st.DrawFn) -> dict[str, Any]:
    """Return pools whose roles select their pods, with one fault at most."""
    selector = {"matchLabels": {"app": "vllm"}}
    names = draw(st.sampled_from([("both",), ("prefill", "decode")]))
    roles: list[dict[str, Any]] = [{"name": name, "selector": selector} for name in names]
    replicas: dict[str, Any] = {}
    if draw(st.booleans()):
        for role in roles:
            role |= {"scaleTargetRef": {"name": "vllm"}, "minReplicas": 1, **({} if role["name"] == "both" else {"replicas": 1})}
        replicas = {"replicas": draw(st.integers(1, 2))}
    odd = draw(st.integers(0, 5))
    if odd == 0:
        del roles[0]["selector"]
    elif odd == 1:
        roles[0] = {"name": names[0], "selector": selector}
    engine = {"type": draw(st.sampled_from(["simulated", "vllm"]))}
    schedule = {"name": "day", "cron": "0 8 * * *", "duration": "10h"}
    beside: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {"replicas": 2},
                {"engine": {"simulated": {}}},
                {"scaling": {"mode": "SLO"}},
                {"ratio": {"mode": "Auto", "method": "Replace"}},
                {"scaling": {"schedules": [{**schedule, "roles": [{"name": names[0], "replicas": 2}]}]}},
                {"scaling": {"schedules": [{**schedule, "ratio": {"band": 0.5}}]}},
                {"scaling": {"schedules": [{**schedule, "slo": {"ttft": "9s"}}]}},
                {"rollout": draw(st.sampled_from([{"maxSurge": 2}, {"paused": True}, {"regression": {"window": "5s"}}, {"maxSurge": 1}]))},
            ]
        )
    )
    return {"model": "m", "roles": roles, "engine": engine, **replicas, **beside}


TURNS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"claims": st.lists(st.sampled_from(["gpu-0", "gpu-1"]), max_size=3)}
) | st.just({})
"""Sections `turns`, with or without a fault."""


@st.composite
def roles_that_take_turns(draw: st.DrawFn) -> dict[str, Any]:
    """Return roles that take turns on shared devices, with two faults at most."""
    role = {"name": draw(st.sampled_from(["both", "both", "decode"])), "template": copy.deepcopy(TEMPLATE)}
    sizes = {"maxReplicas": draw(st.integers(1, 3)), "nodes": draw(st.integers(1, 2))}
    return {**role, "warm": {"asleep": draw(st.integers(0, 2)), "turns": draw(TURNS)}, **sizes}


@st.composite
def pools_that_take_turns(draw: st.DrawFn) -> dict[str, Any]:
    """Return pools that take turns on shared devices, with few faults."""
    rollout = {"maxSurge": draw(st.integers(0, 1)), "maxUnavailable": 1}
    return {"model": "m", "roles": [draw(roles_that_take_turns())], "rollout": rollout, "engine": {"type": "vllm"}, "replicas": 1}


@st.composite
def pools_with_targets_of_tasks(draw: st.DrawFn) -> dict[str, Any]:
    """Return pools whose only possible fault is the classes of their targets of tasks."""
    names = st.sampled_from(["agents", "default", "batch"])
    task = [{"name": name, "turnTime": "9m"} for name in draw(st.lists(names, unique=True, max_size=2))]
    classes = draw(st.sampled_from([{}, {"priorityClasses": [{"name": "agents", "priority": 5}]}]))
    roles = [{"name": "both", "template": copy.deepcopy(TEMPLATE)}]
    return {"model": "m", "roles": roles, "slo": {"task": task}, **classes, **draw(st.sampled_from([{}, {"gateway": {}}]))}


@kept
@st.composite
def documents(draw: st.DrawFn, of: type[Any], faulty: bool, rule: Rule | None = None) -> dict[str, Any]:
    """Return documents of a class, made from its shapes, so that new fields are covered without a change here.

    With a `rule`, only the fields that it names vary.
    """
    made = {}
    for item in fields(of):
        shape = shape_of(item)
        named = rule is None or re.search(rf"\bself\.{document_name(item)}\b", rule.cel)
        if shape.default is MISSING or (named and draw(st.booleans())):
            made[document_name(item)] = "m" if item.name == "model" and not faulty else draw(members(of, item.name, faulty))
    if faulty and draw(st.integers(0, 19)) == 0:
        made["unknown"] = 1
    return made


def refused_by_kubernetes(document: dict[str, Any], schema: dict[str, Any], rules: RuleTree | None) -> list[str]:
    """Return a strict API's refusals of a spec at its creation: unknown fields, then the schema, then CEL."""
    spec = copy.deepcopy(document)
    unknown = prune(spec, schema)
    apply_defaults(spec, schema)
    causes = validate(spec, schema, "spec")
    if not causes and rules is not None:
        causes = check_rules(spec, rules, "spec")
    return [*unknown, *(cause.message for cause in causes)]


def refused_by_read(of: type[Any], document: dict[str, Any]) -> str | None:
    try:
        read(of, document, "spec")
    except InvalidInput as refused:
        return str(refused)
    return None


def is_read(of: type[Any], document: dict[str, Any]) -> bool:
    return refused_by_read(of, document) is None


class Judges:
    """The schema of a class with its rules, and the class itself."""

    def __init__(self, of: type[Any]) -> None:
        self.of = of
        self.schema = structural_schema(of)
        self.rules = compile_rules(self.schema)

    def disagreement(self, document: dict[str, Any]) -> str | None:
        """Return both verdicts if only one judge takes the document."""
        kubernetes = refused_by_kubernetes(document, self.schema, self.rules)
        python = refused_by_read(self.of, document)
        return None if bool(kubernetes) == (python is not None) else f"the API: {kubernetes or 'taken'}; read: {python or 'taken'}"


ADOPTING = Judges(PoolSpec)

RULED = (
    CalendarDay, CanarySpec, RolloutSpec, PoolSpec, EngineSpec, KvTransferFacts, RoleSpec, PoolRoleSpec, ScheduleSpec, ScheduledRole, SelectorSpec,
    ExpressionSpec, TaskTarget, TurnsSpec,
)  # fmt: skip
"""The classes that have rules."""


@pytest.mark.parametrize("of", RULED)
def test_the_api_and_the_core_take_and_refuse_the_same_documents(of: type[Any]) -> None:
    judges = Judges(of)

    @examples(100)
    @given(st.booleans().flatmap(lambda faulty: documents(of, faulty)))
    def agree(document: dict[str, Any]) -> None:
        assert judges.disagreement(document) is None

    agree()


@examples(150)
@given(pools_that_adopt())
def test_the_api_and_the_core_take_and_refuse_the_same_pools_that_adopt(document: dict[str, Any]) -> None:
    assert ADOPTING.disagreement(document) is None


@examples(100)
@given(pools_that_take_turns())
def test_the_api_and_the_core_take_the_same_pools_that_take_turns(document: dict[str, Any]) -> None:
    assert ADOPTING.disagreement(document) is None


@examples(50)
@given(pools_with_targets_of_tasks())
def test_the_api_and_the_core_take_the_same_classes_of_tasks(document: dict[str, Any]) -> None:
    assert ADOPTING.disagreement(document) is None


@examples(100)
@given(documents(PoolSpec, False) | pools_that_adopt())
def test_a_spec_written_out_is_read_back_as_it_was(document: dict[str, Any]) -> None:
    try:
        spec = read(PoolSpec, document, "spec")
    except InvalidInput:
        return
    assert read(PoolSpec, written(spec), "spec") == spec
    assert differences(written(spec), written(spec)) == {}


CANARY_OF_PAIRS = st.just({"model": "m", "roles": [{"name": "prefill"}, {"name": "decode"}], "rollout": {"canary": {}}})
"""A pool that is valid but for its canary."""
OPEN_FOR_PAIRS = st.just({"model": "m", "roles": [{"name": "prefill"}, {"name": "decode"}], "gateway": {"failureMode": "FailOpen"}})
"""A pool that is valid but for what its gateways do without a picker."""


def twins() -> Iterator[tuple[type[Any], int]]:
    """Yield every rule that exists in both languages, by its class and place."""
    for of in RULED:
        yield from ((of, number) for number, rule in enumerate(of.RULES) if rule.holds is not None)


def test_every_rule_is_said_in_both_languages_unless_it_looks_at_the_spec_before() -> None:
    def rules(of: type[Any]) -> Iterator[Rule]:
        yield from getattr(of, "RULES", ())
        for item in fields(of):
            if shape_of(item).convert is not parse_cron:  # which refuses all that its rules in CEL refuse, and says what is wrong
                yield from shape_of(item).rules
            if shape_of(item).of is not None:
                yield from rules(shape_of(item).of)  # type: ignore[arg-type]  # just seen not to be None

    found = [*rules(PoolSpec), *rules(PoolRoleSpec)]
    assert [rule.cel for rule in found if (rule.holds is None) != ("oldSelf" in rule.cel)] == []
    assert sum(rule.holds is not None for rule in found) == len(list(twins()))


@pytest.mark.parametrize(("of", "number"), tuple(twins()), ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_rule_that_one_side_forgets_is_found(of: type[Any], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that only this rule refuses is made, and a side without the rule takes it."""

    def forgetting(**forgotten: Any) -> tuple[Rule, ...]:
        return tuple(replace(rule, **forgotten) if place == number else rule for place, rule in enumerate(of.RULES))

    about_turns = "turns" in of.RULES[number].cel  # such documents break no other rule, and would only take up the search
    careless: type[Any] = type(of.__name__, (of,), {"RULES": forgetting(holds=lambda value: True)})
    whole: dict[type[Any], tuple[st.SearchStrategy[dict[str, Any]], ...]] = {
        PoolSpec: (
            pools_with_windows(),
            pools_that_scale(),
            pools_of_an_engine(),
            pools_that_adopt(),
            CANARY_OF_PAIRS,
            OPEN_FOR_PAIRS,
            pools_with_targets_of_tasks(),
            *((pools_that_take_turns(),) if about_turns else ()),
        ),
        RoleSpec: (roles_that_adopt(), *((roles_that_take_turns(),) if about_turns else ())),
        TurnsSpec: (TURNS,),
    }
    found = find(
        st.one_of(documents(of, False, of.RULES[number]), *whole.get(of, ())),
        lambda document: not is_read(of, document) and is_read(careless, document),
        settings=search(1000),
    )
    for rules, taken in ((forgetting(cel="true"), "the API: taken"), (careless.RULES, "read: taken")):
        with monkeypatch.context() as patched:
            patched.setattr(of, "RULES", rules)
            assert taken in str(Judges(of).disagreement(found))
