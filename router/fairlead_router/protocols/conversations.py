"""Converts conversations of other protocols to chats, by the rules of vLLM 0.32, which converts them in the same way
before it renders the chat template (`entrypoints/anthropic/serving.py`, `entrypoints/openai/responses/utils.py`).

So a conversation has the same prompt in all protocols: `prompts` makes the routing key from the chat, and an engine can
tokenize the chat. The original document is not changed. Invalid parts are left out, because the engine validates its
input itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead_router.protocols.canonical_json import canonical_json

Document = Mapping[str, Any]
Chat = dict[str, Any]
Message = dict[str, Any]

BILLING = "x-anthropic-billing-header"
"""The beginning of the billing line, by which Claude Code attributes each request. The line has a different hash in
each request, and vLLM drops it.
"""

_PASSED = ("cache_salt", "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs")
"""Fields that have the same meaning in the other protocols and in a chat."""


def chat_of_messages(
    document: Document, *, merge_system: bool = False, json_arguments: bool = False, anthropic_tools: bool = False
) -> Chat:
    """Return a body of `/v1/messages` as a chat.

    `merge_system`: whether later system messages are merged into the first one, as vLLM does for templates that accept
    only one. `json_arguments`: whether the arguments of tool calls are JSON text, as in the chat protocol. Otherwise
    they are objects, as templates get them. `anthropic_tools`: whether tools keep the form in which Anthropic's
    protocol declares them.
    """
    messages: list[Message] = []
    given = [message for message in _list(document.get("messages")) if isinstance(message, dict)]
    system = _system_texts(document.get("system"))
    if merge_system:
        system += [text for message in given if message.get("role") == "system" for text in _inline_system_texts(message)]
    if system:
        messages.append({"role": "system", "content": "".join(system)})
    for message in given:
        if message.get("role") != "system":
            _add_message(message, messages, json_arguments)
        elif not merge_system and (texts := _inline_system_texts(message)):
            messages.append({"role": "system", "content": "".join(texts)})
    chat = _chat(document, messages)
    _take_effort(chat, document)
    tools = _tools_in_effect(document.get("tools"), given)
    if tools is not None:
        chat["tools"] = tools if anthropic_tools else [_function(tool, tool.get("input_schema"), {"type": "object"}) for tool in tools]
    choice = document.get("tool_choice")
    if isinstance(choice, dict):
        kind = choice.get("type")
        chat["tool_choice"] = _named(choice.get("name")) if kind == "tool" else "required" if kind == "any" else kind
    elif tools is not None:
        chat["tool_choice"] = "auto"
    return chat


def chat_of_response(document: Document) -> Chat:
    """Return a body of `/v1/responses` as a chat. The conversation of its `previous_response_id` is not included."""
    messages: list[Message] = []
    instructions = document.get("instructions")
    if isinstance(instructions, str) and instructions:
        messages.append({"role": "system", "content": instructions})
    given = document.get("input")
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    items = _list(given)
    for item in items:
        if isinstance(item, dict):
            _add_item(item, messages)
        elif isinstance(item, str):
            messages.append({"role": "user", "content": item})
    chat = _chat(document, messages)
    if items and _is_partial(items[-1]):
        chat["add_generation_prompt"], chat["continue_final_message"] = False, True
    reasoning = document.get("reasoning")
    if isinstance(reasoning, dict) and reasoning.get("effort") is not None:
        chat["reasoning_effort"] = reasoning["effort"]
    tools = [function for tool in _list(document.get("tools")) for function in _response_functions(tool)]
    if tools:
        chat["tools"] = tools
        choice = document.get("tool_choice", "auto")
        chat["tool_choice"] = _named(choice.get("name")) if isinstance(choice, dict) and "name" in choice else choice
    return chat


def without_billing(text: str) -> str:
    """Return a system text without Claude Code's billing line."""
    return text.partition("\n")[2] if text.startswith(BILLING) else text


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _chat(document: Document, messages: list[Message]) -> Chat:
    chat: Chat = {"messages": messages}
    for field in _PASSED:
        if document.get(field) is not None:
            chat[field] = document[field]
    return chat


def _system_texts(content: object) -> list[str]:
    """Return the texts of a system prompt. A block that begins with the billing line is left out completely."""
    if isinstance(content, str):
        return [text] if (text := without_billing(content)) else []
    texts = (block.get("text") for block in _list(content) if isinstance(block, dict) and block.get("type") == "text")
    return [text for text in texts if isinstance(text, str) and text and not text.startswith(BILLING)]


def _inline_system_texts(message: Mapping[str, Any]) -> list[str]:
    """Return the texts of a system message inside the conversation. A text that begins with the billing line is left
    out completely.
    """
    content = message.get("content")
    return [] if isinstance(content, str) and content.startswith(BILLING) else _system_texts(content)


def _take_effort(chat: Chat, document: Document) -> None:
    config, thinking = document.get("output_config"), document.get("thinking")
    if isinstance(config, dict) and config.get("effort") is not None:
        chat["reasoning_effort"] = config["effort"]
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        chat["reasoning_effort"] = "none"  # or "low", where a template cannot do without


def _add_message(message: Mapping[str, Any], into: list[Message], json_arguments: bool) -> None:
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str):
        into.append({"role": role, "content": content})
        return
    parts: list[Any] = []
    calls: list[Message] = []
    thoughts: list[str] = []
    for block in _list(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            continue
        if kind == "text":
            if isinstance(block.get("text"), str) and block["text"]:
                parts.append({"type": "text", "text": block["text"]})
        elif kind == "tool_use":
            calls.append(_call(block.get("id"), block.get("name"), _arguments(block.get("input"), json_arguments)))
        elif kind == "tool_result":
            if role == "user":
                _add_results(block, into)
            elif block.get("content"):
                parts.append({"type": "text", "text": f"Tool result: {block['content']}"})
        elif kind == "thinking":
            if isinstance(block.get("thinking"), str):
                thoughts.append(block["thinking"])
        elif kind not in _WITHOUT_TEXT:
            parts.append(_image(block))
    made: Message = {"role": role}
    if thoughts:
        made["reasoning"] = "".join(thoughts)
    if calls:
        made["tool_calls"] = calls
    if parts:
        made["content"] = parts[0]["text"] if len(parts) == 1 and parts[0].get("type") == "text" else parts
    if parts or role != "user":
        into.append(made)


_WITHOUT_TEXT = frozenset({"redacted_thinking", "tool_reference", "tool_addition", "tool_removal"})
"""Types of content blocks that are not rendered at their own position."""


def _arguments(given: object, as_json: bool) -> object:
    arguments = given if isinstance(given, dict) else {}
    return canonical_json(arguments).decode() if as_json else arguments


def _call(call_id: object, name: object, arguments: object) -> Message:
    return {"id": call_id, "type": "function", "function": {"name": name or "", "arguments": arguments}}


def _add_results(block: Mapping[str, Any], into: list[Message]) -> None:
    """Append the messages for a tool's result to `into`: the result's text, its images as a user's message, and the
    tools to which it refers.
    """
    content, answered = block.get("content"), block.get("tool_use_id") or ""
    items = [item for item in content if isinstance(item, dict)] if isinstance(content, list) else ()
    if items:
        content = "\n".join(item["text"] for item in items if item.get("type") == "text" and isinstance(item.get("text"), str))
    into.append({"role": "tool", "tool_call_id": answered, "content": content if isinstance(content, str) else ""})
    images = [_image(item) for item in items if item.get("type") not in ("text", "tool_reference")]
    if images:
        into.append({"role": "user", "content": images})
    names = [name for item in items if item.get("type") == "tool_reference" and (name := item.get("tool_name") or item.get("name"))]
    if names:
        references = [{"type": "tool_reference", "name": name} for name in names]
        into.append({"role": "tool", "tool_call_id": answered, "content": references})


def _image(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an image block as a content part of a chat. Return any other block unchanged."""
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return block
    inline = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return {"type": "image_url", "image_url": {"url": source.get("url", "") if source.get("type") == "url" else inline}}


def _tools_in_effect(tools: object, messages: Iterable[Document]) -> list[Mapping[str, Any]] | None:
    """Return the tools that are available at the end of the conversation, because system messages may add and remove
    tools. None if the request declares no tools.
    """
    declared: list[Mapping[str, Any]] | None = None if tools is None else [tool for tool in _list(tools) if isinstance(tool, dict)]
    changes = [
        block
        for message in messages
        if message.get("role") == "system"
        for block in _list(message.get("content"))
        if isinstance(block, dict) and block.get("type") in ("tool_addition", "tool_removal") and isinstance(block.get("tool"), dict)
    ]
    if not changes:
        return declared
    by_name = {str(tool.get("name")): tool for tool in declared or ()}
    removed: set[str] = set()
    for block in changes:
        change = block["tool"]
        definition = change.get("definition")
        name = str((definition if isinstance(definition, dict) else change).get("name"))
        if isinstance(definition, dict):
            by_name[name] = definition
        elif block["type"] == "tool_addition" and name in by_name:
            by_name[name] = {**by_name[name], "defer_loading": None}
        (removed.add if block["type"] == "tool_removal" else removed.discard)(name)
    return [tool for name, tool in by_name.items() if name not in removed]


def _function(tool: Mapping[str, Any], parameters: object, default: Mapping[str, Any] | None = None) -> Message:
    """Return a tool as a function of a chat. A schema without a type gets the fields of `default`."""
    if default is not None and isinstance(parameters, dict) and "type" not in parameters:
        parameters = {**parameters, **default}
    function = {"name": tool.get("name"), "description": tool.get("description"), "parameters": parameters}
    for field in ("strict", "defer_loading"):
        if tool.get(field) is not None:
            function[field] = tool[field]
    return {"type": "function", "function": function}


def _named(name: object) -> Message:
    return {"type": "function", "function": {"name": name}}


_CUSTOM = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The freeform text payload for this tool."}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters with which vLLM declares a custom tool as a function. Their text becomes part of the prompt."""


def _response_functions(tool: object) -> Iterable[Message]:
    """Yield the functions that represent a tool of the Responses protocol in the prompt; none for some tool types."""
    if not isinstance(tool, dict):
        return
    kind = tool.get("type")
    if kind == "function":
        yield _function(tool, tool.get("parameters"))
    elif kind == "custom":
        yield _function({"name": tool.get("name"), "description": tool.get("description")}, _CUSTOM)
    elif kind == "namespace":
        for inner in _list(tool.get("tools")):
            if isinstance(inner, dict) and inner.get("type") == "function":
                yield _function({**inner, "name": f"{tool.get('name')}__{inner.get('name')}"}, inner.get("parameters"))


def _add_item(item: Mapping[str, Any], into: list[Message]) -> None:
    """Add an item of a response's input to the chat. Thoughts, a text and tool calls in a row become one message."""
    kind = item.get("type")
    if kind == "function_call":
        namespace = item.get("namespace")
        name = f"{namespace}__{item.get('name')}" if namespace else item.get("name")
        _assistant(into).setdefault("tool_calls", []).append(_call(item.get("call_id"), name, item.get("arguments")))
    elif kind == "custom_tool_call":
        arguments = canonical_json({"input": item.get("input") or ""}).decode()
        _assistant(into).setdefault("tool_calls", []).append(_call(item.get("call_id"), item.get("name"), arguments))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        into.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")})
    elif kind == "reasoning":
        _say(into, "reasoning", _first_text(item.get("content")) or _first_text(item.get("summary")) or "")
    elif item.get("role") == "assistant" and (text := _first_text(item.get("content"))) is not None:
        _say(into, "content", text)
    else:
        into.append(dict(item))  # a message, or what the engine knows and we do not


def _is_partial(item: object) -> bool:
    """Return whether an item of a response's input is unfinished, so that the model continues it."""
    if not isinstance(item, dict) or item.get("type", "message") not in ("message", "reasoning"):
        return False
    return item.get("status") in ("in_progress", "incomplete")


def _assistant(into: list[Message]) -> Message:
    """Return the last message of the chat if it is the assistant's. Otherwise add an empty assistant's message and
    return it.
    """
    if not into or into[-1].get("role") != "assistant":
        into.append({"role": "assistant"})
    return into[-1]


def _say(into: list[Message], field: str, text: str) -> None:
    if into and into[-1].get("role") == "assistant" and into[-1].get(field) is None:
        into[-1][field] = text
    else:
        into.append({"role": "assistant", field: text})


def _first_text(content: object) -> str | None:
    """Return the text of a message's content; None if there is none. If the content has several parts, only the first
    part's text is returned, because vLLM uses only this part.
    """
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) else None
