"""The reader of environment variables: typed, with clear messages about unusable values."""

from dataclasses import MISSING, dataclass, field

import pytest

from fairlead.errors import InvalidInput
from fairlead_process.environment import group, names, read, unread, variable, variables
from fairlead_process.kinds import Address, Number, Switch, Text, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    seconds: float = field(default=2.0, metadata=variable("FAIRLEAD_SECONDS", Number("seconds", above=True), "how long"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    url: str = field(metadata=variable("FAIRLEAD_URL", Address("http://127.0.0.1:8080"), "where"))
    token: str = field(default="", metadata=variable("FAIRLEAD_TOKEN", Text("a token", secret=True), "who"))
    retries: int = field(default=2, metadata=variable("FAIRLEAD_RETRIES", Whole("retries", 0, 9), "how often"))
    web: bool = field(default=True, metadata=variable("FAIRLEAD_WEB", Switch(), "whether"))
    inner: Inner = field(default_factory=Inner, metadata=group(Inner))
    not_from_outside: int = 7


GOOD = {"FAIRLEAD_URL": "http://api:1/"}


def test_what_is_set_is_read_and_the_rest_has_its_default() -> None:
    found = read(Outer, {**GOOD, "FAIRLEAD_SECONDS": "0.5", "FAIRLEAD_WEB": "0", "OTHER": "x"})
    assert found == Outer(url="http://api:1", web=False, inner=Inner(seconds=0.5))


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read(Outer, {**GOOD, "FAIRLEAD_RETRIES": " "}).retries == 2


@pytest.mark.parametrize("environment", [{}, {"FAIRLEAD_URL": ""}])
def test_a_variable_without_a_default_that_is_not_set_is_named_with_what_to_write(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(Outer, environment)
    assert str(caught.value) == "FAIRLEAD_URL: is not set; write an address such as http://127.0.0.1:8080 without user and password"


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("FAIRLEAD_RETRIES", "10", "FAIRLEAD_RETRIES: '10' cannot be used; write a whole number of retries, 0 to 9"),
        ("FAIRLEAD_SECONDS", "0", "FAIRLEAD_SECONDS: '0' cannot be used; write a number of seconds, above 0"),
        ("FAIRLEAD_WEB", "yes", "FAIRLEAD_WEB: 'yes' cannot be used; write 1 or 0"),
    ],
)
def test_a_value_that_cannot_be_used_is_one_line_with_name_value_and_remedy(name: str, value: str, line: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(Outer, {**GOOD, name: value})
    assert str(caught.value) == line


def test_variables_are_told_with_their_defaults_groups_included() -> None:
    told = {found.name: default for found, default in variables(Outer)}
    assert told == {"FAIRLEAD_URL": MISSING, "FAIRLEAD_TOKEN": "", "FAIRLEAD_RETRIES": 2, "FAIRLEAD_WEB": True, "FAIRLEAD_SECONDS": 2.0}


def test_a_variable_of_ours_that_nobody_reads_is_told_with_the_one_it_may_be_meant_for() -> None:
    environment = {**GOOD, "FAIRLEAD_RETRYS": "1", "FAIRLEAD_XYZ": "1", "FAIRLEAD_SANDBOX_STATE_DIR": "/x", "PATH": "/bin"}
    assert unread(environment, names(Outer)) == {"FAIRLEAD_RETRYS": "FAIRLEAD_RETRIES", "FAIRLEAD_XYZ": ""}
