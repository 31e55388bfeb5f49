"""Reads engines' answers as they pass: counts streamed events and finds the reported usage, in each protocol's own
form.
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import msgspec

from fairlead_router.dialects import FIRST_TOKEN_MARKS, Dialect

TAIL_BYTES = 8192
"""Bytes of a stream's end that are kept to look for usage."""

_HEAD = 2048
"""Bytes of a stream's beginning that are kept in dialects where it names the response or reports cached tokens."""

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
"""A plausible count of tokens; an implausible one is treated as missing."""


class Usage(NamedTuple):
    """Tokens of a request as its engine told them; None where it did not."""

    output_tokens: int = 0
    cached_tokens: int | None = None
    prompt_tokens: int | None = None
    """All of the prompt's tokens, cached or not."""


class _Details(msgspec.Struct):
    cached_tokens: _Tokens | None = None


class _Usage(msgspec.Struct):
    completion_tokens: _Tokens | None = None
    output_tokens: _Tokens | None = None
    prompt_tokens: _Tokens | None = None
    input_tokens: _Tokens | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: _Tokens | None = None

    def told(self) -> Usage:
        output = self.completion_tokens if self.completion_tokens is not None else self.output_tokens
        details = self.prompt_tokens_details or self.input_tokens_details
        cached = details.cached_tokens if details is not None else self.cache_read_input_tokens
        # Anthropic's input_tokens leave out what was cached; only the Responses API's, which have details, are all.
        prompt = self.input_tokens if self.input_tokens_details is not None else self.prompt_tokens
        return Usage(output or 0, cached, prompt)


class _Inner(msgspec.Struct):
    usage: _Usage | None = None


class _Envelope(msgspec.Struct):
    """A completion, a chunk of a completion, or an event that contains one."""

    usage: _Usage | None = None
    response: _Inner | None = None
    message: _Inner | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_USAGE = msgspec.json.Decoder(_Usage)
_USAGE_NAME = b'"usage"'
_KEPT_WHOLE = TAIL_BYTES - len(_USAGE_NAME) + 1
_USAGE_OBJECT = re.compile(rb'"usage" ?: ?(\{(?:[^{}]|\{[^{}]*\})*\})')
_RESPONSE_ID = re.compile(rb'"id" ?: ?"([A-Za-z0-9_.-]{1,200})"')


_LAST_EVENTS = {
    Dialect.OPENAI: (b"data: [DONE]", b"data:[DONE]"),
    Dialect.RESPONSES: (b"event: response.completed\n", b"event: response.incomplete\n"),
    Dialect.ANTHROPIC: (b"event: message_stop\n",),
}
"""What the last event of a good stream has."""


def read_usage(document: bytes) -> Usage | None:
    """The usage in a completion or a chunk; None when it reports none."""
    try:
        envelope = _ENVELOPE.decode(document)
    except msgspec.DecodeError:  # ValidationError included: an engine's odd usage is no reason to fail an answer that was served
        return None
    usage = envelope.usage
    if usage is None:
        inner = envelope.response or envelope.message
        usage = inner.usage if inner is not None else None
    return usage.told() if usage is not None else None


def _last_usage(text: bytes) -> Usage | None:
    """The last usage object in a piece of JSON whose beginning is missing."""
    for found in reversed(_USAGE_OBJECT.findall(text)):
        try:
            return _USAGE.decode(found).told()
        except msgspec.DecodeError:
            continue
    return None


def first_id(text: bytes) -> str | None:
    """The first `id` of an answer or of its first event.

    It is the id of the response itself, because every engine writes that one first.
    """
    found = _RESPONSE_ID.search(text)
    return found[1].decode() if found is not None else None


class StreamReader:
    """Follows a stream of server-sent events without holding it: `feed` every piece, then ask."""

    __slots__ = ("_dialect", "_mark", "_passed", "_repeats", "_tail", "began", "deltas", "events", "head")

    def __init__(self, dialect: Dialect = Dialect.OPENAI) -> None:
        self._dialect = dialect
        self._mark = FIRST_TOKEN_MARKS.get(dialect)
        self._tail = b""
        self._repeats = dialect is Dialect.RESPONSES
        self._passed: Usage | None = None
        """The newest usage that is in the tail no more."""
        self.began = self._mark is None
        """Whether the engine has made a token."""
        self.head = b""
        """The beginning of the stream, kept for dialects that report something there."""
        self.events = 0
        self.deltas = 0
        """Events with a piece of the answer, in dialects that also have others."""

    def feed(self, piece: bytes) -> None:
        """Count events (blank lines) in `piece`, also when one is split over two pieces."""
        self.events += piece.count(b"\n\n") + piece.count(b"\r\n\r\n")
        if piece.startswith((b"\n", b"\r")):  # only then can a blank line have begun in the piece before
            joint = self._tail[-3:]
            seam = joint + piece[:3]
            self.events += _seam_count(seam, len(joint), b"\n\n") + _seam_count(seam, len(joint), b"\r\n\r\n")
        if self._mark is not None:
            self._watch(piece, self._mark)
        if len(self._tail) + len(piece) <= TAIL_BYTES:
            self._tail += piece
            return
        longer = self._tail + piece
        if self._repeats and longer.find(_USAGE_NAME, 0, len(longer) - _KEPT_WHOLE) >= 0:
            self._read_leaving(longer)
        self._tail = longer[-TAIL_BYTES:]

    def _read_leaving(self, longer: bytes) -> None:
        """Read a usage that leaves the tail: in the last event of a response any length of text may follow it. What
        leaves is always followed by a whole tail, so it is never cut.
        """
        found = _last_usage(longer)
        if found is not None and found.output_tokens:  # some engines begin with one of zeros
            self._passed = found

    def _watch(self, piece: bytes, mark: bytes) -> None:
        if len(self.head) < _HEAD:
            self.head = (self.head + piece)[:_HEAD]
        if not self.began:
            self.began = mark in piece or mark in self._tail[-len(mark) :] + piece[: len(mark)]
        for name in (mark + b"\n", mark + b"\r\n"):  # the end of an event's name: in its data a line cannot end so
            joint = self._tail[1 - len(name) :]
            self.deltas += piece.count(name) + _seam_count(joint + piece[: len(name) - 1], len(joint), name)

    @property
    def generated_tokens(self) -> int:
        """Output tokens so far, at least: a chat's stream begins with an event that has none, and in other dialects
        events with a piece of the answer have one or more.
        """
        return max(0, self.events - 1) if self._dialect is Dialect.OPENAI else self.deltas

    @property
    def finished(self) -> bool:
        """Whether the protocol's last event has come."""
        return any(mark in self._tail for mark in _LAST_EVENTS[self._dialect]) and not self.cut

    @property
    def cut(self) -> bool:
        """Whether the stream stopped in the middle of an event."""
        return bool(self._tail) and not self._tail.endswith((b"\n\n", b"\r\n\r\n"))

    def usage(self) -> Usage:
        """The engine's figures if it gave them, else the number of chunks, or of pieces of the answer, as its output
        tokens.
        """
        if self._dialect is not Dialect.OPENAI:
            found = self._told() or _last_usage(self._tail) or self._passed or Usage(self.deltas)
            if found.cached_tokens is None and self._dialect is Dialect.ANTHROPIC:
                before = _last_usage(self.head)  # `message_start` tells what was cached, `message_delta` what was made
                found = found._replace(cached_tokens=before.cached_tokens if before is not None else None)
            return found
        told = self._told()
        if told is not None:
            return told
        ended = b"[DONE]" in self._tail[-24:]
        return Usage(max(0, self.events - 1 if ended else self.events))

    def usage_at_the_end(self) -> Usage:
        """The engine's figures in an answer that is no stream and of which only the end is held."""
        return _last_usage(self._tail) or self._passed or Usage()

    def _told(self) -> Usage | None:
        if _USAGE_NAME not in self._tail:
            return None
        for line in reversed(self._tail.split(b"\n")):
            if _USAGE_NAME in line and line.startswith(b"data:"):
                told = read_usage(line[5:].strip())
                if told is not None:
                    return told
        return None


def _seam_count(seam: bytes, boundary: int, mark: bytes) -> int:
    """Marks that begin before `boundary` and end after it."""
    start, found = 0, 0
    while (place := seam.find(mark, start)) >= 0:
        if place < boundary < place + len(mark):
            found += 1
        start = place + 1
    return found
