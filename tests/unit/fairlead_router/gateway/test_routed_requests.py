"""Parsed requests: what they ask of the answer's form."""

from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.token_sizes import GIVEN_IDS
from fairlead_router.gateway.routed_requests import PromptSize, answer_follows, prompt_size
from fairlead_router.protocols import paths
from fairlead_router.protocols.paths import find
from fairlead_router.protocols.prompts import Prompt
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.protocols.requests import parse_request


@pytest.mark.parametrize(
    ("background", "follows"),
    [
        (True, True),
        (1, True),
        (1.0, True),
        ("true", True),
        ("Yes", True),
        ("on", True),
        ("1", True),
        (False, False),
        (None, False),
        (0, False),
        ("false", False),
        ("off", False),
        ("No", False),
        ("0", False),
        ("maybe", False),
        ([], False),
        ({"on": True}, False),
        (2, False),
    ],
)
def test_an_answer_in_the_background_is_known_however_its_client_asks_for_it(background: object, *, follows: bool) -> None:
    endpoint = paths.find(b"/v1/responses")
    assert endpoint is not None
    parsed = parse_request(orjson.dumps({"model": "m", "input": "hello", "background": background}), endpoint)
    assert answer_follows(parsed, endpoint) is follows


CHAT, MESSAGES, RESPONSES, COMPLETIONS = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"
TEXT = "What is the capital of France? " * 20
MOST_MARK = len(b"\xffassistant\xfe")
IMAGE = "data:image/png;base64," + "A" * 90_000
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}}


def size_of(path: str, document: dict[str, Any]) -> PromptSize:
    endpoint = find(path.encode())
    assert endpoint is not None
    return prompt_size(endpoint, document, endpoint.prompt(document))


def said(content: object, **fields: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (CHAT, said(TEXT)),
        (CHAT, said([{"type": "text", "text": TEXT}], tools=[], tool_choice="none", response_format={"type": "json_object"}, stop=["x"])),
        (CHAT, {"messages": [{"role": "tool", "content": TEXT, "tool_call_id": "1"}]}),
        (MESSAGES, said([{"type": "text", "text": TEXT}], system="", metadata={"user_id": "u" * 300})),
        (MESSAGES, said([{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": TEXT}]}])),
        (RESPONSES, {"input": TEXT, "truncation": "disabled"}),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_text", "text": TEXT}]}]}),
        (RESPONSES, {"input": [{"type": "function_call_output", "call_id": "1", "output": TEXT}]}),
        (COMPLETIONS, {"prompt": TEXT}),
        (COMPLETIONS, {"prompt": [TEXT]}),
    ],
)
def test_plain_text_counts_by_the_bytes_of_its_text(path: str, document: dict[str, Any]) -> None:
    size = size_of(path, document)
    assert (size.kind, size.is_plain_text) == (path, True)
    assert len(TEXT) <= size.counted_bytes <= len(TEXT) + 2 * MOST_MARK


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (CHAT, said(TEXT, tools=[TOOL] * 50)),
        (CHAT, said(TEXT, documents=[{"text": "d" * 5000}])),
        (
            CHAT,
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"x": "%s"}' % ("x" * 5000)}}]},
                    {"role": "user", "content": TEXT},
                ]
            },
        ),
        (CHAT, {"messages": [{"role": "assistant", "content": TEXT, "reasoning_content": "t" * 5000}]}),
        (MESSAGES, said([{"type": "tool_use", "id": "1", "name": "find", "input": {"q": "x" * 5000}}, {"type": "text", "text": TEXT}])),
        (
            RESPONSES,
            {
                "input": [
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "e" * 5000}]},
                    {"role": "user", "content": TEXT},
                ]
            },
        ),
    ],
)
def test_what_templates_render_beside_the_text_counts_too(path: str, document: dict[str, Any]) -> None:
    size = size_of(path, document)
    assert (size.kind, size.is_plain_text) == (path + "+tools", False)
    assert size.counted_bytes == pytest.approx(len(orjson.dumps(document)), rel=0.4)


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_a_word_with_the_tools_of_an_agent_counts_as_what_the_tools_are(path: str) -> None:
    words = " ".join(f"word{number}" for number in range(60))
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": words}}, "required": ["path"]}
    tools = [{"name": f"tool_{number}", "description": words, "input_schema": schema} for number in range(55)]
    if path != MESSAGES:
        tools = [{"name": tool["name"], "description": tool["description"], "parameters": schema} for tool in tools]
    if path == CHAT:
        tools = [{"type": "function", "function": tool} for tool in tools]
    if path == RESPONSES:
        tools = [{"type": "function", **tool} for tool in tools]
    document = {"input": "hi", "tools": tools} if path == RESPONSES else said("hi", tools=tools)
    given = len(orjson.dumps(tools))
    assert given > 50_000
    assert size_of(path, document).counted_bytes == pytest.approx(given, rel=0.1)


def test_what_engines_do_not_render_counts_for_nothing() -> None:
    assert size_of(CHAT, said(TEXT, functions=[TOOL] * 50, response_format={"x": TEXT})) == size_of(CHAT, said(TEXT))


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (CHAT, {"type": "image_url", "image_url": {"url": IMAGE}}),
        (CHAT, {"type": "input_audio", "input_audio": {"data": "A" * 50_000, "format": "wav"}}),
        (MESSAGES, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 50_000}}),
        (RESPONSES, {"type": "input_image", "image_url": IMAGE}),
    ],
)
def test_media_count_by_their_number_and_not_by_their_bytes(path: str, part: dict[str, Any]) -> None:
    content = [{"type": "input_text" if path == RESPONSES else "text", "text": TEXT}, part, part]
    document = {"input": [{"role": "user", "content": content}]} if path == RESPONSES else said(content)
    size = size_of(path, document)
    assert (size.kind, size.is_plain_text) == (path + "+media", False)
    assert len(TEXT) + 2 * 4 * 25 <= size.counted_bytes <= len(TEXT) + 2 * 4200
    tool = {"type": "function", **TOOL["function"]} if path == RESPONSES else TOOL  # type: ignore[dict-item]
    assert size_of(path, {**document, "tools": [tool] * 50}).kind == path + "+tools+media"


def test_an_image_in_the_result_of_a_tool_is_seen() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 50_000}}
    document = said([{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": TEXT}, image]}])
    assert size_of(MESSAGES, document).kind == MESSAGES + "+media"


@pytest.mark.parametrize("field", ["previous_response_id", "conversation", "truncate_prompt_tokens"])
def test_a_prompt_of_which_the_body_has_a_part_only_is_a_kind_of_its_own(field: str) -> None:
    size = size_of(RESPONSES, {"input": TEXT, field: 7})
    assert size == PromptSize(RESPONSES + "+unseen", len(TEXT) + len(b"\xffuser\xfe"), False)
    assert size_of(RESPONSES, {"input": TEXT, "truncation": "auto"}).kind == RESPONSES + "+unseen"


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1, 2], [3]]])
def test_token_ids_are_their_own_count(prompt: list[Any]) -> None:
    assert size_of(COMPLETIONS, {"prompt": prompt}) == PromptSize(GIVEN_IDS, 12, False)


@pytest.mark.parametrize("fields", [("prompt", "input_ids"), ("prompt", "input"), ("input_ids", "input")])
@pytest.mark.parametrize("turned", [False, True])
def test_of_several_fields_that_may_have_token_ids_the_same_counts_in_every_process(fields: tuple[str, str], *, turned: bool) -> None:
    first, second = fields
    for ids in fields:
        document: dict[str, Any] = {first: "text", second: "text", ids: [1, 2]}
        written = dict(reversed(document.items())) if turned else document
        assert (size_of("/invocations", written).kind == GIVEN_IDS) is (ids == first)


def test_texts_that_are_no_conversation_are_a_kind_of_their_path() -> None:
    assert size_of("/v1/embeddings", {"input": [TEXT, TEXT]}) == PromptSize("/v1/embeddings", 2 * len(TEXT), False)
    assert size_of("/v1/rerank", {"query": "q", "documents": [TEXT, TEXT]}).kind == "/v1/rerank"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["text", "image_url", "tool_use", "x" * 2000]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "content", "role", "text", "tool_calls", "input", "messages", "prompt"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from([CHAT, MESSAGES, RESPONSES, COMPLETIONS]),
    st.dictionaries(st.sampled_from(["messages", "input", "prompt", "tools"]), ANYTHING),
)
def test_whatever_a_body_holds_it_has_a_size(path: str, document: dict[str, Any]) -> None:
    endpoint = find(path.encode())
    assert endpoint is not None
    assert prompt_size(endpoint, document, Prompt((b"text",))).counted_bytes >= 4
    with suppress(BadRequest):
        assert size_of(path, document).counted_bytes >= 0
