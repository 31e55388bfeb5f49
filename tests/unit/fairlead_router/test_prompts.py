"""Prompts out of each protocol's documents."""

import pytest

from fairlead_router.prompts import (
    anthropic_prompt,
    batch_prompt,
    chat_prompt,
    embedding_prompt,
    invocation_prompt,
    responses_prompt,
    texts_of,
)
from fairlead_router.refusals import BadRequest


def test_one_conversation_gives_the_same_bytes_in_every_protocol() -> None:
    chat = {
        "messages": [
            {"role": "system", "content": "Be kind. "},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
        ]
    }
    messages = {
        "system": [{"type": "text", "text": "Be kind. "}],
        "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}],
    }
    responses = {
        "instructions": "Be kind. ",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
        ],
    }
    assert chat_prompt(chat) == anthropic_prompt(messages) == responses_prompt(responses) == b"Be kind. HelloHi"
    assert responses_prompt({"input": "Hello"}) == b"Hello"
    assert invocation_prompt(chat) == chat_prompt(chat)
    assert invocation_prompt({"prompt": "once"}) == b"once"
    assert batch_prompt({"messages": [chat["messages"], chat["messages"]]}) == 2 * b"Be kind. HelloHi"


def test_tools_results_and_thoughts_are_part_of_a_conversation() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm "},
        {"type": "tool_use", "name": "f", "input": {"a": 1}},
        {"type": "tool_result", "content": [{"type": "text", "text": "42"}]},
    ]
    assert anthropic_prompt({"messages": [{"role": "user", "content": blocks}]}) == b"hm 42"
    items = [{"type": "function_call", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "output": "42"}]
    assert responses_prompt({"input": items}) == b"{}42"


def test_reranking_and_scoring_are_routed_by_the_query_and_then_the_documents() -> None:
    read = texts_of("query", "documents")
    assert read({"documents": ["a", {"text": "b"}], "query": "q"}) == b"qab"
    assert read({}) == b""
    assert embedding_prompt({"messages": [{"role": "user", "content": "x"}]}) == b"x"


def test_nesting_without_end_is_not_followed() -> None:
    deep: object = "text"
    for _ in range(900):
        deep = [deep]
    assert responses_prompt({"input": [deep, "seen"]}) == b"seen"


@pytest.mark.parametrize(
    ("reader", "document"),
    [
        (anthropic_prompt, {"messages": ["x", {"content": 5}]}),
        (anthropic_prompt, {"system": 7, "messages": []}),
        (responses_prompt, {"input": 7}),
        (responses_prompt, {"input": []}),
        (batch_prompt, {"messages": []}),
        (batch_prompt, {"messages": [[{"content": 5}], []]}),
    ],
)
def test_what_cannot_be_read_adds_nothing_to_a_prompt(reader, document: dict[str, object]) -> None:  # type: ignore[no-untyped-def]
    assert reader(document) == b""


@pytest.mark.parametrize(
    ("reader", "document", "param"),
    [
        (anthropic_prompt, {"system": "x"}, "messages"),
        (responses_prompt, {"instructions": "x"}, "input"),
        (batch_prompt, {"messages": {}}, "messages"),
        (batch_prompt, {"messages": [[], "x"]}, "messages[1]"),
    ],
)
def test_a_document_without_a_prompt_is_a_400_that_names_the_field(reader, document: dict[str, object], param: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadRequest) as caught:
        reader(document)
    assert (caught.value.status, caught.value.param) == (400, param)
