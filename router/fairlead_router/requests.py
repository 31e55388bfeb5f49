"""Reads requests: checks fields, extracts the prompt for routing and the session, and builds the headers for an
engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import xxhash

from fairlead_router.paths import Endpoint
from fairlead_router.prompts import Document, bad_field
from fairlead_router.refusals import BadRequest


class ParsedRequest:
    """The parts of a body that routing and proxying need.

    `prompt` are the canonical bytes; `document` the decoded JSON.
    """

    __slots__ = ("document", "include_usage", "max_output_tokens", "model", "prompt", "stream", "user")

    def __init__(self, document: Document, endpoint: Endpoint) -> None:
        self.document = document
        model = document.get("model")
        if not isinstance(model, str) or not model:
            raise bad_field("model", model, "name the model as a string")
        self.model = model
        self.prompt = endpoint.prompt(document)
        stream = document.get("stream")
        if stream is not None and not isinstance(stream, bool):
            raise bad_field("stream", stream, "use true or false")
        self.stream = bool(stream) and endpoint.streams
        options = document.get("stream_options")
        if options is not None and not isinstance(options, dict):
            raise bad_field("stream_options", options, 'use an object such as {"include_usage": true}')
        self.include_usage = bool(options and options.get("include_usage"))
        self.max_output_tokens = _limit(document)
        self.user = _user(document)

    def renamed(self, model: str) -> bytes:
        """The body for the engine when the client named the pool instead of the model.

        Raises BadRequest when it is nested too deeply.
        """
        try:
            return orjson.dumps({**self.document, "model": model})
        except orjson.JSONEncodeError:
            raise BadRequest(400, "invalid_json", "the body is nested too deeply; send it flatter, or name the model itself") from None


def parse_request(body: bytes, endpoint: Endpoint) -> ParsedRequest:
    """Body bytes → request. Raises BadRequest (400) naming the field at fault."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(400, "invalid_json", f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadRequest(400, "invalid_json", f"the body must be a JSON object, not {type(document).__name__}")
    return ParsedRequest(document, endpoint)


def _limit(document: Document) -> int:
    for field in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        value = document.get(field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise bad_field(field, value, "give a whole number of tokens")
        return value
    return 0


def _user(document: Document) -> str | None:
    """The end user, from OpenAI's field or Anthropic's; it serves as the session of clients that name no session."""
    user = document.get("user")
    if user is None and isinstance(metadata := document.get("metadata"), dict):
        user = metadata.get("user_id")
    return user if isinstance(user, str) and user else None


SESSION_HEADERS = (b"x-session-id", b"x-llm-d-session-id", b"x-dynamo-session-id")
"""Session headers of other gateways, read when the pool's own header is absent.

Values are opaque: an instance's address in one is never trusted.
"""

_LONGEST_SESSION = 200


def session_name(raw: str) -> str:
    """A session id that is safe to store and show: a long or unprintable id is replaced by its hash."""
    if len(raw) <= _LONGEST_SESSION and raw.isprintable():
        return raw
    return "hashed-" + xxhash.xxh3_128_hexdigest(raw.encode("utf-8", "surrogatepass"))


SYSTEM_HEADERS = frozenset(
    {
        b"accept-encoding",  # answers are read for usage, so engines must not compress them
        b"x-prefiller-host-port", b"x-encoder-hosts-ports", b"x-data-parallel-host-port", b"x-kv-cache-source-host-port",
        b"x-gateway-destination-endpoint-subset", b"x-gateway-destination-endpoint-served", b"x-llm-d-request-dropped-reason",
    }
)  # fmt: skip
"""What only the system may say to an engine, whoever sends the request on: this router or a proxy."""

CREDENTIAL_HEADERS = frozenset({b"authorization", b"cookie", b"x-api-key"})
"""A client's credentials: they are for the gateway, and reach engines only where a setting says so."""

# Beside those: hop-by-hop headers (RFC 9110 §7.6.1), and what the router sets itself.
_WITHHELD = SYSTEM_HEADERS | {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"http2-settings", b"host", b"content-length", b"expect",
    b"x-gateway-destination-endpoint", b"x-request-id",
}  # fmt: skip
_WITHHELD_WITH_CREDENTIALS = _WITHHELD | CREDENTIAL_HEADERS


def forwarded_headers(
    headers: Iterable[tuple[bytes, bytes]], session_header: bytes, *, credentials: bool = False
) -> tuple[bytes, bytes | None, bytes | None]:
    """Client headers → (header block for the engine, session value, client's request id). Names must be lower case.

    The client's credentials are for this gateway; only with `credentials` do engines get them too.
    """
    withheld = _WITHHELD if credentials else _WITHHELD_WITH_CREDENTIALS
    block: list[bytes] = []
    named: set[bytes] = set()  # thousands of both fit into the largest headers
    session: bytes | None = None
    peer_session: bytes | None = None
    request_id: bytes | None = None
    for name, value in headers:
        if name == session_header:
            session = value
        elif name in SESSION_HEADERS:
            peer_session = value
        if name in withheld:
            if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
                named.update(token.strip().lower() for token in value.split(b","))
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


def request_head(scope: Mapping[str, Any], forwarded: bytes, request_id: bytes, *, length: int | None, chunked: bool = False) -> bytes:
    """Request line and headers for an engine, all but `host`, without the closing empty line.

    `length` None: no body, or a chunked one.
    """
    query: bytes = scope["query_string"]
    target = scope["raw_path"] + b"?" + query if query else scope["raw_path"]
    framing = b"content-length: %d\r\n" % length if length is not None else b"transfer-encoding: chunked\r\n" if chunked else b""
    return b"%s %s HTTP/1.1\r\n%sx-request-id: %s\r\n%s" % (scope["method"].encode(), target, framing, request_id, forwarded)
