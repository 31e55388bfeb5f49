"""OpenAI answers as bytes: JSON documents, server-sent events, errors."""

from dataclasses import dataclass
from typing import Any

import orjson

from fairlead_simulator.engine_server.openai_requests import Endpoint

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one answer."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def document(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class StreamFormat:
    """Builds the events of one stream. Content must be ASCII without characters JSON escapes."""

    __slots__ = ("_after", "_before", "_endpoint", "_head", "_null_usage")

    def __init__(self, endpoint: Endpoint, request_id: str, model: str, created: int, include_usage: bool) -> None:
        kind = "chat.completion.chunk" if endpoint is Endpoint.CHAT else "text_completion"
        head = orjson.dumps({"id": request_id, "object": kind, "created": created, "model": model})[:-1]
        self._endpoint = endpoint
        self._null_usage = b',"usage":null' if include_usage else b""
        self._head = b"data: " + head + b',"choices":['
        opening = b'{"index":0,"delta":{"content":"' if endpoint is Endpoint.CHAT else b'{"index":0,"text":"'
        closing = b'"},"logprobs":null,"finish_reason":null}]' if endpoint is Endpoint.CHAT else b'","logprobs":null,"finish_reason":null}]'
        self._before = self._head + opening
        self._after = closing + self._null_usage + b"}\n\n"

    def opening(self) -> bytes:
        """The chunk that names the role; completions have none."""
        if self._endpoint is not Endpoint.CHAT:
            return b""
        role = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return self._head + role + self._null_usage + b"}\n\n"

    def content(self, words: bytes) -> bytes:
        return self._before + words + self._after

    def finish(self, reason: str) -> bytes:
        empty = b'"delta":{}' if self._endpoint is Endpoint.CHAT else b'"text":""'
        choice = b'{"index":0,%b,"logprobs":null,"finish_reason":"%b"}]' % (empty, reason.encode("ascii"))
        return self._head + choice + self._null_usage + b"}\n\n"

    def usage(self, usage: Usage, extra: dict[str, Any]) -> bytes:
        return self._head + b"]," + orjson.dumps({"usage": usage.document(), **extra})[1:] + b"\n\n"


def answer_document(
    endpoint: Endpoint, request_id: str, model: str, created: int, text: str, reason: str, usage: Usage, extra: dict[str, Any]
) -> bytes:
    """The whole answer of a request that does not stream."""
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
    if endpoint is Endpoint.CHAT:
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    return orjson.dumps(
        {
            "id": request_id,
            "object": "chat.completion" if endpoint is Endpoint.CHAT else "text_completion",
            "created": created,
            "model": model,
            "choices": [choice],
            "usage": usage.document(),
            **extra,
        }
    )


def error_document(message: str, kind: str, status: int, param: str | None = None) -> bytes:
    """An OpenAI-style error body."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": status}})
