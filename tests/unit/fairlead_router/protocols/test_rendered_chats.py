"""The canonical prompt of conversations: equal in every protocol, and different wherever the rendered tokens differ."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.prefixes import block_hashes
from fairlead_router.protocols.prompts import anthropic_prompt, chat_prompt, responses_prompt
from fairlead_router.protocols.rendered_chats import settled

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True)
class Turn:
    asked: str
    thought: str = ""
    said: str = ""
    calls: tuple[Call, ...] = ()
    concluded: str = "done"


@dataclass(frozen=True)
class Tool:
    name: str
    description: str | None
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    system: str
    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...] = field(default=())


CALLS = st.builds(Call, TEXTS, OBJECTS, st.just("") | TEXTS)
TURNS = st.builds(Turn, TEXTS, st.just("") | TEXTS, st.just("") | TEXTS, st.lists(CALLS, max_size=2).map(tuple), TEXTS)
SCHEMAS = OBJECTS.map(lambda properties: {"type": "object", "properties": properties})
TOOLS = st.builds(Tool, TEXTS, st.none() | TEXTS, SCHEMAS)
CONVERSATIONS = st.builds(Conversation, TEXTS, st.lists(TURNS, min_size=1, max_size=3).map(tuple), st.lists(TOOLS, max_size=2).map(tuple))


def as_chat(talk: Conversation, ids: str = "call") -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": talk.system}]
    for turn in talk.turns:
        messages.append({"role": "user", "content": turn.asked})
        if turn.thought or turn.said or turn.calls:
            spoken: dict[str, Any] = {"role": "assistant", "content": turn.said or None}
            if turn.thought:
                spoken["reasoning_content"] = turn.thought
            if turn.calls:
                spoken["tool_calls"] = [
                    {"id": f"{ids}{n}", "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
                    for n, call in enumerate(turn.calls)
                ]
            messages.append(spoken)
            messages += [{"role": "tool", "tool_call_id": f"{ids}{n}", "content": call.result} for n, call in enumerate(turn.calls)]
            if not turn.calls:
                messages.append({"role": "user", "content": "go on"})
        messages.append({"role": "assistant", "content": turn.concluded})
    tools = [
        {"type": "function", "function": {"parameters": tool.parameters, "name": tool.name, "description": tool.description}}
        for tool in talk.tools
    ]
    return {"messages": messages, **({"tools": tools} if tools else {})}


def as_messages(talk: Conversation, marks: int = 0) -> dict[str, Any]:
    """Return the chat in Anthropic's protocol, with a cache mark on the last `marks` blocks."""
    messages: list[dict[str, Any]] = []
    for turn in talk.turns:
        messages.append({"role": "user", "content": [{"type": "text", "text": turn.asked}]})
        if turn.thought or turn.said or turn.calls:
            blocks: list[dict[str, Any]] = []
            if turn.thought:
                blocks.append({"type": "thinking", "thinking": turn.thought, "signature": "s"})
            if turn.said:
                blocks.append({"type": "text", "text": turn.said})
            blocks += [{"type": "tool_use", "id": str(n), "name": call.name, "input": call.arguments} for n, call in enumerate(turn.calls)]
            messages.append({"role": "assistant", "content": blocks})
            results = [
                {"type": "tool_result", "tool_use_id": str(n), "content": [{"type": "text", "text": call.result}] if n else call.result}
                for n, call in enumerate(turn.calls)
            ]
            messages.append({"role": "user", "content": results or "go on"})
        messages.append({"role": "assistant", "content": turn.concluded})
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    for block in blocks[len(blocks) - marks :]:
        block["cache_control"] = {"type": "ephemeral"}
    tools = [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in talk.tools]
    return {"max_tokens": 9, "system": talk.system, "messages": messages, **({"tools": tools} if tools else {})}


def as_response(talk: Conversation) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for turn in talk.turns:
        items.append({"role": "user", "content": turn.asked})
        if turn.thought or turn.said or turn.calls:
            if turn.thought:
                items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": turn.thought}]})
            if turn.said:
                items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": turn.said}]})
            for n, call in enumerate(turn.calls):
                arguments = json.dumps(call.arguments, separators=(",", ":"), ensure_ascii=False)
                items.append({"type": "function_call", "call_id": f"fc{n}", "name": call.name, "arguments": arguments})
            items += [{"type": "function_call_output", "call_id": f"fc{n}", "output": call.result} for n, call in enumerate(turn.calls)]
            if not turn.calls:
                items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]})
        items.append({"role": "assistant", "content": turn.concluded})
    tools = [{"type": "function", "name": tool.name, "parameters": tool.parameters, "description": tool.description} for tool in talk.tools]
    return {"instructions": talk.system, "input": items, "tools": tools}


def shared(texts: list[bytes]) -> bytes:
    """Return the common beginning of two texts."""
    one, other = texts
    return one[: next((at for at in range(min(len(one), len(other))) if one[at] != other[at]), min(len(one), len(other)))]


def key(talk: Conversation) -> bytes:
    return chat_prompt(as_chat(talk)).text


@given(CONVERSATIONS)
def test_a_conversation_has_one_key_in_all_protocols(talk: Conversation) -> None:
    assert chat_prompt(as_chat(talk)) == anthropic_prompt(as_messages(talk)) == responses_prompt(as_response(talk))


@given(CONVERSATIONS, CONVERSATIONS)
def test_different_conversations_have_different_keys(one: Conversation, other: Conversation) -> None:
    assert (key(one) == key(other)) == (json.dumps(as_chat(one)) == json.dumps(as_chat(other)))


@given(CONVERSATIONS, TURNS)
def test_a_conversation_that_goes_on_keeps_all_bytes_of_what_it_goes_on_from(talk: Conversation, turn: Turn) -> None:
    assert key(replace(talk, turns=(*talk.turns, turn))).startswith(key(talk))


@given(CONVERSATIONS, st.data())
def test_a_change_leaves_all_bytes_before_its_place(talk: Conversation, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(talk.turns) - 1))
    turn, changed = talk.turns[place], data.draw(TURNS)
    other = replace(talk, turns=(*talk.turns[:place], changed, *talk.turns[place + 1 :]))
    before = key(replace(talk, turns=talk.turns[:place]))
    common = shared([key(talk), key(other)])
    assert common.startswith(before)
    assert (common == key(talk)) == (json.dumps(as_chat(talk)) == json.dumps(as_chat(other))) or turn == changed


@given(CONVERSATIONS, TEXTS, st.integers(0, 9), st.text("0123456789abcdef", min_size=5, max_size=5))
def test_what_clients_change_with_every_request_changes_nothing(talk: Conversation, ids: str, marks: int, attribution: str) -> None:
    assert chat_prompt(as_chat(talk, ids)).text == key(talk)
    billed = as_messages(talk, marks)
    line = f"x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch={attribution};"
    billed["system"] = [{"type": "text", "text": line}, {"type": "text", "text": talk.system, "cache_control": {"type": "ephemeral"}}]
    billed["metadata"] = {"user_id": attribution}
    assert anthropic_prompt(billed).text == key(talk)
    passed_on = as_chat(talk, ids)
    for system in (f"{line}\n{talk.system}", [{"type": "text", "text": line}, {"type": "text", "text": talk.system}]):
        passed_on["messages"][0]["content"] = system
        assert chat_prompt(passed_on).text == key(talk)


def test_tools_come_first_so_that_agents_with_other_system_texts_share_them() -> None:
    tools = tuple(Tool(f"tool_{n}", "does things " * 20, {"type": "object"}) for n in range(20))
    one, other = (Conversation(system, (Turn("hi"),), tools) for system in ("A", "B"))
    common = shared([key(one), key(other)])
    assert len(common) > 20 * len("does things " * 20)
    fewer = key(replace(one, tools=tools[:-1]))
    assert len(shared([key(one), fewer])) > 19 * len("does things " * 20)


def test_equal_texts_with_other_calls_tools_thoughts_or_media_are_told_apart() -> None:
    def said(**more: Any) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ok", **more}]}

    def called(name: str, arguments: str) -> dict[str, Any]:
        return said(tool_calls=[{"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}])

    def shown(*parts: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, *parts]}]}

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    chats = [
        said(),
        said(reasoning="a"),
        said(reasoning="b"),
        said(name="n"),
        called("f", "{}"),
        called("g", "{}"),
        called("f", '{"a":1}'),
        called("f", '{"a":1.0}'),
        shown(),
        shown(image),
        shown(image, image),
        shown({"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJE"}}),
        shown({"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}}),
        shown({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,QUJD"}}),
        shown({"type": "file", "file": {"file_id": "QUJD"}}),
        {"messages": [{"role": "developer", "content": "hi"}]},
        {"messages": [{"role": "system", "content": "hi"}]},
        {"messages": [{"role": "user", "content": ["h", "i"]}]},
        {"messages": [{"role": "user", "content": "h"}, {"role": "user", "content": "i"}]},
    ]
    assert len({chat_prompt(chat).text for chat in chats}) == len(chats)


def test_arguments_are_the_same_however_their_json_is_written() -> None:
    def called(arguments: object) -> bytes:
        return chat_prompt({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]}).text

    assert called('{"a": 1, "b": "\\u00fc"}') == called('{"a":1,"b":"ü"}') == called({"a": 1, "b": "ü"})
    assert called('{"b": 1, "a": 2}') != called('{"a": 2, "b": 1}')  # templates keep the order
    assert called("") == called(None) == called("{}") == called("not json") == called("[1]")
    long = json.dumps({"text": "word " * 10_000})
    assert called(long) == called(json.loads(long))


def test_a_salt_shares_no_block_and_costs_no_tokens() -> None:
    said = {"messages": [{"role": "user", "content": "word " * 500}]}
    plain, salted = chat_prompt(said), chat_prompt({**said, "cache_salt": "s"})
    assert plain.text == salted.text
    assert (plain.root, salted.root) == (b"", b'{"cache_salt":"s"}')
    assert anthropic_prompt({**said, "cache_salt": "s"}) == salted == responses_prompt({"input": said["messages"], "cache_salt": "s"})
    assert not set(block_hashes(plain.text, 64, 1)) & set(block_hashes(salted.text, 64, 2))


MOVING = [
    "You are X.\nToday's date: 2026-11-{d}",
    "You are helpful. Today is Saturday, November {d}, 2026.",
    "Rules\nCurrent time: 12:03:{d} UTC\n",
    "A\n<budget:token_budget>2000{d}</budget:token_budget>",
    "A\n<system_warning>Token usage: 350{d}/1000000; 9{d}000 remaining</system_warning>",
    "You have 123{d} tokens remaining.",
    "A\n\n2026-11-28T12:00:{d}Z",
    "<env>\nToday's date: 2026-11-{d}\n</env>",
    "Be nice.\nRemaining token budget: {d},456\nCurrent time: 2026-11-28 10:{d}",
    "The current date is {d} Nov 2026. Answer briefly.",
    "Context window: {d}% used",
    "Timestamp: 17643312{d}",
]
STILL = [
    "Answer in at most {d} tokens.",
    "Version {d}.0 of the rules",
    "Use the tool at most {d} times per turn",
    "Today's date: 2026-11-{d}\nNow follow the rules below.\nOne.\nTwo.",
    "You have {d} tokens remaining.\n" + "rules " * 60,
]


@pytest.mark.parametrize("text", MOVING)
def test_dates_and_budgets_at_the_end_of_a_system_text_do_not_matter(text: str) -> None:
    keys = {
        chat_prompt({"messages": [{"role": "system", "content": text.format(d=d)}, {"role": "user", "content": "x"}]}).text
        for d in (10, 11, 28)
    }
    assert len(keys) == 1
    assert len(settled(text.format(d=10))) > 0.4 * len(text)
    asked = {chat_prompt({"messages": [{"role": "user", "content": text.format(d=d)}]}).text for d in (10, 11)}
    assert len(asked) == 2


@pytest.mark.parametrize("text", STILL)
def test_other_figures_in_a_system_text_matter(text: str) -> None:
    assert settled(text.format(d=10)) == text.format(d=10)


@given(st.text(max_size=300))
def test_a_system_text_stays_what_it_is_but_for_figures(text: str) -> None:
    assert len(settled(text)) <= len(text) + 4 * 240


def test_template_arguments_and_the_choice_of_tools_come_before_the_messages() -> None:
    said = {"messages": [{"role": "user", "content": "word " * 100}], "tools": [{"type": "function", "function": {"name": "f"}}]}
    plain = chat_prompt(said).text
    for more in (
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "low"},
        {"documents": [{"text": "d"}]},
        {"tool_choice": "none"},
    ):
        assert len(shared([plain, chat_prompt({**said, **more}).text])) < 100
    named = {"type": "function", "function": {"name": "f"}}
    assert chat_prompt({**said, "tool_choice": "required"}).text == chat_prompt({**said, "tool_choice": "auto"}).text == plain
    assert chat_prompt({**said, "tool_choice": named}).text != plain
    for field_at_the_end, value in (("add_generation_prompt", False), ("continue_final_message", True)):
        longer = chat_prompt({**said, field_at_the_end: value}).text
        assert longer != plain
        assert longer.startswith(plain)
