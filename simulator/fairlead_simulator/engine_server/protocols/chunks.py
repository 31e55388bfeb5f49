"""The common parts of chats and text completions: usage documents, and streams of chunks that end with `data:
[DONE]`.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.fields import Document
from fairlead_simulator.engine_server.request_errors import RequestInvalid, unsuitable
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.engine_server.work import Run, Usage

DONE = b"data: [DONE]\n\n"


def usage_document(usage: Usage, created_tokens: int | None) -> dict[str, Any]:
    """Return the usage in the format of chats and text completions. `created_tokens` is the number of prompt tokens
    that filled new cache blocks; only chats report it, so it is None for text completions.
    """
    return {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.total_tokens,
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "created_cache_tokens": created_tokens, "multimodal_tokens": None},
        "completion_tokens_details": None,
    }


def sum_of(usages: list[Usage], copies: int = 1) -> Usage:
    """Return the total usage of several answers. `usages` lists `copies` answers for the first prompt, then for the
    second, and so on. The tokens of each prompt are counted only once.
    """
    prompts = usages[::copies]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in prompts),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in prompts),
        created_tokens=sum(usage.created_tokens for usage in prompts),
    )


class StreamOptions:
    """The options of a request that concern streaming: whether the client wants a stream, and what its chunks
    contain.
    """

    __slots__ = ("continuous_usage", "include_usage", "stream", "token_ids")

    def __init__(self, document: Document) -> None:
        self.stream = fields.flag(document, "stream")
        options = document.get("stream_options")
        if options is not None and not isinstance(options, dict):
            raise unsuitable("stream_options", options, "an object")
        if options is not None and not self.stream:
            raise RequestInvalid("Stream options can only be defined when `stream=True`. (parameter=stream_options)", "stream_options")
        self.token_ids = fields.flag(document, "return_token_ids")
        self.include_usage = fields.flag(options or {}, "include_usage")
        self.continuous_usage = self.include_usage and fields.flag(options or {}, "continuous_usage_stats")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkShape:
    """The parts of a chunk that differ between chats and text completions: the choice that opens a stream, and the
    fields before and after the words of every later choice.
    """

    kind: str
    opening: bytes
    before: bytes
    after: bytes
    unfinished: bytes
    """The fields between the words and `ids`, in every choice but the last. The last choice has a finish reason
    instead.
    """
    ids: bytes
    """The field names before the ids of the words. For text completions, they include a field with the prompt's ids."""
    counts: dict[str, Any]
    """Empty fields that accompany the token counts in usage documents of the stream."""
    tells_created_tokens: bool


class ChunkForm:
    """The format of a streamed chat or text completion. If the request has `return_token_ids`, the first chunk has the
    prompt's ids, and each chunk has the ids of its words.
    """

    __slots__ = ("_before", "_fingerprint", "_head", "_options", "_prompt_ids", "_prompt_tokens", "_shape", "_tokenizer")

    def __init__(self, instance: ServedInstance, request_id: str, options: StreamOptions, shape: ChunkShape, prompt: bytes) -> None:
        head = {"id": request_id, "object": shape.kind, "created": instance.now(), "model": instance.settings.model}
        self._shape = shape
        self._options = options
        self._fingerprint = orjson.dumps(instance.settings.version)
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        self._before = self._head + shape.before
        self._prompt_tokens = 0
        self._tokenizer = instance.tokenizer if options.token_ids else None
        self._prompt_ids = b"null" if self._tokenizer is None else orjson.dumps(self._tokenizer.ids(prompt))

    def _ids(self, words: bytes) -> bytes:
        """Return the fields with the token ids of `words`. In a text completion they include the prompt's ids, which
        only the first call returns.
        """
        ids = b"null" if self._tokenizer is None else orjson.dumps(self._tokenizer.ids(words))
        if b"%b" not in self._shape.ids:
            return self._shape.ids + ids
        prompt, self._prompt_ids = self._prompt_ids, b"null"
        return self._shape.ids % prompt + ids

    def preface(self) -> bytes:
        return b""

    def opening(self, run: Run) -> bytes:
        self._prompt_tokens = run.prompt_tokens
        if not self._shape.opening:
            return b""
        return (
            self._head
            + self._shape.opening
            + b"]"
            + self._continuous(0)
            + b',"prompt_token_ids":%b,"prompt_text":null}\n\n' % self._prompt_ids
        )

    def content(self, words: bytes, tokens: int) -> bytes:
        return (
            self._before
            + words
            + self._shape.after
            + self._shape.unfinished
            + b","
            + self._ids(words)
            + b"}]"
            + self._continuous(tokens)
            + b"}\n\n"
        )

    def closing(self, words: bytes, run: Run, extra: dict[str, Any]) -> bytes:
        usage, shape = run.usage(), self._shape
        told = self._options.include_usage or bool(extra)
        fingerprint = b',"system_fingerprint":' + self._fingerprint
        reason = b',"finish_reason":"%b","stop_reason":null,%b}]' % (run.finish_reason.encode("ascii"), self._ids(words))
        last = self._continuous(usage.completion_tokens) + (b"" if told else fingerprint) + b"}\n\n"
        parts = [self._before, words, shape.after, reason, last]
        if told:
            details = {"cached_tokens": usage.cached_tokens} | (
                {"created_cache_tokens": usage.created_tokens} if shape.tells_created_tokens else {}
            )
            counts = _counts(usage.prompt_tokens, usage.completion_tokens) | {"prompt_tokens_details": details}
            parts += (self._head, b"],", orjson.dumps({"usage": counts, **extra})[1:-1], fingerprint, b"}\n\n")
        parts.append(DONE)
        return b"".join(parts)

    def _continuous(self, tokens: int) -> bytes:
        if not self._options.continuous_usage:
            return b""
        return b',"usage":' + orjson.dumps(_counts(self._prompt_tokens, tokens) | self._shape.counts)


def _counts(prompt: int, completion: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
