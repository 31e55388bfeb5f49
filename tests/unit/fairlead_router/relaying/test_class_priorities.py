"""The priority of a class in a request's body, where nothing else changes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.paths import find
from fairlead_router.protocols.requests import ParsedRequest
from fairlead_router.relaying.class_priorities import with_class_priority
from fairlead_router.relaying.usage_asking import ask_for_usage
from fairlead_testing.examples import examples

CHAT = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}


def given_priority(document: dict[str, Any], priority: int, path: bytes = b"/v1/chat/completions") -> tuple[bytes, bytes]:
    """The body before and after."""
    endpoint, body = find(path), orjson.dumps(document)
    assert endpoint is not None
    return body, with_class_priority(body, ParsedRequest(body, document, endpoint), endpoint, priority)


@examples(100)
@given(
    st.integers(-(2**31), 2**31 - 1), st.none() | st.integers(-(2**63), 2**63 - 1), st.dictionaries(st.sampled_from("abc"), st.integers())
)
def test_engines_get_the_class_and_not_what_the_client_wrote(priority: int, written: int | None, more: dict[str, int]) -> None:
    document = {**more, **CHAT, **({} if written is None else {"priority": written})}
    before, after = given_priority(document, priority)
    assert orjson.loads(after) == (document if not priority and written is None else {**document, "priority": -priority})
    assert priority or written is not None or after is before, "most requests are of no class, and cost nothing"
    asked, change = ask_for_usage(after, document)
    assert change is not None
    assert change.undone(asked) == after, "the option for usage can still be taken out"


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (b"/v1/messages", {**CHAT, "max_tokens": 5}),
        (b"/v1/responses", {"model": "m", "input": "hi"}),
        (b"/tokenize", {"model": "m", "prompt": "hi"}),
        (b"/v1/embeddings", {"model": "m", "input": "hi"}),
    ],
)
def test_what_no_engine_takes_it_in_stays_as_it_is(path: bytes, document: dict[str, Any]) -> None:
    before, after = given_priority(document, 7, path)
    assert after == before


def test_a_completion_has_it_too() -> None:
    _, after = given_priority({"model": "m", "prompt": "hi"}, -3, b"/v1/completions")
    assert orjson.loads(after)["priority"] == 3
