"""Parses engines' answers while they pass: whether they have content, whether they are complete, whether they report a
failure, and the tokens that the engine counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from fairlead_process.json_documents import nests_deeper, read_json
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.emptiness import NO_PLACE, is_cut, shortfall
from fairlead_router.protocols.spoken_events import Failure as Failure
from fairlead_router.protocols.spoken_events import failure_of, listener
from fairlead_router.protocols.squeezing import Squeezed
from fairlead_router.protocols.usages import Usage as Usage
from fairlead_router.protocols.usages import read_usage

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_OPENAI: Final = Dialect.OPENAI
_RESPONSES: Final = Dialect.RESPONSES

EVENT_BYTES = 256 * 1024
"""Maximum number of bytes of an event that are buffered until the event is complete. A larger event is passed on as it
arrives, and only its small fields are read.
"""

_CHOICE_WITHIN = 4096
"""Number of bytes at the beginning of an event in which `choices` is searched. An event without `choices` there may
have only token counts, so it is not passed on until it is complete.
"""

METADATA_HEADER = b"metadata"
"""The header that describes the format of an answer of raw bytes, so that a client can decode it."""

_RELEARNED = 64
"""Maximum number of times that the pattern of a stream's events is derived. After that, each event that does not match
the pattern is decoded.
"""

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?=[^\n]))")
_NOTHING = re.compile(rb"(?:[\r\n]++|:[^\r\n]*+[\r\n])++")
"""Matches all blank lines and comments before an event."""
_BEGINS_NOTHING = b"\r\n:"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_CHOICE = re.compile(rb'"choices"\s*:\s*\[\s*\{')
_TEXT = re.compile(rb'"(?:content|reasoning_content|reasoning|text|arguments|partial_json|thinking|refusal)" ?: ?"([^"]+)"')
_PLAIN = re.compile(
    rb'(data: \{"id":"[^"\\\x00-\x1f]*","object":"chat\.completion\.chunk","created":[0-9]+,"model":"[^"\\\x00-\x1f]*",'
    rb'"choices":\[\{"index":0,"delta":\{(?:"role":(?:null|"assistant"),)?"content":")[^"\\\x00-\x1f]+'
    rb'("(?:,"[a-z_]+":null)*\}(?:,"[a-z_]+":null)*\}\](?:,"[a-z_]+":null)*\}\n\n)'
)
"""Matches a chat event with a piece of text and nothing else, in the form that vLLM and SGLang write. Such an event
need not be decoded.
"""
_DONE = b"data: [DONE]\n\n"
_DELTA = re.compile(rb'^event: response\.[a-z_.]+\.delta\ndata: \{[^\n]*?"delta" ?: ?"([^"]+)"')
_EVENT_NAME = re.compile(rb"^event: ?([^\r\n]*)", re.MULTILINE)
_BOM = b"\xef\xbb\xbf"
_NEVER = b"\0"
_QUOTE, _RETURN = 0x22, 0x0D


class StreamReader:
    """Reads the server-sent events of one answer. Call `feed` with each piece and `end` at the end; then read the
    results.

    Most events of a stream differ from an earlier event only in their text. Such events are recognised by comparing
    bytes, so that few events are decoded. The stream may be cut into pieces anywhere, and lines may end in LF, CRLF or
    CR.
    """

    __slots__ = (
        "_after",
        "_around",
        "_before",
        "_by_name",
        "_counts",
        "_dialect",
        "_ended_within",
        "_hides_usage",
        "_knows_plain",
        "_large",
        "_learned",
        "_name",
        "_passed",
        "_quotes",
        "_rest",
        "_returns",
        "_seam",
        "_spoken",
        "_whole",
        "events",
        "withheld",
    )  # fmt: skip

    def __init__(self, dialect: Dialect = _OPENAI, *, hides_usage: bool = False, whole: bool = False, answers: int = 1) -> None:
        """Make the reader.

        `hides_usage`: the client does not get events that have only the engine's token counts. `whole`: the client gets
        only whole events, and no event after the engine has reported a failure, because another engine may continue the
        answer. `answers`: the number of answers that the request asks for.
        """
        self._dialect = dialect
        self._spoken = listener(dialect)
        self._spoken.answers = answers
        self._hides_usage = hides_usage
        self._by_name = dialect is _RESPONSES  # whose events are numbered, so that only their beginnings are alike
        self._before = _NEVER
        self._after = b""
        self._quotes = 0
        """Number of quotation marks in `_before` and `_after` together."""
        self._around = len(_NEVER)
        """Number of bytes in `_before` and `_after` together; 0 for events that are compared only by their beginnings.
        """
        self._learned = 0
        self._knows_plain = dialect is _OPENAI
        """Whether events are compared with `_PLAIN`, the pattern of an event that need not be decoded."""
        self._rest = bytearray()
        """The beginning of an event that has not fully arrived."""
        self._returns = False
        """Whether `_rest` may contain a carriage return."""
        self._counts = True
        """Whether similar events of this piece may be counted together. After one failed attempt, the events of the
        piece are read one by one, because each attempt examines the whole rest of the piece.
        """
        self._passed = 0
        """Number of bytes of `_rest` that the client has received."""
        self._ended_within = False
        self._large: Squeezed | None = None
        """The current event, if it is too large to buffer; None otherwise."""
        self._name = b""
        self._seam = b""
        self._whole = whole
        self.withheld = b""
        """The event by which the engine reported a failure, and the events after it, if the client did not get them;
        otherwise empty.
        """
        self.events = 0
        """Number of events that have data."""

    # ── what came so far ──

    @property
    def began(self) -> bool:
        """Whether any generated content has arrived."""
        return self._spoken.started

    @property
    def finished(self) -> bool:
        """Whether the answer has arrived completely and without a failure: the protocol's last event, or a finish
        reason.
        """
        return self._spoken.finished and self._spoken.is_answer and self._spoken.failure is None

    @property
    def failure(self) -> Failure | None:
        """The failure that the engine reported; None if it reported none."""
        return self._spoken.failure

    @property
    def shortfall(self) -> Failure | None:
        """The reason why the whole stream is not a valid answer; None if it is valid."""
        if self.failure is not None:
            return self.failure
        if not self._spoken.finished:
            return Failure("the stream ended before its answer did" if self.events else "the stream is empty")
        return None if self._spoken.is_answer else Failure("the stream has no content, and no reason for its end")

    @property
    def cut(self) -> bool:
        """Whether the client has received a part of an event whose end has not arrived."""
        return self._passed > 0 or self._large is not None or self._ended_within

    @property
    def response_id(self) -> str | None:
        """The id of the response in the Responses protocol; None in other protocols, and before the id has arrived."""
        return self._spoken.response_id

    @property
    def generated_tokens(self) -> int:
        """Number of output tokens so far: the engine's newest count, plus one for each later event with content."""
        told, deltas = self._spoken.figures.output_tokens, self._spoken.deltas
        return deltas if told is None else told + deltas - self._spoken.told_at

    @property
    def counted(self) -> tuple[int, int] | None:
        """The engine's count of output tokens, and the number of events with these tokens. None if the engine's newest
        count does not include all content so far.
        """
        told, deltas = self._spoken.figures.output_tokens, self._spoken.deltas
        return None if told is None or self._spoken.told_at != deltas else (told, deltas)

    def estimated_tokens(self, tokens_per_event: float) -> int:
        """Return the number of output tokens so far: the engine's newest count, plus `tokens_per_event` for each later
        event with content.
        """
        told, deltas = self._spoken.figures.output_tokens, self._spoken.deltas
        return round(deltas * tokens_per_event) if told is None else told + round((deltas - self._spoken.told_at) * tokens_per_event)

    def usage(self) -> Usage:
        """Return the engine's newest token counts. The number of output tokens is `generated_tokens`."""
        return self._spoken.figures.usage(self.generated_tokens)

    # ── reading ──

    def feed(self, piece: bytes) -> bytes:
        """Read the next piece. Return the bytes for the client: the piece itself, unless events are hidden."""
        if (
            piece.startswith(self._before)
            and (self._is_alike(piece) if self._by_name else piece.endswith(self._after) and piece.count(b'"') == self._quotes)
            and len(piece) > self._around
            and not self._rest
            and self._large is None
        ):
            self.events += 1
            self._spoken.deltas += 1
            return piece
        if self._large is not None:
            return self._pass_large(piece)
        return self._split(piece)

    def _is_alike(self, piece: bytes) -> bool:
        start = len(self._before)
        return start < len(piece) and piece[start] != _QUOTE and piece.find(b"\n\n", start) == len(piece) - 2

    def end(self) -> bytes:
        """Read the end of the stream. Return the bytes that the client still has to get. A last event without its blank
        line is read too.
        """
        if self._large is not None:
            self._hear_large(self._large)
            self._ended_within = True
            return b""
        left, passed = bytes(self._rest), self._passed
        self._rest.clear()
        self._passed = 0
        if not left or self._hear(left) or (self._whole and not self._spoken.finished):
            return b""
        self._ended_within = True
        return left[passed:]

    def _split(self, piece: bytes) -> bytes:
        """Read the events that are complete with `piece`. Return the bytes for the client."""
        text, place = piece, 0
        if self._rest:
            place = max(0, len(self._rest) - 3)
            self._rest += piece
            self._returns = self._returns or _RETURN in piece
            if not _event_end(self._rest, place, returns=self._returns):
                return self._wait()
            text = bytes(self._rest)
        else:
            self._returns = _RETURN in text
        start, kept, shown = 0, self._passed, []  # `kept`: where what the client has not had begins
        returns, length = self._returns, len(text)
        self._counts = True
        while True:
            if start < length and text[start] in _BEGINS_NOTHING and (nothing := _NOTHING.match(text, start)) is not None:
                start = nothing.end()
            if start >= kept:
                start = self._skip_known(text, start)
            place = max(place, start)
            end = _event_end(text, place, returns=returns) if start < length else 0
            if not end:
                break
            place = end
            if self._hear(text[start:place]) and start >= kept:
                shown.append(text[kept:start])
                kept = place
            start = place
        if start == length and text is piece and not kept:
            return piece
        self._rest, self._passed = bytearray(text[start:]), 0
        waits = self._wait() if self._rest else b""
        if not (self._hides_usage or self._whole):
            return piece
        shown += (text[kept:start], waits)
        return b"".join(shown)

    def _skip_known(self, text: bytes, start: int) -> int:
        """Count the complete events from `start` on that need no decoding, because their bytes match a known pattern.
        Return the position of the first event that does not match.
        """
        if text.startswith(self._before, start):
            start = self._skip_alike(text, start)
        elif self._knows_plain and (plain := _PLAIN.match(text, start)) is not None and self._spoken.goes_on:
            self._learned += 1
            self._knows_plain = self._learned < _RELEARNED
            self._take_shape(plain[1], plain[2])
            self._spoken.hear_plain()
            start = self._skip_alike(text, start)
        if text.startswith(_DONE, start) and self._spoken.goes_on:
            self.events += 1
            self._spoken.ends()
            self._before = _NEVER  # nothing after the end counts
            start += len(_DONE)
        return start

    def _skip_alike(self, text: bytes, start: int) -> int:
        """Count the complete events from `start` on that are like an earlier event; engines often send several at once.
        Return the position of the first event that is different.
        """
        before, after, by_name = self._before, b"" if self._by_name else self._after, self._by_name
        length, ending, count = len(before), len(after), 0
        if not by_name and self._counts:
            # Where many come at once, to count is cheaper than to look at each. Of events with nothing but text between
            # `before` and `after` there are as many quotes as the two have, for each event.
            end = text.rfind(after) + ending
            events = text.count(after + before, start, end) + 1
            if text.count(b'"', start, end) == events * self._quotes and text.find(before + after, start, end) < 0:
                start, count = end, events
            else:
                self._counts = False
        while text.startswith(before, start):
            content = start + length
            quote = text.find(_QUOTE, content)
            if quote <= content or not text.startswith(after, quote):
                break
            end = text.find(b"\n\n", quote) + 2 if by_name else quote + ending
            if end < 2:
                break
            count += 1
            start = end
        self.events += count
        self._spoken.deltas += count
        return start

    def _wait(self) -> bytes:
        """Keep the beginning of an event that has not fully arrived. Return the part of it that the client gets
        already.
        """
        rest = self._rest
        if not rest:
            return b""
        if len(rest) <= EVENT_BYTES and self._whole:
            return b""
        if self._hides_usage and len(rest) <= EVENT_BYTES and _CHOICE.search(rest, 0, _CHOICE_WITHIN) is None:
            return b""
        left = bytes(rest[self._passed :])
        self._passed = len(rest)
        if len(rest) > EVENT_BYTES:
            self._begin_large(bytes(rest))
        return left

    # ── one event ──

    def _hear(self, raw: bytes) -> bool:
        """Read a complete event, with its blank line. Return whether the event must be hidden from the client."""
        spoken = self._spoken
        if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2:
            name, data = b"", raw[6:-2].strip()
        else:
            name, data = parse_event(raw)
        if not data and name != b"error":
            return False
        self.events += 1
        if data == b"[DONE]":
            spoken.ends()
            self._before = _NEVER
        elif not spoken.done:
            spoken.only_counts = False
            deltas, told_at = spoken.deltas, spoken.told_at
            spoken.hear(name, decoded(data))
            if spoken.deltas > deltas and spoken.told_at == told_at and self._learned < _RELEARNED:
                self._learn(raw)
            if spoken.only_counts and self._hides_usage:
                return True
        if self._whole and spoken.failure is not None:
            self._before, self._learned, self._knows_plain = _NEVER, _RELEARNED, False  # no event is passed on unread
            if len(self.withheld) < EVENT_BYTES:
                self.withheld += raw
            return True
        return False

    def _learn(self, raw: bytes) -> None:
        """Remember the bytes before and after the text in this event. Events with the same bytes around their text have
        the same meaning.
        """
        text = _DELTA.search(raw) if self._by_name else _TEXT.search(raw, max(0, raw.find(b'"delta"')))
        if text is not None and b"\\" not in text[1]:
            self._learned += 1
            self._take_shape(raw[: text.start(1)], raw[text.end(1) :])

    def _take_shape(self, before: bytes, after: bytes) -> None:
        self._before, self._after = before, after
        self._quotes = before.count(b'"') + after.count(b'"')
        self._around = 0 if self._by_name else len(before) + len(after)

    # ── an event too large to hold ──

    def _begin_large(self, text: bytes) -> None:
        named = _EVENT_NAME.search(text, 0, 1024)
        self._name = named[1].strip() if named is not None else b""
        self._large = Squeezed(1 if self._dialect is _OPENAI else 0)
        self._large.feed(text[text.find(b"data:") + 5 :])
        self._seam = text[-3:]
        self._rest.clear()
        self._passed = 0

    def _pass_large(self, piece: bytes) -> bytes:
        large, seam = self._large, self._seam
        assert large is not None
        text = seam + piece
        end = _event_end(text, 0)
        if not end:
            large.feed(piece)
            self._seam = text[-3:]
            return piece
        cut = end - len(seam)
        large.feed(piece[:cut])
        self._hear_large(large)
        return piece[:cut] + (self.feed(piece[cut:]) if cut < len(piece) else b"")

    def _hear_large(self, large: Squeezed) -> None:
        self._large = None
        self.events += 1
        if not self._spoken.done:
            self._spoken.hear(self._name, large.document())


def _event_end(text: bytes | bytearray, place: int, *, returns: bool | None = None) -> int:
    """Return the end of the first event that ends after `place`; 0 if no event ends there. `returns`: whether the text
    contains a carriage return; None = unknown.
    """
    if not (_RETURN in text if returns is None else returns):
        found = text.find(b"\n\n", place)
        return 0 if found < 0 else found + 2
    blank = _BLANK_LINE.search(text, place)
    return 0 if blank is None else blank.end()


def split_events(data: bytes) -> list[bytes]:
    """Return all complete events, without their blank lines."""
    events = data.split(b"\n\n") if _RETURN not in data else _BLANK_LINE.split(data)
    return [raw for raw in events if raw]


def parse_event(raw: bytes) -> tuple[bytes, bytes]:
    """Return the name and the data of an event, by the rules of server-sent events (WHATWG HTML §9.2.6)."""
    name, data = b"", []
    for line in _LINE_END.split(raw.removeprefix(_BOM)):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.strip()
    return name, b"\n".join(data).strip()


def decoded(data: bytes) -> Any:
    """Return the decoded data of an event; None if they are not JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if nests_deeper(data):
            return None
    try:
        return json.loads(data)  # it also takes NaN and half of a pair of surrogates, which engines in Python write
    except ValueError:
        return None


# ── answers that are not streamed ──


class WholeAnswer(NamedTuple):
    """The facts about an unstreamed answer."""

    usage: Usage | None = None
    failure: Failure | None = None
    response_id: Any = None
    """The value of the answer's field `id`, of any type (`is_response_id` checks it)."""


class _Document(msgspec.Struct):
    id: Any = None
    object: Any = None
    type: Any = None
    code: Any = None
    message: Any = None
    status: Any = None
    stop_reason: Any = None
    error: Any = None
    usage: Any = None
    meta: Any = None
    choices: msgspec.Raw = msgspec.Raw()
    content: msgspec.Raw = msgspec.Raw()
    output: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()
    embeddings: msgspec.Raw = msgspec.Raw()


_DOCUMENT = msgspec.json.Decoder(_Document)
_LARGE = ("choices", "content", "output", "data", "embeddings")
_LONG_FIELDS = (*_Document.__struct_fields__, "role", "background", "detail")
"""The fields of a long document that are read."""
_LONG_PLACES = (*_LONG_FIELDS, *sorted(NO_PLACE.difference(_LONG_FIELDS)))
_LONG = msgspec.json.Decoder(msgspec.defstruct("_Long", [(name, msgspec.Raw, msgspec.Raw()) for name in _LONG_PLACES]))
_AROUND_MEMBER = 6
"""Maximum number of bytes around the name and value of a member, if the document is on one line: quotes, colon, comma
and blanks.
"""
_LONG_BYTES = 65_536
"""Size in bytes above which a document, or a field of it, is not decoded as a whole, because each small value takes a
microsecond.
"""
_MOST_MARKS = 20_000
"""Maximum number of strings and lists in a long document that is not strict JSON. A document with more is not read."""
_GIVEN_UP, _CUT = "its finish_reason is error or abort: the engine gave up", "the answer ends before its JSON document is complete"
_GAVE_UP = re.compile(rb'"finish_reason"\s*:\s*"(?:error|abort)"')
_ENDED = re.compile(rb'"finish_reason"\s*:\s*"[^"]')
_LONGEST_REASON = 64
"""Number of bytes of a piece that are searched again with the next piece, so that a match of `_GAVE_UP` across both is
found.
"""
_BILLED = ("input_tokens", "image_tokens")
_NO_CHOICES = (b"", b"null", b"[]")
_JSON = re.compile(rb'(?:\xef\xbb\xbf)?[\s\x00]*["0-9tfnNI\[{-]|\xff\xfe|\xfe\xff')
"""Matches the beginning of any JSON document, which may have a byte order mark."""
_PAGE = re.compile(rb"\s*<(?:!doctype|html|\?xml)", re.IGNORECASE)
_RESPONSE_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}")


def read_whole(body: bytes, *, has_input: bool = True, kind: bytes = b"", dialect: Dialect = _OPENAI) -> WholeAnswer:
    """Return the facts about an unstreamed answer with a success status. `kind`: its content type. `has_input`: whether
    the request has input; if not, an empty list is a valid answer. The answer may also be an event stream that the
    client did not request.
    """
    if not body or (body[0] <= 32 and body.isspace()):
        return WholeAnswer(failure=Failure("the answer is empty"))
    if kind.startswith(b"text/") and body[:1] not in b"{[":
        return _read_text(body, kind, dialect)
    if not body.startswith(b"{") and _PAGE.match(body):
        return WholeAnswer(failure=Failure("the answer is a page of markup"))
    if body[0] not in b"{ \r\n\t":  # not a JSON object: vectors in bytes, say
        return WholeAnswer(failure=_shortfall_of_bytes(body, kind))
    try:
        if len(body) > _LONG_BYTES:
            return _read_long(body, has_input=has_input)
        document = read_json(body, _DOCUMENT)
    except msgspec.DecodeError:  # ValidationError included; NaN is not JSON
        return _read_otherwise(body, has_input=has_input)
    failure: Failure | None = None
    if document.object == "error":
        failure = failure_of(document.error or {"message": document.message, "type": document.type, "code": document.code})
    elif (document.error and bytes(document.choices).strip() in _NO_CHOICES) or document.status == "failed":
        failure = failure_of(document.error or {"message": "its status is failed"})
    elif _may_have_given_up(document, body) or not (_ENDED.match(body, max(0, body.rfind(b'"finish_reason"'))) or _is_filled(document)):
        failure = shortfall(decoded(body), has_input=has_input)
    return WholeAnswer(_usage_in(document.usage, document.meta), failure, document.id)


def _read_long(body: bytes, *, has_input: bool) -> WholeAnswer:
    """Return the facts about a long document, of which only small fields are decoded. Raises msgspec.DecodeError."""
    found = read_json(body, _LONG)
    raw = {name: bytes(value) for name in _LONG_PLACES if (value := getattr(found, name))}
    fields = {name: _small(raw[name], is_large=name in _LARGE) for name in _LONG_FIELDS if name in raw}
    if len(body) > _AROUND_MEMBER + sum(len(name) + len(value) + _AROUND_MEMBER for name, value in raw.items()):
        fields["results"] = [0]  # some field of another name, such as this one of a ranking
    failure: Failure | None = None
    if "choices" in raw and _GAVE_UP.search(raw["choices"]):
        failure = Failure(_GIVEN_UP)
    elif fields.get("object") == "error" or fields.get("status") == "failed" or (fields.get("error") and not fields.get("choices")):
        failure = failure_of(fields.get("error") or fields)
    else:
        failure = shortfall(fields, has_input=has_input)
    return WholeAnswer(_usage_in(fields.get("usage"), fields.get("meta")), failure, fields.get("id"))


def _small(value: bytes, *, is_large: bool) -> Any:
    """Return the decoded value of a field. If the value is too long, return a value that is not empty."""
    if len(value) <= _LONG_BYTES:
        return decoded(value)
    return [0] if is_large else "too long to be read"


def _shortfall_of_bytes(body: bytes, kind: bytes) -> Failure | None:
    if body[:7].rstrip() in (b"null", b"[]", b'""'):
        return Failure("the answer has no content")
    if not kind.startswith(b"application/json") or body.startswith(b"["):
        return None
    if (decoded(body) is None) if len(body) <= _LONG_BYTES else (_JSON.match(body) is None):
        return Failure(
            "the answer is not JSON, although its content type is application/json"
        )  # it may be compressed, which nobody asked for
    return None


def _read_text(body: bytes, kind: bytes, dialect: Dialect) -> WholeAnswer:
    if not kind.startswith(b"text/event-stream"):
        return WholeAnswer(failure=Failure("the answer is a page of markup" if _PAGE.match(body) else "the answer is plain text"))
    reader = StreamReader(dialect)
    reader.feed(body)
    return whole_of_stream(reader)


def whole_of_stream(reader: StreamReader) -> WholeAnswer:
    """Return the facts about an event stream that the client did not request. `reader` has read all of its pieces."""
    reader.end()
    return WholeAnswer(reader.usage(), reader.shortfall, reader.response_id)


def content_type(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the content type in these headers, in lower case; empty if there is none."""
    return next((value.lower() for name, value in headers if name == b"content-type"), b"")


def _may_have_given_up(document: _Document, body: bytes) -> bool:
    if document.status == "cancelled" or (document.type == "message" and document.stop_reason is None):
        return True
    # `in` would try the bytes as a number first, at many times the cost
    return max(body.find(b'"error"'), body.find(b'"abort"')) >= 0 and _GAVE_UP.search(document.choices) is not None


def _is_filled(document: _Document) -> bool:
    """Return whether a field of the answer has content: more than an empty list or null. For documents other than chats
    and completions.
    """
    places = (document.data, document.content, document.output, document.embeddings)
    return not document.choices and any(len(place) > 8 for place in places)


def _read_otherwise(body: bytes, *, has_input: bool) -> WholeAnswer:
    """Return the facts about an answer that is not strict JSON. It may contain NaN, be cut off, or be plain text."""
    is_long = len(body) > _LONG_BYTES
    if is_long and _GAVE_UP.search(body):
        return WholeAnswer(failure=Failure(_GIVEN_UP))
    if is_long and is_cut(body) and not body.rstrip().endswith(b"}"):
        return WholeAnswer(failure=Failure(_CUT))
    if is_long and body.count(b'"') + body.count(b"[") > _MOST_MARKS:
        return WholeAnswer()
    squeezed = Squeezed(0)
    squeezed.feed(body)
    document = squeezed.document()
    if is_long and document is None and squeezed.is_open and is_cut(body):
        return WholeAnswer(failure=Failure(_CUT))
    if not is_long and ((document is None and not nests_deeper(body)) or _GAVE_UP.search(body)):
        document = decoded(body)
        if document is None and is_cut(body):
            return WholeAnswer(failure=Failure(_CUT))
    return WholeAnswer(usage_of(squeezed), shortfall(document, has_input=has_input))


class LongAnswer:
    """Reads an unstreamed answer that is too long to buffer while it passes. Call `feed` with each piece; then read the
    results. `has_input`: whether the request has input; if not, an empty list is a valid answer.
    """

    __slots__ = ("_gave_up", "_has_input", "_seam", "_squeezed")

    def __init__(self, *, has_input: bool = True) -> None:
        self._has_input = has_input
        self._squeezed = Squeezed(0)
        self._gave_up = False
        self._seam = b""

    def feed(self, piece: bytes) -> None:
        """Read the next piece."""
        self._squeezed.feed(piece)
        if not self._gave_up:  # within a text the quotes are escaped
            text = self._seam + piece
            self._gave_up = _GAVE_UP.search(text) is not None
            self._seam = text[-_LONGEST_REASON:]

    @property
    def usage(self) -> Usage | None:
        """The engine's token counts; None if the answer has none."""
        return usage_of(self._squeezed)

    @property
    def failure(self) -> Failure | None:
        """The reason why the answer is not valid. None if it is valid, or has too many small fields to be read."""
        document = self._squeezed.document()
        if self._gave_up:
            return Failure(_GIVEN_UP)
        if isinstance(document, dict) and (document.get("object") == "error" or document.get("status") == "failed"):
            return failure_of(document.get("error") or {"message": "its status is failed"})
        return shortfall(document, has_input=self._has_input)


def usage_of(squeezed: Squeezed) -> Usage | None:
    """Return the token counts of an unstreamed answer that was too long to buffer."""
    document = squeezed.document()
    return _usage_in(document.get("usage"), document.get("meta")) if isinstance(document, dict) else None


def _usage_in(usage: Any, meta: Any) -> Usage | None:
    """Return the token counts of an answer's usage. In Cohere's protocol, return the billed tokens, the sum of the
    texts and the images, which vLLM counts separately. None if there are no counts.
    """
    billed = meta.get("billed_units") if usage is None and isinstance(meta, dict) else None
    if isinstance(billed, dict):
        counts = [count for field in _BILLED if type(count := billed.get(field)) is int and count >= 0]
        usage = {"input_tokens": sum(counts)} if counts else None
    return None if usage is None else read_usage(usage)


def usage_of_head(headers: Iterable[tuple[bytes, bytes]]) -> Usage | None:
    """Return the token counts of an answer of raw bytes (`encoding_format: bytes`), which vLLM sends in a header. None
    if there are none.
    """
    for name, value in headers:
        if name == METADATA_HEADER:
            document = decoded(value)
            return read_usage(document.get("usage")) if isinstance(document, dict) else None
    return None


def is_response_id(value: Any) -> bool:
    """Return whether the value is a string that is safe as a segment of a URL path."""
    return isinstance(value, str) and _RESPONSE_ID.fullmatch(value) is not None
