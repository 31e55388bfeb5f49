"""What a prompt's tokens are counted from: its kind, and the bytes of it that its engine will turn into tokens.

Routing reads the text of a prompt. An engine's chat template renders more: tools and earlier calls of them, thoughts,
images, a stored conversation. What of a body is such content decides the prompt's kind, and a token's size is learned
for each kind alone (`fairlead.routing.knowledge.token_sizes`):

    plain text     the bytes of the text
    +tools         the bytes of the whole body, without media: tools and calls are rendered as JSON, nearly as they came
    +media         the bytes of the text, and a fixed number for each image, sound or file: their own bytes say nothing
    +unseen        the bytes of the text, which say little: a part of the prompt is at the engine, or is cut off there
    token ids      four bytes each, exactly
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fairlead.routing.knowledge.token_sizes import GIVEN_IDS
from fairlead_router.paths import Endpoint

MEDIA_BYTES = 4096
"""What an image, sound or file counts for: about a thousand tokens of text, as vision models make of a photo."""

LONG_TEXT = 1024
"""Strings of a media part that are longer are taken for its content: a reference to it is shorter."""

_TOOLS = frozenset({"tools", "functions"})
_TOOLS_OF_CHATS = _TOOLS | {"documents"}
"""Fields of a body that chat templates render beside the messages, and that the text of the prompt lacks."""
_UNSEEN = frozenset({"previous_response_id", "conversation", "prompt_embeds", "truncate_prompt_tokens", "chat_template", "suffix"})
"""Fields that make a prompt longer or shorter by what is not in its text."""
_BEYOND_MESSAGES = _TOOLS_OF_CHATS | _UNSEEN | {"truncation", "prompt", "input"}
_CALLS = frozenset({"tool_calls", "function_call", "reasoning", "reasoning_content", "encrypted_content", "summary"})
"""Fields of a message that chat templates render, and that the text of the prompt lacks."""
_READ = frozenset({"text", "input_text", "output_text", "thinking", "tool_result", "function_call", "function_call_output", "message"})
"""Types of parts whose content is in the text of the prompt."""
_CALLED = frozenset({"tool_use", "server_tool_use", "mcp_tool_use", "reasoning", "redacted_thinking", "refusal"})
"""Types of parts that are rendered as text that the text of the prompt lacks."""

Document = Mapping[str, Any]


class PromptSize(NamedTuple):
    """`counted_bytes` are what the prompt's tokens are counted from."""

    kind: str
    counted_bytes: int
    is_plain_text: bool


def prompt_size(endpoint: Endpoint, document: Document, prompt: bytes, body_bytes: int) -> PromptSize:
    """What the tokens of a request's prompt are counted from; `body_bytes` is the length of its body."""
    if _is_plain_chat(document):
        return PromptSize(endpoint.path, len(prompt), endpoint.streams)
    if _is_token_ids(document):
        return PromptSize(GIVEN_IDS, len(prompt), False)
    tools, media, media_bytes = _beyond_text(document, _TOOLS_OF_CHATS if endpoint.streams else _TOOLS)
    if _any_of(document, _UNSEEN) or document.get("truncation") == "auto":
        return PromptSize(endpoint.path + "+unseen", len(prompt), False)
    counted = max(len(prompt), body_bytes - media_bytes) if tools else len(prompt)
    kind = endpoint.path + "+tools" * tools + "+media" * bool(media)
    return PromptSize(kind, counted + media * MEDIA_BYTES, endpoint.streams and not tools and not media)


def _is_plain_chat(document: Document) -> bool:
    """Whether its messages have nothing but texts, and no other field matters."""
    messages = document.get("messages")
    if not isinstance(messages, list) or not _BEYOND_MESSAGES.isdisjoint(document):
        return False
    texts = [one for one in messages if isinstance(one, dict) and isinstance(one.get("content"), str) and _CALLS.isdisjoint(one)]
    return len(texts) == len(messages)


def _any_of(document: Document, fields: frozenset[str]) -> bool:
    """Whether one of the fields says something."""
    return not fields.isdisjoint(document) and any(document.get(field) for field in fields)


def _is_token_ids(document: Document) -> bool:
    given = document.get("prompt") if "prompt" in document else document.get("input")
    if not isinstance(given, list) or not given:
        return False
    first = given[0]
    return type(first) is int or (isinstance(first, list) and bool(first) and type(first[0]) is int)


def _beyond_text(document: Document, fields: frozenset[str]) -> tuple[bool, int, int]:
    """Whether there is rendered content that the text lacks, how many media there are, and the bytes of these."""
    tools = _any_of(document, fields)
    media = media_bytes = 0
    for item in _items(document):
        if not tools and _any_of(item, _CALLS):
            tools = True
        if isinstance(item.get("content"), str):
            continue
        for part in _parts(item):
            kind = part.get("type")
            if not isinstance(kind, str):  # a bare text, or what the engine will refuse
                continue
            if kind in _CALLED:
                tools = True
            elif kind not in _READ:
                media += 1
                media_bytes += _long_texts(part, 3)
    return tools, media, media_bytes


def _items(document: Document) -> list[Document]:
    """Messages, or the items of a response's input."""
    given = document.get("messages")
    items = document.get("input") if given is None else given
    if not isinstance(items, list):
        return []
    found: list[Document] = [item for item in items if isinstance(item, dict)]
    for item in items if len(found) < len(items) else ():
        if isinstance(item, list):  # the conversations of a batch
            found += [one for one in item if isinstance(one, dict)]
    return found


def _parts(item: Document) -> Iterable[Document]:
    """The parts of a message's content, also of the results of tools in it; an item that is a part itself."""
    content = item.get("content")
    if content is None and "type" in item:
        yield item
        return
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            yield part
            inner = part.get("content")
            if isinstance(inner, list):
                yield from (one for one in inner if isinstance(one, dict))


def _long_texts(value: object, depth: int) -> int:
    """Bytes of the long strings in a media part, which are the medium itself."""
    if isinstance(value, str):
        return len(value) if len(value) > LONG_TEXT else 0
    if isinstance(value, dict) and depth:
        return sum(_long_texts(one, depth - 1) for one in value.values())
    return 0
