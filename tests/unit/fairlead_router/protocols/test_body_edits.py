"""Changing single fields of a body and nothing else."""

import json
import random
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.body_edits import edited, top_level_fields, without

NAMES = st.sampled_from(["model", "stream_options", "a", "ü", 'quote"d', "back\\slash", "{", "mo\ndel", ""])
SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=8
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=5)


def _written(fields: list[tuple[str, object]], seed: int) -> bytes:
    """Return the fields as JSON with any white space, with or without escapes, and with names more than once."""
    dice = random.Random(seed)

    def space() -> str:
        return "".join(dice.choices(" \t\r\n", k=dice.randrange(3)))

    members = [
        f"{space()}{json.dumps(name, ensure_ascii=dice.random() < 0.5)}{space()}:{space()}{json.dumps(value, indent=dice.choice([None, 1]))}{space()}"
        for name, value in fields
    ]
    return (f"{space()}{{{','.join(members) or space()}}}{space()}").encode()


@given(FIELDS, st.integers(0, 10**6), st.dictionaries(NAMES, VALUES.filter(lambda value: not _is_large(value)), max_size=3))
def test_a_reader_sees_the_changes_and_every_other_field_as_it_was(
    fields: list[tuple[str, object]], seed: int, changes: dict[str, object]
) -> None:
    body = _written(fields, seed)
    document = json.loads(body)
    expected = [(name, _members(json.dumps(changes[name])) if name in changes else value) for name, value in _members(body)]
    expected += [(name, _members(json.dumps(value))) for name, value in changes.items() if name not in document]
    assert _members(edited(body, document, changes)) == expected


def _members(text: str | bytes) -> Any:
    """Return a JSON text with each object as the list of its members, which keeps equal names."""
    return json.loads(text, object_pairs_hook=list)


def _is_large(value: object) -> bool:
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False


@given(FIELDS, st.integers(0, 10**6))
def test_fields_are_found_with_the_bytes_of_their_values(fields: list[tuple[str, object]], seed: int) -> None:
    body = _written(fields, seed)
    found = [(field.name, json.loads(body[field.value : field.end])) for field in top_level_fields(body)]
    assert found == [(name, json.loads(json.dumps(value))) for name, value in fields]


@given(FIELDS, st.integers(0, 10**6), st.sets(NAMES))
def test_fields_that_are_taken_away_are_gone_and_the_others_as_they_were(
    fields: list[tuple[str, object]], seed: int, names: set[str]
) -> None:
    body = _written(fields, seed)
    assert _members(without(body, names)) == [(name, value) for name, value in _members(body) if name not in names]


def test_large_integers_names_given_twice_and_white_space_stay() -> None:
    body = b'{ "a": 123456789012345678901234567890, "model" : "pool", "b":{"model":"x","c":1,"c":2}, "b":[1e400] }\r\n'
    changed = edited(body, {"a": 0, "model": "pool", "b": []}, {"model": "m"})
    assert changed == body.replace(b'"pool"', b'"m"')


def test_each_of_two_equal_names_is_changed_whichever_a_reader_takes() -> None:
    assert edited(b'{"model":"a","model":"b"}', {"model": "b"}, {"model": "m"}) == b'{"model":"m","model":"m"}'


def test_an_escaped_name_is_found() -> None:
    assert edited(b'{"mod\\u0065l":"a"}', {"model": "a"}, {"model": "m"}) == b'{"mod\\u0065l":"m"}'


def test_a_field_is_added_to_an_empty_object_and_behind_others() -> None:
    assert edited(b" { } ", {}, {"stream_options": {"include_usage": True}}) == b' { "stream_options":{"include_usage":true}}'
    assert edited(b'{"a":1}', {"a": 1}, {"b": 2, "c": 3}) == b'{"a":1,"b":2,"c":3}'
