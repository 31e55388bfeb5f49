"""The priority of a class in a request's body, where nothing else changes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.paths import ENDPOINTS, Endpoint, Handling, find
from fairlead_router.protocols.requests import ParsedRequest, forwarded_headers
from fairlead_router.relaying.class_priorities import with_class_priority, without_priority_header
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


ROUTED = [endpoint for endpoint in ENDPOINTS if endpoint.handling is Handling.ROUTED]
ANY_DOCUMENT = {"model": "m", "messages": [], "prompt": "hi", "input": "hi"}


@pytest.mark.parametrize("endpoint", ROUTED, ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize("written", [-1000, 5, "-7", None, [1]])
@pytest.mark.parametrize("priority", [7, 0])
def test_no_path_has_a_door_for_a_priority_of_the_clients_own(endpoint: Endpoint, written: object, priority: int) -> None:
    _, after = given_priority({**ANY_DOCUMENT, "priority": written}, priority, endpoint.path.encode())
    assert orjson.loads(after)["priority"] == -priority


@pytest.mark.parametrize("endpoint", ROUTED, ids=lambda endpoint: endpoint.path)
def test_every_protocol_that_has_the_field_gets_the_class(endpoint: Endpoint) -> None:
    before, after = given_priority(ANY_DOCUMENT, 7, endpoint.path.encode())
    if endpoint.dialect is Dialect.ANTHROPIC:
        assert after is before
    else:
        assert orjson.loads(after) == {**ANY_DOCUMENT, "priority": -7}


def test_the_header_that_a_vllm_prefers_to_the_field_is_taken_out_wherever_it_stands() -> None:
    forwarded, _ = forwarded_headers([(b"x-vllm-priority", b"-9"), (b"x-vllm-priority-of", b"1"), (b"x-vllm-priority", b"")], b"")
    assert without_priority_header(forwarded) == b"x-vllm-priority-of: 1\r\n"
    assert without_priority_header(b"") == b""


def test_a_completion_has_it_too() -> None:
    _, after = given_priority({"model": "m", "prompt": "hi"}, -3, b"/v1/completions")
    assert orjson.loads(after)["priority"] == 3
