"""YAML from any source is read equally on every Python, and unreadable documents are refused with Fairlead's own
messages.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairlead_process.json_documents import DEEPEST
from fairlead_process.yaml_documents import complaint, read_yaml

TOO_DEEP = f"it is nested deeper than {DEEPEST} levels"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(st.characters(codec="utf-8", categories=("L", "N")), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3),
    max_leaves=20,
)
NESTED: dict[str, Callable[[int], str]] = {
    "lists": lambda levels: "[" * levels + "1" + "]" * levels,
    "objects": lambda levels: "{a: " * levels + "1" + "}" * levels,
    "block lists": lambda levels: "- " * levels + "1",
    "block objects": lambda levels: "".join(f"{' ' * level}a:\n" for level in range(levels)) + " " * levels + "1",
    "keys": lambda levels: "? " * levels + "1",
    "aliases": lambda levels: "a0: &a0 []\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, levels - 1)),
    "cut off": lambda levels: "a: " + "[" * levels,
}
"""Functions that make documents with this many levels."""


def refusal_of(text: str) -> str:
    """Return the message of the refusal; empty for a document that is read."""
    try:
        read_yaml(text)
    except yaml.YAMLError as error:
        return complaint(error)
    return ""


@given(JSON)
def test_json_is_read_as_json(document: Any) -> None:
    assert read_yaml(json.dumps(document, ensure_ascii=False)) == document
    assert read_yaml(yaml.dump(document, allow_unicode=True)) == document


@given(st.sampled_from(sorted(NESTED)), st.one_of(st.integers(DEEPEST - 2, DEEPEST + 3), st.integers(DEEPEST, 3000)))
def test_a_document_may_nest_as_deep_as_json_and_no_deeper(form: str, levels: int) -> None:
    content = NESTED[form](levels)
    if levels > DEEPEST + (form == "keys"):  # a mapping cannot be a key, which is found out first
        with pytest.raises(yaml.MarkedYAMLError) as refused:
            read_yaml(content)
        assert refused.value.problem is not None
        assert refused.value.problem.startswith(TOO_DEEP) or form == "keys"
    elif form not in {"keys", "cut off"}:
        read_yaml(content)


@given(st.text(st.sampled_from("[]{}&*!?:-#|>'\"%@`,<=~ \n\t01259.ae_éx"), max_size=40) | st.text(max_size=30))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    assert "\n" not in refusal_of(text)


TAGS = ("!!int", "!!float", "!!bool", "!!timestamp", "!!binary", "!!null", "!!str", "!!set", "!!omap", "!!pairs", "!!seq", "!!map")


@given(
    st.sampled_from(TAGS), st.text("0123456789abxTZ:.+-_= ", max_size=20) | st.sampled_from(["[1, 2]", "{a: 1}", "[[a, 1]]", "[{a: 1}]"])
)
def test_whatever_a_tag_stands_before_is_read_or_refused(tag: str, text: str) -> None:
    told = refusal_of(f"a: {tag} {text}")
    assert not any(words in told for words in ("literal", "must be in", "out of range", "padding", "attribute", "index"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("start: 2026-02-30", "line 1, column 8: 2026-02-30 is not a date that exists"),
        ("a: 1\nb: 2026-02-03T25:00:00Z", "line 2, column 4: 2026-02-03T25:00:00Z is not a date that exists"),
        ("0000-01-01", "line 1, column 1: 0000-01-01 is not a date that exists"),
        ("2026-02-03T24:00:00Z", "line 1, column 1: 2026-02-03T24:00:00Z is not a date that exists"),
        ("0001-01-01T00:00:00+23:00", "0001-01-01T00:00:00+23:00 is not a date that exists in UTC"),
        ("- 9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59-01:00 is not a date that exists in UTC"),
        ("a: " + "9" * 5000, "line 1, column 4: a number has more than 100 digits"),
        ("a: 0x" + "f" * 5000, "line 1, column 4: a number has more than 100 digits"),
        ("!!int x", "line 1, column 1: x is not a whole number"),
        ("!!bool perhaps", "line 1, column 1: perhaps is neither true nor false"),
        ("!!float [1]", "line 1, column 1: a list or object is not a number"),
        ("!!binary x", "line 1, column 1: x is not base64"),
        ("a: 0b_", "line 1, column 4: 0b_ is not a whole number"),
        ("&a {b: *a}", f"{TOO_DEEP}, or holds itself"),
        ("a: " + "[" * 3000, f"line 1, column 68: {TOO_DEEP}"),
        (
            "\n".join([f"a0: &a0 {list(range(50))}", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 50)}]" for n in range(1, 9))]),
            "it has more than 100,000 values",
        ),
        (
            "\n".join(["a0: &a0 {x: 1, y: 2}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40))]),
            "it has more than 100,000 values",
        ),
        ("a: [", "line 1, column 5: expected the node content, but found '<stream end>'"),
        ("a: \x07", "it has a character that YAML does not allow"),
    ],
)
def test_what_cannot_be_used_says_where_and_why(text: str, why: str) -> None:
    with pytest.raises(yaml.YAMLError) as refused:
        read_yaml(text)
    assert complaint(refused.value).endswith(why)


def test_bytes_that_are_no_utf_8_are_refused_alike() -> None:
    with pytest.raises(yaml.YAMLError) as refused:
        read_yaml(b"a: \xff")
    assert complaint(refused.value) == "it is not UTF-8: byte 3 cannot be read"


def test_dates_are_text_as_json_has_them() -> None:
    assert read_yaml("{day: 2026-02-03, at: 2026-02-03T10:00:00Z, zoned: 2026-02-03T10:00:00+02:00}") == {
        "day": "2026-02-03",
        "at": "2026-02-03T10:00:00Z",
        "zoned": "2026-02-03T08:00:00Z",
    }
