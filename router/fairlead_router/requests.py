"""Reading OpenAI requests: checked fields, the canonical prompt bytes that routing compares, and the session a request belongs to."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import Enum
from typing import Any

import orjson
import xxhash

from fairlead_router.refusals import BadRequest


class Kind(Enum):
    """Which OpenAI endpoint; the value names the field that holds the prompt."""

    CHAT = "messages"
    COMPLETION = "prompt"
    EMBEDDING = "input"


class ParsedRequest:
    """What routing and proxying need of a body. `prompt` are the canonical bytes; `document` the decoded JSON."""

    __slots__ = ("document", "include_usage", "kind", "max_output_tokens", "model", "prompt", "stream", "user")

    def __init__(self, kind: Kind, document: dict[str, Any]) -> None:
        self.kind = kind
        self.document = document
        model = document.get("model")
        if not isinstance(model, str) or not model:
            raise _bad("model", model, "name the model as a string")
        self.model = model
        prompt = document.get(kind.value)
        self.prompt = _chat_bytes(prompt) if kind is Kind.CHAT else _input_bytes(kind.value, prompt)
        stream = document.get("stream")
        if stream is not None and not isinstance(stream, bool):
            raise _bad("stream", stream, "use true or false")
        self.stream = bool(stream) and kind is not Kind.EMBEDDING
        options = document.get("stream_options")
        if options is not None and not isinstance(options, dict):
            raise _bad("stream_options", options, 'use an object such as {"include_usage": true}')
        self.include_usage = bool(options and options.get("include_usage"))
        self.max_output_tokens = _limit(document)
        user = document.get("user")
        self.user = user if isinstance(user, str) and user else None

    def renamed(self, model: str) -> bytes:
        """The body for the engine when the client named the pool instead of the model."""
        return orjson.dumps({**self.document, "model": model})


def parse_request(body: bytes, kind: Kind) -> ParsedRequest:
    """Body bytes → request. Raises BadRequest (400) naming the field at fault."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(400, "invalid_json", f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadRequest(400, "invalid_json", f"the body must be a JSON object, not {type(document).__name__}")
    return ParsedRequest(kind, document)


def _bad(field: str, value: object, remedy: str) -> BadRequest:
    if value is None:
        return BadRequest(400, "missing_field", f"{field}: is missing; {remedy}", field)
    shown = repr(value)
    return BadRequest(400, "invalid_field", f"{field}: {shown[:60]} cannot be used; {remedy}", field)


def _limit(document: dict[str, Any]) -> int:
    for field in ("max_completion_tokens", "max_tokens"):
        value = document.get(field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise _bad(field, value, "give a whole number of tokens")
        return value
    return 0


def _chat_bytes(messages: object) -> bytes:
    """All message texts in order, nothing between them: the same text the simulated engine caches by."""
    if not isinstance(messages, list) or not messages:
        raise _bad("messages", messages if messages is not None else None, "give a list of at least one message")
    texts: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise _bad(f"messages[{index}]", message, "give an object with role and content")
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            texts.extend(_part_texts(content, index))
        elif content is not None:
            raise _bad(f"messages[{index}].content", content, "give a string or a list of parts")
    return (texts[0] if len(texts) == 1 else "".join(texts)).encode()


def _part_texts(parts: list[Any], index: int) -> Iterable[str]:
    for place, part in enumerate(parts):
        if not isinstance(part, dict):
            raise _bad(f"messages[{index}].content[{place}]", part, "give an object with a type")
        text = part.get("text")
        if isinstance(text, str):
            yield text


def _input_bytes(field: str, value: object) -> bytes:
    """A string, strings, token ids or lists of token ids → bytes; a token id counts as 4 bytes."""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, list) or not value:
        raise _bad(field, value, "give a string, a list of strings or a list of token ids")
    if all(isinstance(item, str) for item in value):
        return "".join(value).encode()
    rows = value if isinstance(value[0], list) else [value]
    try:
        return b"".join(array("I", row).tobytes() for row in rows)
    except (TypeError, OverflowError):
        raise _bad(field, value, "give a string, a list of strings or a list of token ids") from None


SESSION_HEADERS = (b"x-session-id", b"x-llm-d-session-id", b"x-dynamo-session-id")
"""Peers' session headers, read when the pool's own header is absent. Values are opaque: an address in one is never believed."""

_LONGEST_SESSION = 200


def session_name(raw: str) -> str:
    """A session id fit to be stored and shown: long or unprintable ones are replaced by a hash of theirs."""
    if len(raw) <= _LONGEST_SESSION and raw.isprintable():
        return raw
    return "hashed-" + xxhash.xxh3_128_hexdigest(raw.encode("utf-8", "surrogatepass"))


# Hop-by-hop headers (RFC 9110 §7.6.1), what the router sets itself, and what only the system may say to an engine.
_WITHHELD = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade", b"http2-settings", b"host", b"content-length", b"expect",
        b"accept-encoding",  # answers are read for usage, so engines must not compress them
        b"x-prefiller-host-port", b"x-encoder-hosts-ports", b"x-data-parallel-host-port", b"x-kv-cache-source-host-port",
        b"x-gateway-destination-endpoint", b"x-gateway-destination-endpoint-subset", b"x-gateway-destination-endpoint-served",
        b"x-llm-d-request-dropped-reason", b"x-request-id",
    }
)  # fmt: skip


def forwarded_headers(headers: Iterable[tuple[bytes, bytes]], session_header: bytes) -> tuple[bytes, bytes | None, bytes | None]:
    """Client headers → (header block for the engine, session value, client's request id). Names must be lower case."""
    block: list[bytes] = []
    named: list[bytes] = []
    session: bytes | None = None
    peer_session: bytes | None = None
    request_id: bytes | None = None
    for name, value in headers:
        if name == session_header:
            session = value
        elif name in SESSION_HEADERS:
            peer_session = value
        if name in _WITHHELD:
            if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
                named.extend(token.strip().lower() for token in value.split(b","))
            elif name == b"x-request-id":
                request_id = value
            continue
        if name.startswith(b"x-fairlead-"):
            continue
        block += (name, b": ", value, b"\r\n")
    if named:
        kept = zip(block[::4], block[2::4], strict=True)
        block = [part for name, value in kept if name not in named for part in (name, b": ", value, b"\r\n")]
    return b"".join(block), session or peer_session, request_id
