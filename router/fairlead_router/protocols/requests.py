"""Parses requests: checks fields, makes the prompt for routing, and builds the headers for an engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from math import isfinite
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import orjson

from fairlead_router.protocols.body_edits import edited
from fairlead_router.protocols.canonical_json import NestsTooDeeply, canonical_json
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.paths import Endpoint
from fairlead_router.protocols.peer_fields import refuse_peer_addresses, refuse_peers
from fairlead_router.protocols.prompts import Document, bad_field, is_completion, truth
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.protocols.session_names import SESSION_HEADERS

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_OPENAI: Final = Dialect.OPENAI
_RESPONSES: Final = Dialect.RESPONSES


class ParsedRequest:
    """The parts of a request that routing and proxying need.

    `body`: the body in UTF-8. `document`: the decoded body. `prompt`: the canonical prompt. `model`: the requested
    model; None = the request names no model. `answers`: the number of requested answers.
    """

    __slots__ = ("answers", "body", "document", "include_usage", "max_output_tokens", "model", "prompt", "stream")

    def __init__(self, body: bytes, document: Document, endpoint: Endpoint) -> None:
        self.body = body
        self.document = document
        model = document.get("model")
        if model is not None and not isinstance(model, str):
            raise bad_field("model", model, "name the model as a string")
        self.model = model or None
        refuse_peers(document)
        self.prompt = endpoint.prompt(document)
        stream = document.get("stream") if endpoint.streams else None
        self.stream = stream is True or (stream is not None and stream is not False and _flag("stream", stream))
        options = document.get("stream_options") if endpoint.streams and endpoint.dialect is _OPENAI else None
        if options is not None and not isinstance(options, dict):
            raise bad_field("stream_options", options, 'use an object such as {"include_usage": true}')
        self.include_usage = options is not None and _flag("stream_options.include_usage", options.get("include_usage"))
        self.max_output_tokens = _limit(document, endpoint) if endpoint.streams or endpoint.several else 0
        self.answers = (
            1 if not endpoint.several and _ASKS_FOR_MORE.isdisjoint(document) else _answers(document, endpoint, stream=self.stream)
        )

    def renamed(self, model: str) -> bytes:
        """Return the body with `model` in place of the client's name of the model. All other bytes stay the same."""
        return edited(self.body, self.document, {"model": model})


def parse_request(body: bytes, endpoint: Endpoint) -> ParsedRequest:
    """Return the parsed request in a body. Raises BadRequest, which names the invalid field."""
    if len(body) > MANY_BYTES:
        _refuse_many_values(body)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        body, document = _read_leniently(body, error)
    if len(body) > 400 and _may_nest_deeply(body):
        _refuse_depth(document)
    if not isinstance(document, dict):
        raise BadRequest(400, "invalid_json", f"the body must be a JSON object, not {type(document).__name__}")
    try:
        return ParsedRequest(body, document, endpoint)
    except NestsTooDeeply:
        raise _too_deep() from None


MANY_BYTES = 4 * 1024 * 1024
MOST_VALUES = 1_500_000
"""Maximum number of JSON values (objects, lists and their members) in a large body. Decoded values take up to thirty
times the bytes of the body, so a body of 32 MiB could take all the memory of a router. A prompt of a million token ids
has a million values.
"""


def _refuse_many_values(body: bytes) -> None:
    values = body.count(b",") + body.count(b"[") + body.count(b"{")
    if values > MOST_VALUES:
        message = f"the body has about {values} JSON values; send at most {MOST_VALUES}, or less than {MANY_BYTES} bytes"
        raise BadRequest(413, "request_too_large", message)


DEEPEST_BODY = 254
"""Maximum depth of nested objects and lists in a body. Clients nest far less, and engines' parsers have limits of their
own.

The depth is measured only in bodies with rows of closing brackets, because measuring it in each body would cost as much
as decoding.
"""
_ROWS = (b"]" * 200, b"}" * 200, b"]}" * 100)
_APART = 66
"""Distance in bytes between the samples that are taken of a body. A row of `_ROWS` has at least three samples, which
are the same bracket.
"""


def _may_nest_deeply(body: bytes) -> bool:
    some = body[::_APART]
    if max(some.find(b"]"), some.find(b"}")) < 0:  # one byte is found much faster than three
        return False
    return max(some.find(b"]]]"), some.find(b"}}}")) >= 0 and max(map(body.find, _ROWS)) >= 0


def _refuse_depth(document: object) -> None:
    try:
        canonical_json(document)
    except NestsTooDeeply:
        raise _too_deep() from None


def _too_deep() -> BadRequest:
    return BadRequest(400, "invalid_json", f"the body is nested too deeply; send it flatter, at most {DEEPEST_BODY} deep")


_NO_NUMBER = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|NaN|-?Infinity'
    rb"|(?<![0-9.eE+-])-?(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+[eE][+-]?[0-9]++|[1-9][0-9]{299,}+(?:\.[0-9]++)?+)",
    re.DOTALL,
)
"""Matches a string, NaN, Infinity, or a number that may be too large for a double: it has an exponent or 300 digits.

Each number is tried only at its beginning, and each string is matched to its end. Otherwise the time could grow with
the square of the body's length.
"""


def _read_leniently(body: bytes, error: orjson.JSONDecodeError) -> tuple[bytes, object]:
    """Return the body in UTF-8, and the decoded document. Raises BadRequest if the body is not JSON.

    It accepts JSON that Python's reader, and therefore an engine, accepts against the standard: UTF-8 with a byte order
    mark, UTF-16, UTF-32, NaN, Infinity, and numbers that are too large for a double. In the document, NaN, Infinity and
    such numbers are None.
    """
    try:
        if (encoding := json.detect_encoding(body)) != "utf-8":
            body = body.decode(encoding).encode()
        return body, orjson.loads(_NO_NUMBER.sub(_readable, body))
    except ValueError:
        if "depth" in str(error):
            raise _too_deep() from None
        message = f"the body is not valid JSON: {error}; send one JSON object in UTF-8"
        raise BadRequest(400, "invalid_json", message) from None


def _readable(found: re.Match[bytes]) -> bytes:
    """Return the matched text if it is a string or a finite number; otherwise null."""
    text = found[0]
    return text if text[:1] == b'"' or (text[-1:].isdigit() and isfinite(float(text))) else b"null"


_WHOLE = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?", re.ASCII)
_LARGEST = 2**53
"""Maximum limit of an answer's tokens; a larger limit is reduced to this number. Engines have no maximum, and every
model's context length is far below it.
"""


def _flag(field: str, value: object) -> bool:
    """Return a boolean, converted as engines do. Raises BadRequest for a value that engines refuse."""
    found = truth(value)
    if found is None:
        raise bad_field(field, value, "use true or false")
    return found


def _limit(document: Document, endpoint: Endpoint) -> int:
    """Return the limit of an answer's tokens, from the protocol's field; 0 = no limit. The value is converted to an
    integer as engines do (pydantic's lax mode), which also accept 100.0 and "100". Raises BadRequest for other values.
    """
    dialect = endpoint.dialect
    field = "max_output_tokens" if dialect is _RESPONSES else "max_tokens"
    if dialect is _OPENAI and document.get("max_completion_tokens") is not None and not is_completion(endpoint.prompt, document):
        field = "max_completion_tokens"
    value = document.get(field)
    if value is None:
        return 0
    number = value if type(value) is int else _whole(value)
    if number is None or number < 0:
        raise bad_field(field, value, "give a whole number of tokens")
    return number if number < _LARGEST else _LARGEST


_ASKS_FOR_MORE = frozenset({"n", "best_of", "prompt"})


def _answers(document: Document, endpoint: Endpoint, *, stream: bool) -> int:
    """Return the number of answers that the request asks for: `n` for each prompt, in protocols with `n`. A chat has
    one prompt.

    A value that engines refuse counts as 1. `best_of` counts too, except for a `stream`, because it cannot be streamed.
    """
    if not endpoint.several and not (endpoint.streams and endpoint.dialect is Dialect.OPENAI):
        return 1
    each = max(_whole(document.get(field)) or 1 for field in (("n",) if stream else ("n", "best_of")))
    prompts = document.get("messages") if endpoint.several else document.get("prompt") if is_completion(endpoint.prompt, document) else None
    if not isinstance(prompts, list) or not prompts or not (endpoint.several or isinstance(prompts[0], str | list)):
        prompts = [prompts]
    return min(max(1, each) * len(prompts), _LARGEST)


def _whole(value: object) -> int | None:
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if not isinstance(value, str) or _WHOLE.fullmatch(text := value.strip()) is None:
        return None
    text = text.partition(".")[0].replace("_", "")
    return int(text) if len(text) < 20 else -1 if text[0] == "-" else _LARGEST


SYSTEM_HEADERS = frozenset(
    {
        b"accept-encoding",  # answers are read for usage, so engines must not compress them
        b"x-prefiller-host-port", b"x-encoder-hosts-ports", b"x-data-parallel-host-port", b"x-kv-cache-source-host-port",
        b"x-gateway-destination-endpoint-subset", b"x-gateway-destination-endpoint-served", b"x-llm-d-request-dropped-reason",
        b"x-worker-instance-id", b"x-prefill-instance-id", b"x-prefill-dp-rank", b"x-dynamo-routing-mode",
    }
)  # fmt: skip
"""Headers of a client that no engine gets, neither from this router nor from a proxy, because only Fairlead and
side-cars may set them.
"""

OVERRIDE_PREFIX = b"x-override-"
"""The prefix of headers from which an SGLang may take fields of the body: the address of a peer, a rank, a priority."""
SYSTEM_PREFIXES = (b"x-fairlead-", OVERRIDE_PREFIX)
"""Prefixes of further headers that are treated like `SYSTEM_HEADERS`."""

_LONGEST_ID = 256


def is_shown_id(request_id: str) -> bool:
    """Return whether a client's request id may be used in the response, because it is short and printable."""
    return 0 < len(request_id) <= _LONGEST_ID and request_id.isascii() and request_id.isprintable()


RANK_HEADER = b"x-data-parallel-rank"
"""The header that names the data-parallel rank for a request. vLLM and SGLang then do not balance between ranks
themselves.
"""

ADAPTER_HEADER = b"x-amzn-sagemaker-adapter-identifier"
"""A header whose value vLLM uses on `/invocations` instead of the body's `model`. It is refused, because the request
would reach a model or adapter that the gateway has not chosen and that the client's key may not open.
"""


def refused_adapter_header() -> BadRequest:
    """Return the 400 for a request that names an adapter in `ADAPTER_HEADER`."""
    name = ADAPTER_HEADER.decode()
    return BadRequest(400, "invalid_field", f"{name}: only the body's `model` names a model or adapter; name it there", name)


_CREDENTIAL = re.compile(
    rb"authorization$|cookie2?$|(api|access|account|auth|consumer|functions|master|private|secret|subscription|virtual)[-_]?key$"
    rb"|(^|[-_])(token|secret|password|passwd|credentials?|bearer|jwt|jwt[-_]assertion|auth|saml|oidc[-_](data|accesstoken|identity))$"
)
LONGEST_KNOWN = 64
"""Maximum number of bytes of a header name that is cached."""


def is_credential(name: bytes) -> bool:
    """Return whether a header with this lower-case name has a credential of the client, for this gateway or for another
    system.

    Engines get such headers only if the pool's spec allows it. They are recognised by the ends of their names, because
    each product has its own name: `x-api-key`, `ocp-apim-subscription-key`, `x-amz-security-token`,
    `x-forwarded-access-token` …
    """
    return _CREDENTIAL.search(name, max(0, len(name) - LONGEST_KNOWN)) is not None


# Beside `SYSTEM_HEADERS`: hop-by-hop headers (RFC 9110 §7.6.1), and what the router sets itself.
_WITHHELD = SYSTEM_HEADERS | {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"http2-settings", b"host", b"content-length", b"content-encoding", b"expect",
    b"x-gateway-destination-endpoint", b"x-request-id", RANK_HEADER,
}  # fmt: skip

_PASSED, _CREDENTIALS, _DROPPED, _READ = range(4)


@lru_cache(maxsize=1024)
def _fate(name: bytes) -> int:
    """Return the treatment of a client's header by its name. `_READ`: the router reads the header and does not pass it
    on.
    """
    if name in (b"connection", b"x-request-id", ADAPTER_HEADER):
        return _READ
    if name in _WITHHELD or name.startswith(SYSTEM_PREFIXES):
        return _DROPPED
    return _CREDENTIALS if is_credential(name) else _PASSED


def forwarded_headers(
    headers: Iterable[tuple[bytes, bytes]], session_header: bytes, *, credentials: bool = False
) -> tuple[bytes, dict[bytes, bytes] | None]:
    """Return the header lines for the engine, and the headers that may name a session (None if there are none). Header
    names must be in lower case.

    `credentials`: whether the client's credentials, which are for this gateway, are included. If a header that may name
    the session occurs several times, the first value counts. Raises BadRequest for a request id with the address of a
    peer of the engine, and for `ADAPTER_HEADER`.
    """
    most = _CREDENTIALS if credentials else _PASSED
    kept: list[tuple[bytes, bytes]] = []
    named: set[bytes] = set()  # thousands of both fit into the largest headers
    naming: dict[bytes, bytes] | None = None
    for header in headers:
        name, value = header
        if name == session_header or name in SESSION_HEADERS:
            naming = naming or {}
            naming.setdefault(name, value)
        fate = _fate(name) if len(name) <= LONGEST_KNOWN else _fate.__wrapped__(name)
        if fate <= most:
            kept.append(header)
        elif fate == _READ:
            if name == b"x-request-id":
                refuse_peer_addresses("x-request-id", value.decode("latin-1"))
            elif name == ADAPTER_HEADER:
                raise refused_adapter_header()
            elif value.lower() not in (b"keep-alive", b"close"):
                named.update(token.strip().lower() for token in value.split(b","))
    if named:
        kept = [header for header in kept if header[0] not in named]
    lines = b"\r\n".join([b": ".join(header) for header in kept])
    return lines + b"\r\n" if lines else lines, naming


class KnownHeaders:
    """Caches the result of `forwarded_headers` for the last request on a connection. Most clients send the same headers
    with each request, except for the length of the body, which is not passed on.
    """

    __slots__ = ("_after", "_before", "_for", "_found")

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._before: list[tuple[bytes, bytes]] = []
        """The headers before the header with the body's length; `_after` has the headers after it. Without such a
        header, `_before` has all headers.
        """
        self._after: list[tuple[bytes, bytes]] = []
        self._for = (b"", False)
        self._found: tuple[bytes, dict[bytes, bytes] | None] = (b"", None)
        """The cached result of `forwarded_headers`; at first the result for a request without headers."""

    def forwarded(
        self, headers: list[tuple[bytes, bytes]], session_header: bytes, *, credentials: bool
    ) -> tuple[bytes, Mapping[bytes, bytes] | None]:
        """Return the result of `forwarded_headers`, from the cache if possible. Raises the same errors."""
        before, wanted = self._before, (session_header, credentials)
        at = len(before)
        known = headers[:at] == before and headers[at + 1 :] == self._after and (len(headers) == at or headers[at][0] == _LENGTH)
        if known and self._for == wanted:
            return self._found
        found = forwarded_headers(headers, session_header, credentials=credentials)
        if len(b"".join(chain.from_iterable(headers))) > MOST_REMEMBERED:
            self._forget()
            return found
        at = next((place for place, (name, _) in enumerate(headers) if name == _LENGTH), len(headers))
        self._before, self._after, self._for = headers[:at], headers[at + 1 :], wanted
        self._found = found
        return found


_LENGTH = b"content-length"
MOST_REMEMBERED = 8192
"""Maximum number of bytes of a request's headers that are kept until the connection's next request."""


def _without_keys(query: bytes) -> bytes:
    """Return a query without the parameters that have a credential of the client, because engines write targets to
    their logs.
    """
    kept = []
    for parameter in query.split(b"&"):
        name = unquote_to_bytes(parameter.partition(b"=")[0]).lower()
        if name != b"key" and not is_credential(name):
            kept.append(parameter)
    return b"&".join(kept)


def request_head(scope: Mapping[str, Any], forwarded: bytes, request_id: bytes, *, length: int | None, chunked: bool = False) -> bytes:
    """Return the request line and the headers for an engine, without `host` and the final empty line.

    `length`: the number of bytes of the body; None = there is no body, or the body is `chunked`.
    """
    query: bytes = scope["query_string"]
    if query:
        query = _without_keys(query)
    target = scope["raw_path"] + b"?" + query if query else scope["raw_path"]
    framing = b"content-length: %d\r\n" % length if length is not None else b"transfer-encoding: chunked\r\n" if chunked else b""
    method = scope["method"].encode()
    fixed = b" HTTP/1.1\r\naccept-encoding: identity\r\n"
    return b"".join((method, b" ", target, fixed, framing, b"x-request-id: ", request_id, b"\r\n", forwarded))
