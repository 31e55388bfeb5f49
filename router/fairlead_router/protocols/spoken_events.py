"""Reads the events of a streamed answer, in each protocol: content, the end of the answer, failures and token counts.

Sources: OpenAI's and Anthropic's references of streamed events, and the events that vLLM 0.32 and SGLang send for them.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, NamedTuple

import orjson

from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.usages import Figures

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_OPENAI: Final = Dialect.OPENAI

GAVE_UP = ("error", "abort")
"""Finish reasons that show that the engine, and not the model or the client, ended the answer. Engines abort their
requests when they stop.
"""

_LONGEST_MESSAGE = 500
_STATUSES = frozenset(status.value for status in HTTPStatus if status.value >= 400)

_ANTHROPIC_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 503,
    "timeout_error": 504,
}
_TEXTS = ("reasoning", "reasoning_content", "refusal", "tool_calls", "function_call", "audio")
_ANTHROPIC_TEXTS = ("text", "partial_json", "thinking", "citation")
_RESPONSE_TEXTS = ("text", "arguments", "refusal", "input")


class Failure(NamedTuple):
    """The reason why an answer with a success status is not valid. `status`: the engine's own status code for the
    failure; 0 = it has none.
    """

    message: str
    status: int = 0


def failure_of(error: Any) -> Failure:
    """Return the failure that an engine's error describes. The error is an object or a text."""
    if isinstance(error, dict) and isinstance(error.get("error"), dict):  # SGLang wraps Anthropic's form once more
        error = error["error"]
    if not isinstance(error, dict):
        return Failure(_words(error))
    message, kind = error.get("message"), error.get("type")
    return Failure(_words(message or kind or "no message"), _status_of(error.get("code"), kind))


def _words(value: Any) -> str:
    """Return an engine's message, shortened and in a form that is safe in a response and in a log."""
    if isinstance(value, list | dict):
        try:
            value = orjson.dumps(value)[: 4 * _LONGEST_MESSAGE].decode("utf-8", "replace")
        except orjson.JSONEncodeError:  # nested too deeply, or not to be written as UTF-8
            value = "no message that can be read"
    text = value if isinstance(value, str) else str(value)
    return text[:_LONGEST_MESSAGE].encode("utf-8", "replace").decode()


def _status_of(code: Any, kind: Any) -> int:
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code[:4])
    if not isinstance(code, int) and isinstance(kind, str):
        code = _ANTHROPIC_STATUS.get(kind, 0)
    return code if isinstance(code, int) and code in _STATUSES else 0


class Spoken:
    """Collects facts from the events of one answer. Call `hear` with each event."""

    __slots__ = ("answers", "closed", "deltas", "done", "failure", "figures", "only_counts", "opened", "response_id", "started", "told_at")

    def __init__(self) -> None:
        self.answers = 1
        """Number of answers that the request asks for. An engine may begin an answer only when it has ended another
        answer.
        """
        self.started = False
        """Whether any generated content has arrived."""
        self.deltas = 0
        """Number of events with generated content."""
        self.done = False
        """Whether the protocol's last event has arrived."""
        self.opened: set[Any] = set()
        self.closed: set[Any] = set()
        """Indexes of the choices that have ended with a finish reason; `opened` has the indexes of the choices that
        have begun.
        """
        self.failure: Failure | None = None
        self.figures = Figures()
        self.told_at = 0
        """The value of `deltas` at the time at which the engine last reported its number of output tokens."""
        self.response_id: str | None = None
        self.only_counts = False
        """Whether the last event has nothing but the engine's token counts."""

    @property
    def finished(self) -> bool:
        """Whether the answer is complete: its last event has arrived, or all of its choices have ended."""
        return self.done or (len(self.closed) >= self.answers and self.closed >= self.opened)

    @property
    def goes_on(self) -> bool:
        """Whether further events are read, because neither the last event nor a failure has arrived."""
        return not self.done and self.failure is None

    @property
    def is_answer(self) -> bool:
        """Whether the answer has content, or a finish reason, which makes an answer without content valid."""
        return self.started or bool(self.closed)

    def hear(self, name: bytes, document: Any) -> None:
        """Read the next event: its name and its decoded data. The data are None if they are not JSON."""
        raise NotImplementedError

    def hear_plain(self) -> None:
        """Record an event that has only text of a single choice. The caller counts it in `deltas`."""
        self.only_counts = False
        self.started = True
        self.opened.add(0)

    def ends(self) -> None:
        """Record that `[DONE]` has arrived."""
        self.done = True

    def _content(self) -> None:
        self.started = True
        self.deltas += 1

    def _count(self, usage: Any) -> None:
        if self.figures.take(usage):
            self.told_at = self.deltas

    def _hear_chunk(self, document: dict[str, Any]) -> None:
        """Read a chunk of a chat or completion. Some engines send such chunks in every protocol."""
        choices = document.get("choices")
        if choices and isinstance(choices, list):
            has_content = False
            for choice in choices:
                has_content |= self._hear_choice(choice)
            if has_content:
                self._content()
        usage = document.get("usage")
        if isinstance(usage, dict):
            self.only_counts = not choices or not isinstance(choices, list)
            self._count(usage)

    def _hear_choice(self, choice: Any) -> bool:
        if not isinstance(choice, dict):
            return False
        index, reason = choice.get("index", 0), choice.get("finish_reason")
        if isinstance(index, int):
            self.opened.add(index)
            if reason:  # some engines send "" with each piece
                self.closed.add(index)
        if reason in GAVE_UP:
            self.failure = self.failure or Failure(f"it ended with finish_reason {reason}")
        if choice.get("text") or choice.get("token_ids"):  # tokens may come before their text, or without any
            return True
        delta = choice.get("delta")
        return isinstance(delta, dict) and bool(delta.get("content") or any(delta.get(text) for text in _TEXTS))


class SpokenChoices(Spoken):
    """Collects facts from the chunks of OpenAI's chats and completions."""

    __slots__ = ()

    def hear(self, name: bytes, document: Any) -> None:
        """See `Spoken`."""
        if not isinstance(document, dict):
            self._hear_none(name)
            return
        error = document.get("error")
        if error or name == b"error" or document.get("object") == "error":
            self.failure = self.failure or failure_of(error or document)
            return
        self._hear_chunk(document)

    def _hear_none(self, name: bytes) -> None:
        if name == b"error":
            self.failure = self.failure or Failure("an error event")


class SpokenMessage(Spoken):
    """Collects facts from the events of Anthropic's protocol."""

    __slots__ = ()

    def hear(self, name: bytes, document: Any) -> None:
        """See `Spoken`."""
        document = document if isinstance(document, dict) else {}
        kind = document.get("type") or name.decode("latin-1")
        if "choices" in document:
            self._hear_chunk(document)
        elif kind == "error" or document.get("error"):
            self.failure = self.failure or failure_of(document.get("error") or document)
        elif kind == "content_block_delta":
            self.opened.add(0)
            delta = document.get("delta")
            if isinstance(delta, dict) and any(delta.get(text) for text in _ANTHROPIC_TEXTS):
                self._content()
        elif kind == "content_block_start":
            self._hear_block(document.get("content_block"))
        elif kind == "message_start":
            message = document.get("message")
            if isinstance(message, dict) and isinstance(usage := message.get("usage"), dict):
                self.figures.take({name: count for name, count in usage.items() if name != "output_tokens"})
        elif kind == "message_delta":
            self._hear_end(document.get("delta"))
            self._count(document.get("usage"))
        elif kind == "message_stop":
            self.done = True

    def _hear_end(self, delta: Any) -> None:
        """Read the stop reason of the message. vLLM sends null if the engine, not the model, has ended the message."""
        if isinstance(delta, dict) and "stop_reason" in delta:
            if delta["stop_reason"]:
                self.closed.add(0)
            else:
                self.failure = self.failure or Failure("it ended without a stop_reason")

    def _hear_block(self, block: Any) -> None:
        """Read the beginning of a content block. The beginning of a tool call already counts as content, because it has
        the tool's name.
        """
        if isinstance(block, dict) and (block.get("text") or block.get("thinking") or block.get("name") or block.get("data")):
            self.started = True


class SpokenResponse(Spoken):
    """Collects facts from the events of OpenAI's Responses protocol."""

    __slots__ = ()

    def hear(self, name: bytes, document: Any) -> None:
        """See `Spoken`."""
        document = document if isinstance(document, dict) else {}
        kind = document.get("type") or name.decode("latin-1")
        kind = kind if isinstance(kind, str) else ""
        response = document.get("response")
        response = response if isinstance(response, dict) else {}
        if self.response_id is None and isinstance(response.get("id"), str):
            self.response_id = response["id"]
        if "choices" in document:
            self._hear_chunk(document)
        elif kind.endswith(".delta"):
            if document.get("delta"):
                self._content()
        elif kind.endswith(".done"):
            self.started = self.started or any(document.get(text) for text in _RESPONSE_TEXTS)
        elif kind == "response.output_item.added":
            item = document.get("item")
            self.started = self.started or (isinstance(item, dict) and bool(item.get("name")))
        elif kind in ("response.failed", "error") or document.get("error") or response.get("status") == "failed":
            self.failure = self.failure or failure_of(response.get("error") or document.get("error") or document)
        elif response.get("status") == "cancelled" and response.get("background") is False:  # so its engine gave up
            self.failure = self.failure or Failure("it was cancelled")
        elif kind in ("response.completed", "response.incomplete", "response.cancelled"):
            self.done = True
            self.closed.add(0)
            self.started = self.started or bool(response.get("output"))
        if response.get("usage"):
            self._count(response["usage"])


def listener(dialect: Dialect) -> Spoken:
    """Return the reader for the events of this protocol."""
    if dialect is _OPENAI:
        return SpokenChoices()
    return SpokenMessage() if dialect is Dialect.ANTHROPIC else SpokenResponse()
