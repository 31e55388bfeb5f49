"""Every kind of plan has a module, facts, and an example that the API accepts."""

from pathlib import Path

import msgspec
import pytest

import fairlead_api.plans.kinds as kinds
from fairlead_api.plans.changes import check_shape
from fairlead_api.plans.kinds.catalogue import kind_of
from fairlead_client.resources.plan_kinds import PLAN_KINDS, SECTIONS, PlanKind, PlanRequest


@pytest.mark.parametrize("name", list(PlanKind))
def test_a_kind_is_the_module_of_its_name(name: PlanKind) -> None:
    assert kind_of(name).name is name


def test_every_module_is_a_kind() -> None:
    modules = {path.stem for path in Path(kinds.__path__[0]).glob("*.py")} - {"__init__", "catalogue"}
    assert modules == {name.value.replace("-", "_") for name in PlanKind}


def test_every_kind_has_facts() -> None:
    assert set(PLAN_KINDS) == set(PlanKind)
    assert len({name.facts.example_title for name in PlanKind} - {""}) == len(PlanKind)


@pytest.mark.parametrize("name", list(PlanKind))
def test_the_example_of_a_kind_is_a_request_of_it(name: PlanKind) -> None:
    check_shape(msgspec.convert({"kind": name.value, **name.facts.example}, PlanRequest))


@pytest.mark.parametrize("name", list(PlanKind))
def test_a_request_without_what_its_kind_needs_is_refused_with_the_field(name: PlanKind) -> None:
    needed = name.facts.takes[: name.facts.needs]
    for missing in needed:
        example = {key: value for key, value in name.facts.example.items() if key != missing}
        with pytest.raises(Exception, match=f"^{missing}: "):
            check_shape(msgspec.convert({"kind": name.value, **example}, PlanRequest))


def test_what_changes_a_section_is_a_part_of_the_difference_between_two_specs() -> None:
    for name, facts in SECTIONS.items():
        field = facts.fields[0]
        after = {facts.section: {field: "another"}}
        assert kind_of(name).is_part({}, after), name
        assert not kind_of(name).is_part(after, after), name


def test_only_schedules_may_need_an_admin_by_what_they_say() -> None:
    assert [name for name in PlanKind if kind_of(name).may_need_admin] == [PlanKind.SCHEDULE]
