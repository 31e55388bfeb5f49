"""Requests of every protocol become the questions to which an engine answers with their tokens."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.kv_events.known_prompts import KnownPrompts
from fairlead_router.kv_events.prompt_texts import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Question,
    Rendering,
    has_billing_line,
    question,
    questions,
)

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": SCHEMA}}
ARGUMENTS = '{"path":"a.txt"}'
USER = {"role": "user", "content": "What does it say?"}
ANSWER = {
    "role": "assistant",
    "reasoning": "I read it.",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": ARGUMENTS}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "hello"}
AS_CHAT: dict[str, Any] = {"messages": [{"role": "system", "content": "Be brief."}, USER, ANSWER, RESULT], "tools": [TOOL]}
AS_MESSAGES: dict[str, Any] = {
    "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": USER["content"], "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I read it.", "signature": "s"},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.txt"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "hello"}]}]},
    ],
    "tools": [{"name": "read", "description": "Reads a file.", "input_schema": SCHEMA}],
}
AS_RESPONSE: dict[str, Any] = {
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "id": "m1", "role": "user", "content": [{"type": "input_text", "text": USER["content"]}]},
        {"type": "reasoning", "id": "r1", "summary": [], "content": [{"type": "reasoning_text", "text": "I read it."}]},
        {"type": "function_call", "id": "f1", "call_id": "c1", "name": "read", "arguments": ARGUMENTS, "status": "completed"},
        {"type": "function_call_output", "id": "o1", "call_id": "c1", "output": "hello"},
    ],
    "tools": [{"type": "function", "name": "read", "description": "Reads a file.", "parameters": SCHEMA}],
}


def asked(path: str, document: Mapping[str, Any]) -> Question:
    made = question(path, document)
    assert made is not None
    return made


def test_one_conversation_is_one_question_whichever_protocol_it_comes_in() -> None:
    by_chat, by_messages, by_response = asked(CHAT, AS_CHAT), asked(MESSAGES, AS_MESSAGES), asked(RESPONSES, AS_RESPONSE)
    assert by_messages.fields == by_chat.fields
    assert by_response.fields == {**by_chat.fields, "add_special_tokens": True}
    assert by_messages.prompt == by_chat.prompt, "so what is known of one is known of the other"
    assert by_response.prompt.texts == by_chat.prompt.texts and by_response.prompt.heads == by_chat.prompt.heads


def test_the_question_has_all_that_the_tokens_depend_on_and_nothing_else() -> None:
    document = {"messages": [USER], "tools": [{"x": 1}], "temperature": 0.5, "stream": True, "metadata": {"a": 1}}
    body = json.loads(asked(CHAT, document).body("m"))
    assert body == {"model": "m", "return_token_strs": True, "messages": [USER], "tools": [{"x": 1}]}


@pytest.mark.parametrize(
    ("path", "effort"),
    [
        (CHAT, {"reasoning_effort": "high"}),
        (MESSAGES, {"output_config": {"effort": "high"}}),
        (RESPONSES, {"reasoning": {"effort": "high"}}),
    ],
)
def test_an_effort_is_an_argument_of_the_template_and_turns_thinking_on(path: str, effort: Mapping[str, Any]) -> None:
    document = {RESPONSES: AS_RESPONSE, MESSAGES: AS_MESSAGES, CHAT: AS_CHAT}[path]
    assert asked(path, {**document, **effort}).fields["chat_template_kwargs"] == {"enable_thinking": True, "reasoning_effort": "high"}
    own = {"chat_template_kwargs": {"enable_thinking": False, "reasoning_effort": "low", "x": 1}}
    wanted = {"enable_thinking": False, "reasoning_effort": "high", "x": 1}
    assert asked(path, {**document, **effort, **own}).fields["chat_template_kwargs"] == wanted


def test_thoughts_by_their_older_name_are_asked_for_by_the_newer_one() -> None:
    older = {"role": "assistant", "content": "Yes.", "reasoning_content": "I know."}
    fields = asked(CHAT, {"messages": [USER, older]}).fields
    assert fields["messages"][1]["reasoning"] == "I know.", "/tokenize does not know reasoning_content"


def test_a_text_is_asked_for_as_its_single_part_is() -> None:
    part = {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
    assert asked(CHAT, {"messages": [part]}) == asked(CHAT, {"messages": [{"role": "user", "content": "hi"}]})


@pytest.mark.parametrize("rest", ["\nBe brief.", ""])
def test_the_billing_line_of_a_translated_request_leaves_no_trace(rest: str) -> None:
    lines = [f"x-anthropic-billing-header: cc_version=2.1; cch={hash_};" for hash_ in ("eb6c6", "0aaa9")]
    one, other = (asked(CHAT, {"messages": [{"role": "system", "content": line + rest}, USER]}) for line in lines)
    assert one == other and one.prompt.texts[0] == rest.strip().encode()
    parts = [{"role": "system", "content": [{"type": "text", "text": line}, {"type": "text", "text": "Be brief."}]} for line in lines]
    assert asked(CHAT, {"messages": [parts[0], USER]}) == asked(CHAT, {"messages": [parts[1], USER]})
    assert has_billing_line({"messages": parts}) and has_billing_line({"messages": [{"role": "system", "content": lines[0]}]})
    assert not has_billing_line(AS_CHAT)


def test_system_messages_among_the_others_are_asked_for_in_their_place_and_at_the_beginning() -> None:
    late = {**AS_MESSAGES, "messages": [*AS_MESSAGES["messages"], {"role": "system", "content": "Hurry."}]}
    in_place, merged = questions(MESSAGES, late, None, Rendering())
    assert in_place.fields["messages"][-1] == {"role": "system", "content": "Hurry."}
    assert merged.fields["messages"][0] == {"role": "system", "content": "Be brief.Hurry."}
    assert questions(MESSAGES, late, None, merged.rendering)[0].rendering == merged.rendering
    assert len(questions(MESSAGES, AS_MESSAGES, None, Rendering())) == 1


def test_thinking_that_is_off_is_asked_for_by_both_efforts_that_an_engine_may_take_for_it() -> None:
    off = {**AS_MESSAGES, "thinking": {"type": "disabled"}}
    efforts = [each.fields["chat_template_kwargs"] for each in questions(MESSAGES, off, None, Rendering())]
    assert efforts == [{"enable_thinking": False, "reasoning_effort": "none"}, {"enable_thinking": True, "reasoning_effort": "low"}]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/v1/embeddings", {"input": "hi"}),
        (COMPLETIONS, {"prompt": ["a", "b"]}),
        (COMPLETIONS, {"prompt": "a", "suffix": "b"}),
        (CHAT, {"messages": []}),
        (CHAT, {"messages": ["hi"]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        (CHAT, {"messages": [USER], "cache_salt": 3}),
        (CHAT, {"messages": [USER], "truncate_prompt_tokens": 3}),
        (MESSAGES, {"messages": []}),
        (MESSAGES, {"messages": [{"role": "user", "content": [IMAGE]}]}),
        (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [IMAGE]}]}]}),
        (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}),
        (RESPONSES, {"input": "hi", "previous_response_id": "resp_1"}),
        (RESPONSES, {"input": "hi", "conversation": "conv_1"}),
        (RESPONSES, {"input": "hi", "truncation": "auto"}),
        (RESPONSES, {"input": [{"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "gAAA"}]}),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
    ],
)
def test_prompts_whose_tokens_cannot_be_asked_for(path: str, document: dict[str, object]) -> None:
    assert question(path, document) is None


def test_what_a_message_with_thoughts_renders_is_not_known_once_the_user_has_spoken_again() -> None:
    """Templates drop the thoughts of former turns, so the same beginning has other tokens."""
    before, after = asked(CHAT, AS_CHAT), asked(CHAT, {**AS_CHAT, "messages": [*AS_CHAT["messages"], USER]})
    known = KnownPrompts(4)
    words = [text.decode() for text in before.prompt.texts]
    assert known.learn(before.prompt, range(len(words)), words)
    assert known.find(before.prompt).whole
    beginning = [*before.prompt.heads[:2], *before.prompt.texts[:2]]
    assert known.find(after.prompt).size == before.prompt.tool_bytes + sum(map(len, beginning))


def test_tools_and_calls_count_in_how_much_of_a_prompt_is_known() -> None:
    calls = {"messages": [USER, {**ANSWER, "tool_calls": [{"function": {"arguments": "x" * 5000}}]}], "tools": [TOOL]}
    assert asked(CHAT, calls).prompt.size > 5000 + len(json.dumps(TOOL, separators=(",", ":")))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "role", "content", "name"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = [
    "messages",
    "input",
    "system",
    "instructions",
    "tools",
    "thinking",
    "output_config",
    "reasoning",
    "tool_choice",
    "prompt",
    "documents",
]


@given(path=st.sampled_from([CHAT, MESSAGES, RESPONSES, COMPLETIONS]), document=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
def test_no_document_makes_the_question_fail(path: str, document: dict[str, Any]) -> None:
    for each in questions(path, document, None, Rendering()):
        assert len(each.prompt.heads) == len(each.prompt.texts) and json.loads(each.body("m"))["model"] == "m"
