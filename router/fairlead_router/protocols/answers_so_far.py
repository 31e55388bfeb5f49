"""Collects the part of a streamed answer that a client has received, so that another engine can continue the answer.

While an answer passes, its pieces are only kept. They are parsed when they are large in total, or when another engine
shall continue the answer. An event that differs from an earlier event only in its text is parsed by comparing bytes.
Other events are decoded.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from typing import Any

import orjson

from fairlead_router.protocols.answers import decoded, parse_event, split_events
from fairlead_router.protocols.dialects import Dialect

MOST_TEXT = 1024 * 1024
"""Maximum number of characters of an answer that are kept, about a quarter of a million tokens. A longer answer is not
continued by another engine.
"""
SETTLED_BYTES = 128 * 1024
"""Number of bytes of kept pieces above which the next check parses them. After that only the text is kept, which takes
a fiftieth of the bytes of its events.
"""

_TEXT = re.compile(rb'"(?:content|text)" ?: ?"([^"\\]+)"')
_THOUGHTS = ("reasoning", "reasoning_content")
_OTHERS = ("tool_calls", "function_call", "audio", "refusal")


class AnswerSoFar:
    """The received part of one answer. `pieces`: whole events that the client has received; `settle` parses and removes
    them.
    """

    __slots__ = (
        "_after", "_alike", "_before", "_prompt_ids", "_texts", "_thoughts", "_token_ids", "_weighed", "_weight", "choices", "deltas",
        "first", "has_end", "has_ids", "has_logprobs", "has_others", "ids_lead", "is_too_long", "length", "pieces",
    )  # fmt: skip

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.first: dict[str, Any] = {}
        """The fields that identify the answer, from its first event; empty before that event."""
        self.deltas = 0
        """Number of events with generated content. The number of generated tokens is at least as large."""
        self.length = 0
        self.is_too_long = False
        """Whether the answer exceeded `MOST_TEXT` and is no longer kept."""
        self.choices: set[int] = set()
        """The indexes of the choices that have begun."""
        self.has_others = False
        """Whether the client has received content other than text and thoughts, such as a tool call."""
        self.has_end = False
        """Whether the answer's finish reason has arrived."""
        self.has_logprobs = False
        self._prompt_ids, self._token_ids = array("I"), array("I")
        self.has_ids = True
        """Whether the engine sent token ids for all of the text."""
        self.ids_lead = False
        """Whether the engine has sent token ids whose text it has not sent yet."""
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._before = b"\0"
        self._after = b""
        self._alike: list[bytes] = []
        self._weighed = self._weight = 0
        """Number of pieces that `settle_if_large` has measured (`_weighed`), and the sum of their bytes (`_weight`)."""

    @property
    def text(self) -> str:
        """The text of the answer so far. Raises UnicodeError if only one half of a surrogate pair has arrived."""
        return "".join(self._texts).encode("utf-16-le", "surrogatepass").decode("utf-16-le")

    @property
    def thoughts(self) -> str:
        """The thoughts so far. Raises UnicodeError if only one half of a surrogate pair has arrived."""
        return "".join(self._thoughts).encode("utf-16-le", "surrogatepass").decode("utf-16-le")

    @property
    def has_content(self) -> bool:
        """Whether the client has received any generated content."""
        return bool(self._texts or self._thoughts or self._token_ids or self.has_others or self.is_too_long)

    @property
    def has_token_ids(self) -> bool:
        """Whether the client has received token ids."""
        return bool(self._token_ids)

    @property
    def ids(self) -> list[int]:
        """The token ids of the text so far; empty if the engine did not send token ids for all of the text."""
        return list(self._token_ids) if self.has_ids else []

    @property
    def prompt_ids(self) -> list[int]:
        """The token ids of the prompt, if the engine sent them because the client requested them; otherwise empty."""
        return list(self._prompt_ids)

    def settle_if_large(self) -> None:
        """Parse the pieces that have arrived since the last `settle`, if they exceed SETTLED_BYTES in total."""
        self._weight += sum(map(len, self.pieces[self._weighed :]))
        self._weighed = len(self.pieces)
        if self._weight > SETTLED_BYTES:
            self.settle()

    def settle(self) -> None:
        """Parse the pieces that have arrived since the last call, and remove them from `pieces`."""
        if not self.pieces:
            return
        data = b"".join(self.pieces)
        self.pieces.clear()
        self._weighed = self._weight = 0
        if self.is_too_long:
            return
        before, after = self._before, self._after
        for raw in split_events(data):
            end = len(raw) - len(after)
            if raw.startswith(before) and raw.endswith(after) and len(before) < end and raw.find(b'"', len(before), end) < 0:
                self._alike.append(raw[len(before) : end])
                continue
            self._take_alike()
            self._read(raw)
            before, after = self._before, self._after
        self._take_alike()
        if self.length > MOST_TEXT:
            self.is_too_long = True
            self.forget()

    def forget(self) -> None:
        """Drop the texts and token ids of the answer, because the answer is too long."""
        self._texts.clear()
        self._thoughts.clear()
        self._prompt_ids, self._token_ids = array("I"), array("I")

    def _take_alike(self) -> None:
        if self._alike:
            self.deltas += len(self._alike)
            self.has_ids = False  # events with ids are read one by one
            self._say(decoded(b'"%b"' % b"".join(self._alike)))
            self._alike.clear()

    def _say(self, text: str) -> None:
        self._texts.append(text)
        self.length += len(text)

    def _think(self, text: str) -> None:
        self._thoughts.append(text)
        self.length += len(text)

    def _read(self, raw: bytes) -> None:
        name, data = parse_event(raw)
        document = decoded(data) if data and data != b"[DONE]" else None
        if not isinstance(document, dict):
            return
        texts, besides = len(self._texts), len(self._thoughts) + len(self._token_ids)
        self.hear(name, document)
        if len(self._texts) == texts or len(self._thoughts) + len(self._token_ids) > besides:
            return  # the next event is not to be taken for alike: a repeated token has the same ids too
        if (found := _TEXT.search(raw)) is not None and found[1].decode() == self._texts[-1]:
            self._before, self._after = raw[: found.start(1)], raw[found.end(1) :]

    def hear(self, name: bytes, document: dict[str, Any]) -> None:
        """Read an event: its name and its decoded data."""
        raise NotImplementedError


class ChunksSoFar(AnswerSoFar):
    """The answer so far of a chat or a completion."""

    __slots__ = ()

    def hear(self, name: bytes, document: dict[str, Any]) -> None:
        """See `AnswerSoFar`."""
        choices = document.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._hear_choice(choice, document)
        if not self.first:
            self.first = {field: given for field, given in document.items() if field in ("id", "object", "created", "model")}

    def _hear_choice(self, choice: dict[str, Any], chunk: dict[str, Any]) -> None:
        if type(index := choice.get("index", 0)) is int:
            self.choices.add(index)
        self.has_end = self.has_end or bool(choice.get("finish_reason"))
        self.has_logprobs = self.has_logprobs or bool(choice.get("logprobs"))
        self._prompt_ids = self._prompt_ids or _ids(chunk.get("prompt_token_ids")) or _ids(choice.get("prompt_token_ids"))
        delta = choice.get("delta")
        said = choice if not isinstance(delta, dict) else delta
        text = said.get("text" if said is choice else "content")
        thoughts = next((given for name in _THOUGHTS if isinstance(given := said.get(name), str) and given), None)
        self.has_others = self.has_others or any(said.get(name) for name in _OTHERS)
        ids = _ids(choice.get("token_ids"))
        if isinstance(text, str) and text:
            self._say(text)
        if thoughts is not None:
            self._think(thoughts)
        if text or thoughts:
            self.deltas += 1
            self.has_ids = self.has_ids and bool(ids)
        self.ids_lead = not (text or thoughts) and (self.ids_lead or bool(ids))
        self._token_ids.extend(ids)


class MessageSoFar(AnswerSoFar):
    """The answer so far in Anthropic's protocol."""

    __slots__ = ("block", "block_kind")

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__(pieces)
        self.block = -1
        """The index of the last content block; -1 before the first block."""
        self.block_kind = ""
        """The type of the open content block; "" while no block is open."""
        self.has_ids = False

    def hear(self, name: bytes, document: dict[str, Any]) -> None:
        """See `AnswerSoFar`."""
        kind = document.get("type")
        if kind == "message_start":
            self.first = document
        elif kind == "content_block_start":
            block = document.get("content_block")
            self.block = document["index"] if type(document.get("index")) is int else self.block + 1
            self.block_kind = str(block.get("type")) if isinstance(block, dict) else ""
            self.has_others = self.has_others or self.block_kind not in ("text", "thinking")
            if isinstance(block, dict) and isinstance(text := block.get("text"), str) and text:
                self._say(text)
        elif kind == "content_block_stop":
            self.block_kind = ""
        elif kind == "message_delta":
            self.has_end = True
        elif kind == "content_block_delta":
            delta = document.get("delta")
            if isinstance(delta, dict):
                self._hear_delta(delta)

    def _hear_delta(self, delta: dict[str, Any]) -> None:
        self.deltas += 1
        if delta.get("type") == "text_delta" and isinstance(text := delta.get("text"), str):
            self._say(text)
        elif delta.get("type") == "thinking_delta" and isinstance(thinking := delta.get("thinking"), str):
            self._think(thinking)
        elif delta.get("type") != "signature_delta":
            self.has_others = True


BEGINNINGS = frozenset({"created", "in_progress", "queued"})
"""Types of the events that come before the first output item of a response."""


class ResponseSoFar(AnswerSoFar):
    """The answer so far in OpenAI's Responses protocol."""

    __slots__ = ("begun", "ended", "items", "open_item", "output_index", "part", "sequence")

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__(pieces)
        self.has_ids = False
        self.sequence = 0
        """The sequence number that the next event will have."""
        self.items: list[Any] = []
        """The complete items of the output."""
        self.open_item = ""
        """The id of the output item that has begun and not ended; "" if there is none."""
        self.part = False
        """Whether a content part of the open item has begun."""
        self.begun: set[str] = set()
        """Types of the received events that come before the first output item."""
        self.ended: set[str] = set()
        """Types of the received events that end a part of the open item."""
        self.output_index = 0

    def hear(self, name: bytes, document: dict[str, Any]) -> None:
        """See `AnswerSoFar`."""
        kind = str(document.get("type") or name.decode("latin-1")).removeprefix("response.")
        if type(number := document.get("sequence_number")) is int:
            self.sequence = number + 1
        item = document.get("item")
        if kind in BEGINNINGS:
            self.begun.add(kind)
            if not self.first and isinstance(document.get("response"), dict):
                self.first = document["response"]
        elif kind == "output_item.added" and isinstance(item, dict):
            self.open_item = str(item.get("id") or "")
            self.output_index = document["output_index"] if type(document.get("output_index")) is int else len(self.items)
            self.has_others = self.has_others or item.get("type") not in ("message", "reasoning")
        elif kind == "content_part.added":
            self.part = True
        elif kind == "output_item.done":
            self.items.append(item)
            self.length += len(encoded(document))
            self.open_item, self.part = "", False
            self.ended.clear()
        elif kind.endswith(".done"):
            self.ended.add(kind)
        elif kind.endswith(".delta"):
            self._hear_delta(kind, document.get("delta"))

    def forget(self) -> None:
        """See `AnswerSoFar`."""
        super().forget()
        self.items.clear()

    def _hear_delta(self, kind: str, delta: object) -> None:
        self.deltas += 1
        if not isinstance(delta, str):
            self.has_others = True
        elif kind == "output_text.delta":
            self._say(delta)
        elif kind.startswith("reasoning"):
            self._think(delta)
        else:
            self.has_others = True


def _ids(given: object) -> array[int]:
    """Return token ids as an array of four bytes each; empty if one of them is invalid or there are none."""
    try:
        return array("I", given if isinstance(given, list) and all(type(one) is int for one in given) else ())
    except OverflowError:
        return array("I")


def answer_so_far(dialect: Dialect, pieces: list[bytes]) -> AnswerSoFar:
    """Return the collector for an answer in this protocol. `pieces`: the list of received pieces, to which further
    pieces may be appended.
    """
    if dialect is Dialect.OPENAI:
        return ChunksSoFar(pieces)
    return MessageSoFar(pieces) if dialect is Dialect.ANTHROPIC else ResponseSoFar(pieces)


def encoded(document: dict[str, Any]) -> bytes:
    """Return a document as JSON bytes for the data of an event."""
    try:
        return orjson.dumps(document)
    except TypeError:  # a half of a character, or an integer beyond 64 bits
        return json.dumps(document).encode()


def events_of(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the name and the data of each complete event in `data`."""
    return (parse_event(raw) for raw in split_events(data))
