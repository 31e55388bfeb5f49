"""Asking for usage without touching the rest of a body."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.relaying.usage_asking import ask_for_usage, names_the_option

_OPTIONS = st.dictionaries(
    st.sampled_from(["include_usage", "continuous_usage_stats", "include_obfuscation", "x"]),
    st.booleans() | st.text(max_size=5) | st.none(),
    max_size=3,
)
_GIVEN = st.just(...) | st.none() | _OPTIONS
_FIELDS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["a", "messages", "stream", "metadata"]),
    st.text(max_size=20) | st.integers(-(2**63), 2**63 - 1) | st.just({"n": [{}]}),
    max_size=4,
)


@given(_FIELDS, _GIVEN, st.booleans())
def test_only_the_option_is_added_and_it_can_be_taken_out_again(fields: dict[str, Any], given_options: Any, last: bool) -> None:
    document = {"model": "m", **fields}
    options = {} if given_options is ... else {"stream_options": given_options}
    document = {**document, **options} if last else {**options, **document}
    body = orjson.dumps(document)
    asked, change = ask_for_usage(body, document)
    assert change is not None
    kept = {
        name: value
        for name, value in (options.get("stream_options") or {}).items()
        if name not in ("include_usage", "continuous_usage_stats")
    }
    assert orjson.loads(asked) == {**document, "stream_options": {**kept, "include_usage": True}}
    assert change.undone(asked) == body
    legs = b'%b,"kv_transfer_params":{"x":[1]}}'
    assert change.undone(legs % asked[:-1]) == legs % body[:-1], "also behind what was added at the end"


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream_options": {"a": 1}, "model": "m", "stream_options": {"b": {"c": "}"}}}',
        b'{"metadata": {"stream_options": {}}, "model": "m", "stream_options": {"include_usage": false}}',
        b'{"model": "m", "stream_options": {"nested": {"x": "\\"}"}}} ',
    ],
)
def test_a_name_that_is_there_twice_and_options_of_any_shape_are_asked_too(body: bytes) -> None:
    document = orjson.loads(body)
    asked, change = ask_for_usage(body, document)
    assert change is not None
    assert orjson.loads(asked)["stream_options"]["include_usage"] is True
    assert change.undone(asked) == body
    end = body.rindex(b"}")
    assert change.undone(asked[: asked.rindex(b"}")] + b',"kv_transfer_params":1}') == body[:end] + b',"kv_transfer_params":1}'


def test_options_that_are_no_object_are_left_to_the_engine() -> None:
    body = b'{"model": "m", "stream_options": 7}'
    assert ask_for_usage(body, orjson.loads(body)) == (body, None)


@pytest.mark.parametrize(
    ("error", "names"),
    [
        ({"message": "stream_options: Extra inputs are not permitted", "code": 400}, True),
        ({"message": "Unrecognized request argument supplied: include_usage"}, True),
        ({"message": "Extra inputs are not permitted", "param": "stream_options.include_usage"}, True),
        ({"message": "{'loc': ('body', 'stream_options'), 'input': {'include_usage': True}}", "param": None}, True),
        ({"message": "Field required, input: {'stream_options': {'include_usage': True}}", "param": "messages"}, False),
        ({"message": "1 validation error: {'input': {'stream_options': {}, 'messages': 7}}"}, False),
        ({"message": "context too long"}, False),
    ],
)
def test_a_refusal_that_repeats_the_request_is_not_about_the_option(error: dict[str, Any], *, names: bool) -> None:
    assert names_the_option(orjson.dumps({"error": error})) is names
    assert names_the_option(orjson.dumps({"object": "error", **error})) is names


def test_a_refusal_that_is_not_json_is_judged_by_its_words() -> None:
    assert names_the_option(b"stream_options is not supported")
    assert not names_the_option(b"<html>")
