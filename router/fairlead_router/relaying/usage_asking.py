"""Requests usage (token counts) for streams whose clients do not request it: `stream_options.include_usage`.

All other bytes of the client's request stay unchanged. An engine that refuses the option gets the request as the client
sent it. For a while, other requests to this engine do not get the option either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairlead_router.engines.upstream_connections import UpstreamConnection
from fairlead_router.protocols.answers import decoded
from fairlead_router.protocols.body_edits import edited, top_level_fields
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.paths import Endpoint
from fairlead_router.protocols.prompts import Document
from fairlead_router.protocols.requests import ParsedRequest
from fairlead_router.relaying.calls import Call, Change, Leg
from fairlead_router.relaying.dividing import leg_with
from fairlead_router.relaying.sending import Sender

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_OPENAI: Final = Dialect.OPENAI

ASKED_AGAIN_SECONDS = 600.0
"""Seconds for which requests to an engine that refused the option do not get it. After that it is tried again, because
another engine may have got the address.
"""

_FIELD = "stream_options"
_ASKED = b'"stream_options":{"include_usage":true}'
_REFUSAL_BYTES = 64 * 1024
REFUSALS = (400, 422)
"""Statuses with which engines refuse a request field."""


def may_ask_for_usage(parsed: ParsedRequest, endpoint: Endpoint) -> bool:
    """Return whether this is a streamed chat or completion whose client does not itself request usage."""
    if not parsed.stream or parsed.include_usage or endpoint.dialect is not _OPENAI:
        return False
    return "messages" in parsed.document or "prompt" in parsed.document or "prompt_embeds" in parsed.document


def ask_for_usage(body: bytes, document: Document) -> tuple[bytes, Change | None]:
    """Return the body of a streamed chat or completion with the option that requests usage, and the change. The change
    is None if the body is unchanged.

    A client's option for usage in every chunk is removed. The client does not lose anything, because vLLM sends such
    usage only to clients that also set `include_usage`.
    """
    if _FIELD not in document:
        at = body.index(b"{") + 1
        asked = _ASKED + b","
        return b"".join((body[:at], asked, memoryview(body)[at:])), Change(at, b"", asked)
    options = document[_FIELD] or {}
    if not isinstance(options, dict):
        return body, None
    wanted = {name: value for name, value in options.items() if name != "continuous_usage_stats"} | {"include_usage": True}
    fields = [field for field in top_level_fields(body) if field.name == _FIELD]
    start, end = fields[0].value, fields[-1].end  # the name may be there more than once
    changed = edited(body, document, {_FIELD: wanted})
    return changed, Change(start, body[start:end], changed[start : len(changed) - len(body) + end])


class UsageAsking:
    """Sends calls like `Sender`, and remembers which engines refuse the option that requests usage. `now` is the
    router's clock in Unix seconds.
    """

    def __init__(self, sender: Sender, now: Callable[[], float]) -> None:
        self._sender = sender
        self._now = now
        self._refusing: dict[str, float] = {}
        """By engine address: the time until which requests do not get the option."""

    async def begin(
        self, call: Call, instance: str, address: str, *, credentials: bool, carried: bool, leg: Leg | None = None
    ) -> UpstreamConnection:
        """Send a call as `Sender.begin` does. If the engine refuses the added option, send the call again without it;
        this does not count as a failure. If the engine then refuses the client's own request too, the option is not
        remembered as refused.
        """
        change = call.asks_usage
        if change is None:
            return await self._sender.begin(call, instance, address, credentials=credentials, carried=carried, leg=leg)
        call.hides_usage = not self.refuses(address)
        if call.hides_usage:
            connection = await self._sender.begin(call, instance, address, credentials=credentials, carried=carried, leg=leg)
            if connection.status not in REFUSALS or not await _names_the_option(connection):
                return connection
            self._sender.release(call, connection)
        was_asked, call.hides_usage = call.hides_usage, False
        plain = leg_with(call, change.undone(call.body if leg is None else leg.body))
        connection = await self._sender.begin(call, instance, address, credentials=credentials, carried=carried, leg=plain)
        if was_asked and connection.status not in REFUSALS:
            self.refused(address)
        return connection

    def refuses(self, address: str) -> bool:
        """Return whether the engine at this address has recently refused the option that requests usage."""
        until = self._refusing.get(address)
        return until is not None and until > self._now()

    def refused(self, address: str) -> None:
        """Record that the engine at this address has refused the option that requests usage."""
        now = self._now()
        self._refusing = {other: until for other, until in self._refusing.items() if until > now}
        self._refusing[address] = now + ASKED_AGAIN_SECONDS


async def _names_the_option(connection: UpstreamConnection) -> bool:
    """Return whether a refusal is about the option that requests usage. If it is not, its body can be read again."""
    answer = bytearray()
    while len(answer) <= _REFUSAL_BYTES and (piece := await connection.read()):
        answer += piece
    if names_the_option(answer) and connection.complete:
        return True
    connection.unread(bytes(answer))
    return False


def names_the_option(answer: bytes | bytearray) -> bool:
    """Return whether the body of a refusal may be about the option that requests usage. It must name the option, and
    must not quote the whole request, as vLLM does for a field that is missing or invalid.
    """
    if b"stream_options" not in answer and b"include_usage" not in answer:
        return False
    document = decoded(bytes(answer))
    error = document.get("error", document) if isinstance(document, dict) else None
    field = error.get("param") if isinstance(error, dict) else None
    if isinstance(field, str) and field:
        return "stream_options" in field or "include_usage" in field
    return b"messages" not in answer and b"prompt" not in answer
