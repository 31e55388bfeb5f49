"""The gateway's table of paths. For each path it has the handling of requests, the place of the prompt, and the
protocol.

Paths are compared as received, without decoding. Otherwise a path that a proxy before the router has interpreted
differently could reach an engine. A path that is not in this table is refused, even if engines serve it. So clients
cannot reach the engines' administration (`/reset_prefix_cache`, `/sleep`, `/load_lora_adapter`, `/scale_elastic_ep` …).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.prompts import (
    SCORED,
    PromptReader,
    anthropic_prompt,
    batch_prompt,
    chat_prompt,
    completion_prompt,
    embedding_prompt,
    invocation_prompt,
    no_prompt,
    responses_prompt,
    texts_of,
)


class Handling(Enum):
    """The way in which the router handles the requests to a path.

    `ROUTED`: through the pool's scheduler; such requests are routed by prefix, queued, subject to admission, and
    recorded. `SPREAD`: to the instance with the fewest requests in flight; such requests cost an engine little (no
    prefill). `UPLOAD`: a form, which is streamed to the instance with the fewest requests in flight. `HELD`: to the
    instance that made the stored response in the path. `LOCAL`: the router itself responds.
    """

    __hash__ = object.__hash__  # members are looked up for each request, and an enum's own way is written in Python

    ROUTED = "routed"
    SPREAD = "spread"
    UPLOAD = "upload"
    HELD = "held"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A path of the gateway.

    `streams`: whether `stream: true` requests server-sent events. `divides`: whether a prefill and a decode instance
    can compute an answer together. `several`: whether the request has several conversations, each with its own answer.
    `keyless`: whether no API key is needed. `ids`: the fields that may have token ids instead of text.
    """

    path: str
    methods: tuple[str, ...] = ("POST",)
    handling: Handling
    prompt: PromptReader = no_prompt
    dialect: Dialect = Dialect.OPENAI
    streams: bool = False
    divides: bool = False
    several: bool = False
    keyless: bool = False
    ids: frozenset[str] = frozenset()


def _routed(path: str, prompt: PromptReader, *ids: str, streams: bool = False, dialect: Dialect = Dialect.OPENAI) -> Endpoint:
    # what can be streamed is an answer made token by token
    return Endpoint(
        path=path, handling=Handling.ROUTED, prompt=prompt, streams=streams, divides=streams, dialect=dialect, ids=frozenset(ids)
    )


def _spread(path: str, dialect: Dialect = Dialect.OPENAI) -> Endpoint:
    return Endpoint(path=path, handling=Handling.SPREAD, dialect=dialect)


def _local(path: str, *methods: str, keyless: bool = True) -> Endpoint:
    return Endpoint(path=path, methods=methods or ("GET", "HEAD"), handling=Handling.LOCAL, keyless=keyless)


ANY_IDS = ("prompt", "input_ids", "input")
"""The fields that may have token ids, on a path that accepts documents of several kinds. If a document has several of
them, the first one counts.
"""

_RERANKED = texts_of("query", "documents")
_SCORED = texts_of(*SCORED)

ENDPOINTS = (
    _routed("/v1/chat/completions", chat_prompt, "input_ids", streams=True),
    Endpoint(path="/v1/chat/completions/batch", handling=Handling.ROUTED, prompt=batch_prompt, several=True),
    _routed("/v1/completions", completion_prompt, "prompt", streams=True),
    _routed("/v1/responses", responses_prompt, streams=True, dialect=Dialect.RESPONSES),
    _routed("/v1/messages", anthropic_prompt, streams=True, dialect=Dialect.ANTHROPIC),
    _routed("/invocations", invocation_prompt, *ANY_IDS, streams=True),
    _routed("/v1/embeddings", embedding_prompt, "input"),
    _routed("/v2/embed", texts_of("texts", "inputs", "images")),
    _routed("/v1/rerank", _RERANKED),
    _routed("/v2/rerank", _RERANKED),
    _routed("/rerank", _RERANKED),
    _routed("/v1/score", _SCORED),
    _routed("/score", _SCORED),
    _routed("/pooling", texts_of("input", "messages", "data"), "input"),
    _routed("/classify", texts_of("input", "messages"), "input"),
    _routed("/generative_scoring", texts_of("query", "items")),
    _routed("/v1/systemone", texts_of("state", "input", "questions")),
    _spread("/tokenize"),
    _spread("/detokenize"),
    _spread("/v1/messages/count_tokens", Dialect.ANTHROPIC),
    Endpoint(path="/v1/audio/transcriptions", handling=Handling.UPLOAD),
    Endpoint(path="/v1/audio/translations", handling=Handling.UPLOAD),
    _local("/v1/models", keyless=False),
    _local("/version"),
    _local("/health"),
    _local("/ping", "GET", "HEAD", "POST"),
    _local("/healthz"),
    _local("/readyz"),
)

MODEL = Endpoint(path="/v1/models/{id}", methods=("GET", "HEAD"), handling=Handling.LOCAL)
RETRIEVE = Endpoint(path="/v1/responses/{id}", methods=("GET",), handling=Handling.HELD, dialect=Dialect.RESPONSES)
CANCEL = Endpoint(path="/v1/responses/{id}/cancel", handling=Handling.HELD, dialect=Dialect.RESPONSES)

_BY_PATH = {endpoint.path.encode(): endpoint for endpoint in ENDPOINTS}
_RESPONSE = re.compile(rb"/v1/responses/([A-Za-z0-9_.-]{1,200})(/cancel)?")
_MODEL_PREFIX = b"/v1/models/"

KNOWN = tuple(endpoint.path for endpoint in (*ENDPOINTS, MODEL, RETRIEVE, CANCEL))


def find(raw_path: bytes) -> Endpoint | None:
    """Return the endpoint of a path as received, with its percent signs; None if the path is not in the table."""
    endpoint = _BY_PATH.get(raw_path)
    if endpoint is not None:
        return endpoint
    if raw_path.startswith(_MODEL_PREFIX) and not raw_path.endswith(b"/"):
        return MODEL
    response = _RESPONSE.fullmatch(raw_path)
    if response is None or response[1] in (b".", b".."):
        return None
    return CANCEL if response[2] else RETRIEVE


def response_id(raw_path: bytes) -> str:
    """Return the id of the response in a path for which `find` returned RETRIEVE or CANCEL."""
    named = _RESPONSE.fullmatch(raw_path)
    assert named is not None
    return named[1].decode()


def dialect_of(raw_path: bytes) -> Dialect:
    """Return the protocol for the response to a request with an unknown path, guessed from the path's beginning."""
    if raw_path.startswith(b"/v1/messages"):
        return Dialect.ANTHROPIC
    return Dialect.RESPONSES if raw_path.startswith(b"/v1/responses") else Dialect.OPENAI
