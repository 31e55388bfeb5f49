"""The operator's settings from environment variables."""

import pytest

from fairlead.errors import InvalidInput
from fairlead_operator.settings import read_settings

GOOD = {"FAIRLEAD_API_URL": "http://api:8080/", "FAIRLEAD_API_TOKEN": "t"}


def test_two_variables_are_enough() -> None:
    settings = read_settings(GOOD)
    assert settings.control_plane.urls == ("http://api:8080",)
    assert settings.namespaces == ()
    assert settings.engine_image.startswith("fairlead/engine:")


def test_namespaces_are_a_list() -> None:
    assert read_settings(GOOD | {"FAIRLEAD_WATCH_NAMESPACES": "a, b,"}).namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FAIRLEAD_API_URL", "api:8080"),
        ("FAIRLEAD_API_TOKEN", ""),
        ("FAIRLEAD_OPERATOR_HEALTH_PORT", "http"),
        ("FAIRLEAD_OPERATOR_HEALTH_PORT", "70000"),
        ("FAIRLEAD_OPERATOR_RESYNC_SECONDS", "0"),
        ("FAIRLEAD_OPERATOR_RESYNC_SECONDS", "soon"),
        ("FAIRLEAD_OPERATOR_LEASE_SECONDS", "1"),
        ("FAIRLEAD_OPERATOR_LEASE_SECONDS", "2.5"),
        ("FAIRLEAD_OPERATOR_ROUNDS_AT_ONCE", "0"),
        ("FAIRLEAD_OPERATOR_CALLS_AT_ONCE", "many"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_settings(GOOD | {name: value})
    assert refused.value.field == name


def test_operators_that_watch_the_same_namespaces_share_a_lease_and_no_others() -> None:
    everywhere = read_settings(GOOD).lease.name
    some = read_settings(GOOD | {"FAIRLEAD_WATCH_NAMESPACES": "a,b"}).lease
    assert read_settings(GOOD | {"FAIRLEAD_WATCH_NAMESPACES": "b, a"}).lease.name == some.name
    assert len({everywhere, some.name, read_settings(GOOD | {"FAIRLEAD_WATCH_NAMESPACES": "a"}).lease.name}) == 3
    assert some.namespace == "a", "where it surely has rights, unless told otherwise"
    assert read_settings(GOOD | {"FAIRLEAD_OPERATOR_LEASE_NAMESPACE": "ops"}).lease.namespace == "ops"
