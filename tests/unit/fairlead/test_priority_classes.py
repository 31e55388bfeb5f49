"""The order of priority classes, and who may claim which."""

import pytest

from fairlead.errors import InvalidInput
from fairlead.pools import parse_spec
from fairlead.priority_classes import PriorityClasses
from fairlead.tables import PriorityClass

CLASSES = PriorityClasses(
    (
        PriorityClass(name="batch", priority=-10, share=0.5),
        PriorityClass(name="interactive", priority=100),
        PriorityClass(name="chat", priority=100),
    )
)


def test_a_pool_without_classes_has_the_default_one_with_the_whole_of_every_limit() -> None:
    none = PriorityClasses()
    assert not none.are_declared
    assert none["whatever"] == PriorityClass(name="default", priority=0, share=1.0)
    assert none.rank("whatever") == 0


def test_higher_priorities_rank_before_lower_ones_and_equal_ones_together() -> None:
    assert [CLASSES.rank(name) for name in ("interactive", "chat", "default", "batch")] == [0, 0, 1, 2]


def test_a_class_that_the_pool_does_not_declare_is_the_default_one() -> None:
    assert CLASSES["vip"].name == "default"
    assert CLASSES.rank("vip") == CLASSES.rank("default")


def test_the_default_class_can_be_declared() -> None:
    declared = PriorityClasses((PriorityClass(name="default", priority=-1, share=0.7), PriorityClass(name="other")))
    assert declared["unknown"].share == 0.7
    assert declared.rank("other") < declared.rank("unknown")


@pytest.mark.parametrize(
    ("asked", "ceiling", "granted"),
    [
        ("interactive", None, "interactive"),
        (None, None, "default"),
        ("vip", None, "default"),
        (None, "interactive", "interactive"),
        ("batch", "interactive", "batch"),
        ("chat", "interactive", "chat"),
        ("interactive", "batch", "batch"),
        ("vip", "batch", "batch"),
        ("interactive", "of another pool", "default"),
        ("batch", "of another pool", "batch"),
    ],
)
def test_a_client_gets_what_it_asks_for_up_to_its_ceiling(asked: str | None, ceiling: str | None, granted: str) -> None:
    assert CLASSES.granted(asked, ceiling) == granted


def test_a_spec_declares_classes_and_routers_are_told_of_them() -> None:
    spec = parse_spec({"model": "m", "priorityClasses": [{"name": "batch", "priority": -1, "share": 0.5}]})
    assert spec.facts().priority_classes == (PriorityClass(name="batch", priority=-1, share=0.5),)
    assert parse_spec({"model": "m"}).facts().priority_classes == ()


@pytest.mark.parametrize(
    "classes",
    [[{"name": "a"}, {"name": "a"}], [{"name": "A b"}], [{"name": "a", "share": 0}], [{"name": f"c{n}"} for n in range(9)]],
    ids=["twice", "bad-name", "no-share", "too-many"],
)
def test_a_spec_refuses_classes_that_cannot_be(classes: list[dict[str, object]]) -> None:
    with pytest.raises(InvalidInput, match=r"spec\.priorityClasses"):
        parse_spec({"model": "m", "priorityClasses": classes})
