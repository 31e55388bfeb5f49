"""The text that an engine computes for a conversation, in any protocol: all texts of the conversation in order, without
separators.

A real engine's chat template puts role markers between the texts. The simulated engine leaves them out. Therefore the
prompt of a conversation's next turn begins with the whole previous prompt and answer, and finds them in the prefix
cache. Definitions of tools are not part of the text.
"""

from typing import Any

from fairlead_simulator.engine_server.request_errors import RequestInvalid, missing, unsuitable

_TEXT_FIELDS = ("text", "content", "thinking", "arguments", "output")
"""Fields of a message part that hold text, in the order in which a chat template writes them."""

_PARTS = frozenset({"text", "refusal", "thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference"})
"""Accepted types of the parts of a chat message and of the blocks of an Anthropic message."""

_DEEPEST = 8
_PARTS_WITHOUT_TEXT = frozenset(
    {"image", "image_url", "input_image", "input_audio", "input_file", "audio_url", "video_url", "file", "document"}
)


def chat_prompt(messages: object, model: str, field: str = "messages") -> bytes:
    """Return the prompt text of the `messages` of a chat. Raises RequestInvalid."""
    texts: list[str] = []
    for position, message in enumerate(_filled_list(messages, field)):
        if not isinstance(message, dict):
            raise unsuitable(f"{field}.{position}", message, "an object with a role")
        if not isinstance(message.get("role"), str):
            raise unsuitable(f"{field}.{position}.role", message.get("role"), "a valid string")
        content = message.get("content")
        if content is not None and not isinstance(content, str | list):
            raise unsuitable(f"{field}.{position}.content", content, "a valid string or a list of parts")
        for place, part in enumerate(content if isinstance(content, list) else ()):
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in _PARTS and kind not in _PARTS_WITHOUT_TEXT:
                raise unsuitable(f"{field}.{position}.content.{place}.type", kind, " or ".join(sorted(_PARTS)))
        _collect(content, texts, model, 0)
    return "".join(texts).encode()


def anthropic_prompt(system: object, messages: object, model: str) -> bytes:
    """Return the prompt text of an Anthropic request: the text of `system` followed by the texts of `messages`. Raises
    RequestInvalid.
    """
    texts: list[str] = []
    if system is not None and not isinstance(system, str | list):
        raise unsuitable("system", system, "a valid string or a list of blocks")
    _collect(system, texts, model, 0)
    return "".join(texts).encode() + chat_prompt(messages, model)


def responses_prompt(given: object, model: str) -> bytes:
    """Return the prompt text of the field `input` of a request to the responses API, which is a text or a list of
    items. Raises RequestInvalid.
    """
    if given is None:
        raise missing("input")
    if not isinstance(given, str | list):
        raise unsuitable("input", given, "a valid string or a list of items")
    texts: list[str] = []
    _collect(given, texts, model, 0)
    return "".join(texts).encode()


def _filled_list(messages: object, field: str) -> list[Any]:
    if not isinstance(messages, list):
        raise unsuitable(field, messages, "a valid list")
    if not messages:
        raise RequestInvalid("Cannot apply chat template to an empty conversation. Provide at least one message.")
    return messages


def _collect(value: object, into: list[str], model: str, depth: int) -> None:
    if isinstance(value, str):
        into.append(value)
    elif depth >= _DEEPEST:
        return
    elif isinstance(value, list):
        for part in value:
            _collect(part, into, model, depth + 1)
    elif isinstance(value, dict):
        if value.get("type") in _PARTS_WITHOUT_TEXT:
            raise RequestInvalid(f"{model} is not a multimodal model")
        for field in _TEXT_FIELDS:
            if field in value:
                _collect(value[field], into, model, depth + 1)
