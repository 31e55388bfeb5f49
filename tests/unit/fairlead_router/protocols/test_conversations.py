"""Conversations of Anthropic's and the Responses protocol as chats."""

from typing import Any

import pytest

from fairlead_router.protocols.conversations import chat_of_messages, chat_of_response

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells it", "parameters": SCHEMA}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
CHAT = {
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "reasoning": "I ask.", "tool_calls": [CALL], "content": "One moment."},
        {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
    ],
    "tools": [WEATHER],
    "tool_choice": "auto",
}
MESSAGES: dict[str, Any] = {
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=0aaa9;"},
        {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Rain?", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I ask.", "signature": "s"},
                {"type": "text", "text": "One moment."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "Rain."}]}]},
    ],
    "tools": [{"name": "weather", "description": "Tells it", "input_schema": SCHEMA}],
}
RESPONSE: dict[str, Any] = {
    "instructions": "Be kind.",
    "input": [
        {"role": "user", "content": "Rain?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I ask."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One moment."}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "Rain."},
    ],
    "tools": [{"type": "function", "name": "weather", "description": "Tells it", "parameters": SCHEMA}],
}


def test_a_conversation_with_a_tool_is_the_same_chat_from_every_protocol() -> None:
    assert chat_of_messages(MESSAGES, json_arguments=True) == CHAT
    assert chat_of_response(RESPONSE) == CHAT


def test_what_a_template_takes_besides_the_messages_is_passed_on() -> None:
    given = {"messages": [], "thinking": {"type": "disabled"}, "tool_choice": {"type": "tool", "name": "f"}, "cache_salt": "s"}
    chosen = {"type": "function", "function": {"name": "f"}}
    assert chat_of_messages(given) == {"messages": [], "cache_salt": "s", "reasoning_effort": "none", "tool_choice": chosen}
    assert chat_of_messages({"output_config": {"effort": "low"}, "tool_choice": {"type": "any"}}) == {
        "messages": [],
        "reasoning_effort": "low",
        "tool_choice": "required",
    }
    partial = {"type": "message", "role": "assistant", "status": "incomplete", "content": [{"type": "output_text", "text": "I"}]}
    assert chat_of_response({"input": [partial], "reasoning": {"effort": "high"}}) == {
        "messages": [{"role": "assistant", "content": "I"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
        "reasoning_effort": "high",
    }


def test_later_system_messages_stay_unless_the_template_takes_one_system_text_only() -> None:
    document = {
        "system": "A",
        "messages": [{"role": "user", "content": "u"}, {"role": "system", "content": [{"type": "text", "text": "B"}]}],
    }
    stayed = [{"role": "system", "content": "A"}, {"role": "user", "content": "u"}, {"role": "system", "content": "B"}]
    assert chat_of_messages(document)["messages"] == stayed
    assert chat_of_messages(document, merge_system=True)["messages"] == [{"role": "system", "content": "AB"}, stayed[1]]


def test_images_of_a_result_follow_it_as_a_users() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "seen"}, image]}
    assert chat_of_messages({"messages": [{"role": "user", "content": [result, {"type": "text", "text": "and?"}]}]})["messages"] == [
        {"role": "tool", "tool_call_id": "c", "content": "seen"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}]},
        {"role": "user", "content": "and?"},
    ]


def test_tools_that_messages_add_and_remove_are_in_effect() -> None:
    def names(*blocks: dict[str, Any]) -> list[str]:
        tools = [{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}]
        chat = chat_of_messages({"tools": tools, "messages": [{"role": "system", "content": list(blocks)}]})
        return [tool["function"]["name"] for tool in chat["tools"]]

    assert names() == ["a", "b"]
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "a"}}
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "c", "input_schema": {}}}}
    assert names(removal) == ["b"]
    assert names(removal, added, {**removal, "type": "tool_addition"}) == ["a", "b", "c"]


def test_only_functions_of_a_response_are_tools_of_its_chat() -> None:
    tools = [
        {"type": "web_search"},
        {"type": "namespace", "name": "git", "tools": [{"type": "function", "name": "log"}, {"type": "other"}]},
        {"type": "custom", "name": "patch"},
    ]
    chat = chat_of_response({"input": "hi", "tools": tools})
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["git__log", "patch"]
    assert "tools" not in chat_of_response({"input": "hi", "tools": tools[:1]})


@pytest.mark.parametrize("junk", [None, 7, "x", [], [7, "x", None, [[]]], [{}], [{"type": 7}], [{"type": [], "name": []}], {"a": 1}])
def test_what_has_no_usable_form_raises_nothing(junk: object) -> None:
    kinds = ("text", "tool_use", "tool_result", "thinking", "image", "tool_addition")
    blocks = [{"type": kind, **dict.fromkeys(("text", "input", "content", "thinking", "source", "name"), junk)} for kind in kinds]
    blocks += [{"type": "tool_addition", "tool": {"name": junk}}, {"type": junk, "text": "x"}]
    for content in (junk, blocks):
        messages = [{"role": role, "content": content} for role in ("user", "assistant", "system", junk)]
        chat_of_messages({"system": content, "messages": messages, "tools": junk, "tool_choice": junk, "thinking": junk})
    chat_of_messages(dict.fromkeys(("system", "messages", "tools", "tool_choice", "thinking", "output_config"), junk))
    chat_of_response(dict.fromkeys(("instructions", "input", "tools", "tool_choice", "reasoning"), junk))
    items = [
        {"type": kind, "role": "assistant", "content": junk, "output": junk} for kind in ("reasoning", "message", "function_call", junk)
    ]
    chat_of_response({"input": items, "tools": [{"type": "namespace", "tools": junk}]})
