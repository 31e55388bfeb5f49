"""docs/policies.md is complete: every policy has a section, and every parameter a line with the right default."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.errors import InvalidInput
from fairlead.routing.choosing.key_parameters import KeyParameters
from fairlead.routing.contracts.parameters import QueueParameters, parameter_shapes
from fairlead.routing.contracts.policies import Policy
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.schemas.shapes import Shape
from fairlead.tables import RoutingFacts

CATALOGUE = (Path(__file__).parents[5] / "docs" / "policies.md").read_text(encoding="utf-8")
SHARED = parameter_shapes(QueueParameters).keys()
KEY = parameter_shapes(KeyParameters).keys()


def section(title: str) -> str:
    """Return the text between a heading and the next one."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", CATALOGUE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/policies.md has no section {title!r}"
    return found[1]


def lines(title: str) -> dict[str, str]:
    """Return the rest of the table line of each parameter, by the parameter's name."""
    return dict(re.findall(r"^\| `(\w+)` \|(.*)$", section(title), re.MULTILINE))


def kind(one: Shape) -> str:
    """Return type and bounds as the catalogue writes them: `a` or `b`, number 0–1, integer ≥ 0."""
    if one.enum:
        names = [f"`{choice}`" for choice in one.enum]
        return " or ".join([", ".join(names[:-1]), names[-1]])
    if one.minimum is None:
        return "object" if one.kind == "free" else one.kind
    return f"{one.kind} ≥ {one.minimum:.10g}" if one.maximum is None else f"{one.kind} {one.minimum:.10g}–{one.maximum:.10g}"


def default(one: Shape) -> str:
    """Return a pattern for the default as the catalogue writes it."""
    if one.default is None:
        return r"(none|by preset( \(.*\))?)"
    text = str(one.default)
    return re.escape(f"`{text}`" if one.kind == "string" else text.lower() if one.kind == "boolean" else text)


@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_every_policy_has_a_section_with_intent_inputs_cost_and_when_it_hurts(policy: str) -> None:
    text = section(policy)
    for heading in ("Intent", "Inputs", "Cost", "When it hurts"):
        assert f"**{heading}.**" in text


@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_every_parameter_of_every_policy_is_documented_with_its_type_bounds_and_default(policy: str) -> None:
    own = lines(policy)
    inherited = lines("What every policy shares") | (lines("cache-affinity") if policy == "dualmap" else {})
    facts = BUILT_IN.parameters(policy)
    assert set(own) <= set(facts), "a parameter is documented that does not exist"
    for name, one in facts.items():
        line = (inherited | own).get(name)
        assert line is not None, f"{policy}: parameter {name} is not in docs/policies.md"
        written, meaning = (part.strip() for part in line.rstrip("| ").split("|"))
        assert re.fullmatch(rf"{re.escape(kind(one))}, {default(one)}", written), f"{policy}: {name}: {written!r}"
        assert len(meaning) > 15


def test_every_registered_policy_is_in_the_table_and_nothing_else() -> None:
    table = re.findall(r"^\| `([\w-]+)` \|", CATALOGUE.split("##")[0], re.MULTILINE)
    assert sorted(table) == sorted(BUILT_IN.names)
    headings = set(re.findall(r"^## (.*)$", CATALOGUE, re.MULTILINE))
    assert headings == {
        *BUILT_IN.names,
        "What every policy shares",
        "When a session moves",
        "Learned figures",
        "What decisions record",
        "A policy of your own",
    }


@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_every_term_and_rule_a_policys_decisions_record_is_in_the_catalogue(policy: str) -> None:
    recorded = BUILT_IN.entry(policy).terms
    (line,) = re.findall(rf"^\| {policy} \|(.*)$", section("What decisions record"), re.MULTILINE)
    compared = "nothing" if recorded.total is None else f"{recorded.total.words} ({recorded.total.unit}, {recorded.total.better} is better)"
    assert f" {compared} |" in line
    assert set(re.findall(r"`([\w-]+)`", line)) == {one.name for one in recorded.terms} | {rule.code for rule in recorded.rules}


def test_a_policy_from_outside_cannot_take_the_name_of_one_of_ours() -> None:
    with pytest.raises(InvalidInput, match="'dualmap' cannot be used; Fairlead has a policy of this name"):
        BUILT_IN.extended({"dualmap": object})


def test_a_policy_that_cannot_be_made_is_bad_input_that_names_it() -> None:
    def build(parameters: object, seed: int) -> Policy:
        raise ZeroDivisionError("in a package")

    mine = replace(BUILT_IN.entry("random"), name="mine", build=build)
    catalogue = BUILT_IN.extended({"mine": lambda: mine})
    with pytest.raises(InvalidInput, match=r"'mine' cannot be used; it cannot be built \(ZeroDivisionError\('in a package'\)\)"):
        catalogue.build(RoutingFacts(policy="mine"), 1)
    assert not catalogue.learns(RoutingFacts(policy="mine"))
