"""Parsing of OpenAI request bodies, as much of it as a simulated engine needs."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson

DEFAULT_MAX_TOKENS = 128


class RequestInvalid(Exception):
    """A body the engine cannot serve. `status` is the HTTP status, `param` the field at fault."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, kind: str = "BadRequestError") -> None:
        self.param = param
        self.status = status
        self.kind = kind
        super().__init__(message)


class Endpoint(Enum):
    """Which of the two generation endpoints."""

    CHAT = "chat"
    COMPLETIONS = "completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A checked request. `prompt` is the UTF-8 text of all messages in order, with nothing between them."""

    endpoint: Endpoint
    prompt: bytes
    max_tokens: int
    limited: bool
    """Whether the client set the length (then the answer ends by length, else by itself)."""
    stream: bool
    include_usage: bool


def parse_generation(endpoint: Endpoint, body: bytes, model: str) -> GenerationRequest:
    """Check a request body against the model served. Raises RequestInvalid."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestInvalid(f"The request body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise RequestInvalid("The request body must be a JSON object")
    asked = document.get("model", model)
    if asked != model:
        raise RequestInvalid(f"The model `{asked}` does not exist.", "model", 404, "NotFoundError")
    if document.get("n") not in (None, 1):
        raise RequestInvalid("Only n=1 is supported", "n")
    limit = _max_tokens(document)
    stream = _flag(document, "stream")
    options = document.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise RequestInvalid("stream_options must be an object", "stream_options")
    prompt = _chat_prompt(document) if endpoint is Endpoint.CHAT else _completion_prompt(document)
    return GenerationRequest(
        endpoint=endpoint,
        prompt=prompt,
        max_tokens=DEFAULT_MAX_TOKENS if limit is None else limit,
        limited=limit is not None,
        stream=stream,
        include_usage=_flag(options or {}, "include_usage"),
    )


def _flag(document: dict[str, Any], name: str) -> bool:
    value = document.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise RequestInvalid(f"{name} must be true or false, not {value!r}", name)


def _max_tokens(document: dict[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = document.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RequestInvalid(f"{name} must be at least 1, got {value!r}.", name)
        return value
    return None


def _chat_prompt(document: dict[str, Any]) -> bytes:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestInvalid("messages must be a non-empty list", "messages")
    pieces: list[str] = []
    for position, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RequestInvalid(f"messages[{position}] must be an object with a role", "messages")
        content = message.get("content")
        if isinstance(content, str):
            pieces.append(content)
        elif isinstance(content, list):
            for part in content:
                if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                    raise RequestInvalid(f"messages[{position}].content may hold parts of type text only", "messages")
                pieces.append(part["text"])
        elif content is not None:
            raise RequestInvalid(f"messages[{position}].content must be a string or a list of text parts", "messages")
    return _encode(pieces[0] if len(pieces) == 1 else "".join(pieces))


def _completion_prompt(document: dict[str, Any]) -> bytes:
    prompt = document.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise RequestInvalid("prompt must be a string (or a list of one string)", "prompt")
    return _encode(prompt)


def _encode(text: str) -> bytes:
    return text.encode("utf-8")
