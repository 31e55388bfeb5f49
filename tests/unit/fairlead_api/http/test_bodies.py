"""Bodies are read strictly: every JSON text is either accepted, or refused with the reason."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_api.http.bodies import LARGEST_WHOLE, MalformedBody, check_json
from fairlead_process.json_documents import DEEPEST

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())) | st.just("\0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def values(document: object) -> list[object]:
    if isinstance(document, dict):
        return [*document, *(value for inner in document.values() for value in values(inner))]
    return [value for inner in document for value in values(inner)] if isinstance(document, list) else [document]


def storable(value: object) -> bool:
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or abs(value) < LARGEST_WHOLE


@given(ANYTHING)
def test_what_passes_can_be_stored_and_what_cannot_is_refused(document: object) -> None:
    content = json.dumps(document).encode()
    if all(storable(value) for value in values(document)):
        check_json(content)
    else:
        with pytest.raises((InvalidInput, MalformedBody)):
            check_json(content)


@given(st.binary(max_size=40))
def test_any_bytes_are_taken_or_refused(content: bytes) -> None:
    try:
        check_json(content)
    except (InvalidInput, MalformedBody) as error:
        str(error).encode()  # the refusal itself can be written


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "Input data was truncated"),
        (b'{"a": 1,}', r"^trailing comma in object \(byte 8\)$"),
        (b"[1,]", r"^trailing comma in array \(byte 3\)$"),
        (b'{"a": 01}', "invalid number"),
        (b"[" * 5000, f"nested deeper than {DEEPEST} levels"),
        (b'{"a": 1, "b": 2, "a": 3}', "the name 'a' appears twice in one object"),
        (b'{"a": [{"x": 1, "x": 2}]}', "the name 'x' appears twice in one object"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b"[" * 100_000 + b"]" * 100_000, f"nested deeper than {DEEPEST} levels"),
        (b'{"a":' * (DEEPEST + 1) + b"1" + b"}" * (DEEPEST + 1), f"nested deeper than {DEEPEST} levels"),
        (b'"\xff"', "it is not UTF-8: byte 1 cannot be read"),
        ('{"a": 1}'.encode("utf-16"), "it is not UTF-8"),
    ],
)
def test_what_is_no_json_is_told_why(content: bytes, told: str) -> None:
    with pytest.raises(MalformedBody, match=told):
        check_json(content)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b'{"replicas": 1e999}', "replicas"),
        (b'{"fields": {"ttft": [1, 9223372036854775808]}}', "fields.ttft[1]"),
        (b'{"n": -%s}' % (b"9" * 10_000), "n"),
        (b'{"a": {"b": "\\ud800"}}', "a.b"),
        (b'{"a\\udfff": 1}', "a?"),
        (b'{"a": ["x", "\\u0000"]}', "a[1]"),
        (b'"\\ud800"', "body"),
    ],
)
def test_what_cannot_be_stored_is_named_by_its_field(content: bytes, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_json(content)
    assert caught.value.field == field


def test_the_largest_numbers_and_the_deepest_nesting_pass() -> None:
    check_json(b"[9223372036854775807, -9223372036854775807, 1.7e308]")
    check_json(b"[" * DEEPEST + b"]" * DEEPEST)
