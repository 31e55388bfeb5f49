"""Small or well-formed bodies that would cost much time, or crash the code that makes the routing key."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.media import BYTES_PER_TOKEN
from fairlead_router.protocols.paths import ENDPOINTS, Endpoint, Handling
from fairlead_router.protocols.prompt_fields import FATES
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.protocols.rendered_chats import MOST_MEDIA_BYTES
from fairlead_router.protocols.requests import parse_request

ROUTED = [endpoint for endpoint in ENDPOINTS if endpoint.handling in (Handling.ROUTED, Handling.SPREAD)]
PLACES = (
    '{"messages": [{"role": "user", "content": HERE}]}',
    '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": HERE}]}]}',
    '{"messages": [{"role": "user", "content": [HERE]}]}',
    '{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": HERE}}]}]}',
    '{"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": HERE}]}]}',
    '{"messages": [{"role": "user", "content": [{"type": "tool_result", "content": HERE}]}]}',
    '{"messages": [{"role": "user", "content": "x", "tools": HERE}]}',
    '{"messages": [], "tools": [{"name": "f", "input_schema": HERE}]}',
    '{"messages": [], "tools": [{"type": "function", "function": {"name": "f", "parameters": HERE}}]}',
    '{"input": [HERE]}',
    '{"input": [{"type": "custom_tool_call", "name": "f", "input": HERE}]}',
    '{"input": [{"type": "function_call", "name": "f", "arguments": HERE}]}',
    '{"query": "x", "documents": [{"type": "image", "image": HERE}]}',
    *(
        '{"messages": [{"role": "user", "content": "x"}], "input": "x", "prompt": "x", "FIELD": HERE}'.replace("FIELD", field)
        for field in sorted(FATES)
    ),
)


def _refusal(body: str, endpoint: Endpoint) -> int:
    """Return the status with which a body is refused; 0 if it is taken."""
    try:
        parse_request(body.encode(), endpoint)
    except BadRequest as refused:
        return refused.status
    return 0


@pytest.mark.parametrize("endpoint", ROUTED, ids=lambda endpoint: endpoint.path)
def test_what_nests_deeply_anywhere_is_read_or_refused_and_breaks_nothing(endpoint: Endpoint) -> None:
    for place in PLACES:
        for begin, end in (("[ ", " ]"), ('{"a": ', " }")):
            for depth in (3, 250, 600):
                deep = begin * depth + "1" + end * depth
                for value in (deep, orjson.dumps(deep).decode()):
                    assert _refusal(place.replace("HERE", value), endpoint) in (0, 400), place


MEDIA = st.sampled_from(
    (
        {"type": "video", "a": 1},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "input_audio", "input_audio": {"data": "http://x"}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "image", "source": {"type": "url", "url": "u"}},
    )
)


@given(st.lists(MEDIA, min_size=1, max_size=5), st.sampled_from(ROUTED))
def test_what_stands_for_the_media_of_a_prompt_is_bounded_however_many_a_body_names(
    parts: list[dict[str, object]], endpoint: Endpoint
) -> None:
    many = parts * (6000 // len(parts))
    message = {"role": "user", "type": "message", "content": many}
    body = orjson.dumps({"messages": [message], "input": [message], "documents": many, "prompt": "x", "query": "x", "text_1": many})
    try:
        prompt = parse_request(body, endpoint).prompt.text
    except BadRequest:
        return
    assert len(prompt) <= MOST_MEDIA_BYTES + 2 * len(body)


def test_each_medium_of_a_long_prompt_is_still_told_from_others() -> None:
    endpoint = next(one for one in ROUTED if one.path == "/v1/chat/completions")

    def prompt(last: str) -> bytes:
        urls = [*("u" for _ in range(3 * MOST_MEDIA_BYTES // (1024 * BYTES_PER_TOKEN))), last]
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return parse_request(orjson.dumps({"messages": [{"role": "user", "content": parts}]}), endpoint).prompt.text

    assert prompt("a") != prompt("b")
