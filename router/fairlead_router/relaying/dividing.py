"""Divides a request between a prefill and a decode instance: which requests can be divided, and which request each
instance gets.

The requests follow vLLM's handshake (`kv_transfer_params`). The prefill instance gets the client's request for one
token, unstreamed, and responds with the location of its KV blocks. The decode instance gets the client's request and
that response.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.plausibility import HANDOVER_BYTES, HANDOVER_LEVELS
from fairlead_process.json_documents import nests_deeper, read_json
from fairlead_router.protocols.body_edits import edited, without
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.peer_fields import KV_TRANSFER
from fairlead_router.protocols.prompts import Document, truth
from fairlead_router.relaying.calls import Call, Leg

_ASKED = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}

_LIMITS = {
    Dialect.OPENAI: ("max_tokens", "max_completion_tokens"),
    Dialect.RESPONSES: ("max_output_tokens",),
    Dialect.ANTHROPIC: ("max_tokens",),
}
"""By protocol: the fields that limit the answer's length. The first field is always set in the prefill's request."""

_LEFT_OUT = frozenset({"stream_options", "min_tokens"})
"""Fields that are removed from the prefill's request, because engines refuse them in a request for a single token that
is not streamed.
"""

_WHOLE = ("best_of", "prompt_logprobs", "previous_response_id")
_WHOLE_IF_TRUE = ("use_beam_search", "echo", "background")
"""Fields that prevent dividing unless they are missing or false. The fields in `_WHOLE` prevent it unless they are
missing or empty. These fields ask for more sequences than the handshake can transfer, for data about the prompt's
tokens, or for something that only one instance stores.
"""

_BY_SIDECARS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})
"""Paths whose requests llm-d's side-car divides."""


def is_divisible(document: Document) -> bool:
    """Return whether two instances can compute the request together, because it has one prompt and one answer, and
    needs no state of one engine.
    """
    if KV_TRANSFER in document or (document.get("n") or 1) != 1:
        return False
    prompt = document.get("prompt")
    several = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], str | list)
    return (
        not several
        and not any(document.get(field) for field in _WHOLE)
        and not any(truth(document.get(field)) is not False for field in _WHOLE_IF_TRUE)
    )


def sidecars_divide(path: str, document: Document) -> bool:
    """Return whether the side-car of a decode instance can let another instance compute the prompt. It cannot if the
    request has `min_tokens`: llm-d's side-car sends this field also in its request for one token, which an engine then
    refuses.
    """
    return path in _BY_SIDECARS and "min_tokens" not in document and is_divisible(document)


def prefill_leg(call: Call, document: Document, transfer: object = _ASKED) -> Leg:
    """Return the request for the prefill instance. `document`: the call's decoded body. `transfer`: by default, it asks
    for the location of the KV blocks. If it is itself a location, the instance fetches the blocks from there.
    """
    limits = _LIMITS[call.dialect]
    asked: dict[str, Any] = {field: 1 for field in limits if field in document}
    asked |= {limits[0]: 1, "stream": False, KV_TRANSFER: transfer}
    if call.dialect is Dialect.RESPONSES:
        asked["store"] = False
    body = call.body if call.asks_usage is None else call.asks_usage.undone(call.body)
    if not _LEFT_OUT.isdisjoint(document):
        body = without(body, _LEFT_OUT)
    return leg_with(call, edited(body, document, asked))


def decode_leg(call: Call, blocks: bytes) -> Leg:
    """Return the request for the decode instance: the client's body, with `blocks` as its last field."""
    body = call.body
    return leg_with(call, b'%b,"%b":%b}' % (body[: body.rindex(b"}")], KV_TRANSFER.encode(), blocks))


def leg_with(call: Call, body: bytes) -> Leg:
    """Return the call's request with another body, and with this body's length in its head."""
    length = b"content-length: %d\r\n"
    return Leg(head=call.head.replace(length % len(call.body), length % len(body), 1), body=body)


class _Answer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw()


_ANSWER = msgspec.json.Decoder(_Answer)


def blocks_of(answer: bytes) -> bytes | None:
    """Return the `kv_transfer_params` in the response to a prefill, as JSON. None if there are none, or if they are
    larger than for any real prompt.
    """
    try:
        blocks = bytes(read_json(answer, _ANSWER).kv_transfer_params)
    except msgspec.DecodeError:
        return None
    fits = len(blocks) <= HANDOVER_BYTES and not nests_deeper(blocks, HANDOVER_LEVELS)
    return blocks if fits and blocks.startswith(b"{") else None
