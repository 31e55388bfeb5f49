"""The permitted values of each kind of environment variable."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_process.kinds import Address, Choice, Kind, Names, Number, Switch, Whole


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Whole("bytes", 1), "1", 1),
        (Number("seconds", above=True), "1e-3", 0.001),
        (Number("", 0, 1), "1", 1.0),
        (Choice(("text", "json")), "json", "json"),
        (Switch(), "1", True),
        (Address("http://x"), "https://host/path/", "https://host/path"),
        (Names(), "a, b,", ("a", "b")),
    ],
)
def test_a_value_is_read(kind: Kind[Any], text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Whole("bytes", 1), "0"),
        (Whole("bytes", 1), "1_000"),
        (Whole("bytes", 1), "1.0"),
        (Whole("bytes", 1), "-1"),
        (Whole("bytes", 1), "٣"),
        (Whole("bytes", 1, 5), "6"),
        (Number("seconds", above=True), "0"),
        (Number("seconds"), "nan"),
        (Number("seconds"), "inf"),
        (Number("seconds"), "1_0"),
        (Number("", 0, 1), "1.01"),
        (Choice(("text", "json")), "JSON"),
        (Switch(), "true"),
        (Address("http://x"), "host:80"),
        (Address("http://x"), "http://"),
    ],
)
def test_a_value_that_is_not_of_the_kind_is_refused(kind: Kind[Any], text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        kind.parse(text)


@given(st.text(), st.sampled_from([Whole("x"), Number("x"), Choice(("a", "b")), Switch(), Address("http://x"), Names()]))
def test_no_text_breaks_a_kind_but_by_a_value_error(text: str, kind: Kind[Any]) -> None:
    try:
        kind.parse(text)
    except ValueError:
        return


def test_remedies_are_words_a_person_can_follow() -> None:
    assert Choice(("DEBUG", "INFO", "ERROR")).wanted == "DEBUG, INFO or ERROR"
    assert Whole("days", 1, 30).wanted == "a whole number of days, 1 to 30"
    assert Number("seconds", above=True).wanted == "a number of seconds, above 0"
