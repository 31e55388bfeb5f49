"""Reads the body of a request as a whole, or piece by piece if it may be larger than the memory for bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

from fairlead_router.protocols.refusals import Headers, body_too_large, body_too_slow, memory_full
from fairlead_router.serving.body_memory import MemoryFull
from fairlead_router.serving.client_requests import BodyTooLarge, ClientRequest
from fairlead_router.serving.content_codings import ContentDecoder, codings_of
from fairlead_router.settings import RouterSettings

BODY_LIMIT, UPLOAD_LIMIT = "FAIRLEAD_MAX_BODY_BYTES", "FAIRLEAD_MAX_UPLOAD_BYTES"

STEPS_AT_ONCE = 16
"""Number of steps of decoding a body after which other tasks may run."""


class BodyReader:
    """Reads bodies within the limits of the settings. `now` is the router's clock in Unix seconds."""

    def __init__(self, settings: RouterSettings, now: Callable[[], float]) -> None:
        self._body_limit = settings.max_body_bytes
        self._upload_limit = settings.max_upload_bytes
        self._seconds = settings.timeouts.body
        self._now = now

    async def whole(self, headers: Headers, client: ClientRequest) -> bytes:
        """Return the whole body, decoded.

        Raises BadRequest: 413 as soon as the body is known to be too large, 503 if the memory for all bodies is used
        up, 408 if the body does not arrive in time, 415 or 400 for a content coding that cannot be decoded. Raises
        ClientGone if the client has left.
        """
        codings = codings_of(headers) if b"content-encoding" in client.headers else ()
        decoder = ContentDecoder(codings) if codings else None
        if not client.complete:  # else it is as large as it is
            length = _length(headers)
            if length is not None and length > self._body_limit:
                raise body_too_large(self._body_limit, BODY_LIMIT)
        try:
            body = await client.body(self._body_limit, self._seconds)
            if decoder is None or not body:
                return body
            plain = await decoded(decoder, body, self._body_limit, client.hold)
            client.let_go(len(body))
            return plain
        except BodyTooLarge:
            raise body_too_large(self._body_limit, BODY_LIMIT) from None
        except MemoryFull:
            raise memory_full() from None
        except TimeoutError:
            raise body_too_slow(self._seconds) from None

    def upload(self, headers: Headers, client: ClientRequest, arrived_at: float) -> tuple[int | None, AsyncIterator[bytes]]:
        """Return an upload's length in bytes (None if it is sent in chunks or encoded), and its decoded pieces as they
        arrive.

        Raises BadRequest 413 or 415. Reading the pieces raises BadRequest 413, 408, 503 or 400, or ClientGone.
        """
        codings = codings_of(headers)
        length = _length(headers)
        if length is not None and length > self._upload_limit:
            raise body_too_large(self._upload_limit, UPLOAD_LIMIT)
        pieces = self._pieces(client, arrived_at + self._seconds)
        return (None, self._decoding(ContentDecoder(codings), pieces)) if codings else (length, pieces)

    async def _pieces(self, client: ClientRequest, until: float) -> AsyncIterator[bytes]:
        """Yield the pieces of the body. Memory holds at most one piece of the body and the connection's buffer."""
        size = 0
        while True:
            try:
                piece = await client.next_piece(max(0.0, until - self._now()))
            except TimeoutError:
                raise body_too_slow(self._seconds) from None
            except MemoryFull:
                raise memory_full() from None
            if not piece:
                return
            size += len(piece)
            if size > self._upload_limit:
                raise body_too_large(self._upload_limit, UPLOAD_LIMIT)
            yield piece

    async def _decoding(self, decoder: ContentDecoder, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        steps = 0
        async for encoded in pieces:
            for piece in decoder.feed(encoded):
                if decoder.size > self._upload_limit:
                    raise body_too_large(self._upload_limit, UPLOAD_LIMIT)
                if piece:
                    yield piece
                steps += 1
                if not steps % STEPS_AT_ONCE:
                    await asyncio.sleep(0)
        decoder.end()


async def decoded(decoder: ContentDecoder, body: bytes, limit: int, hold: Callable[[int], None]) -> bytes:
    """Return the decoded body. It is decoded in steps, so that other tasks run in between. `hold` reserves memory for
    each step.

    Raises BodyTooLarge if there are more than `limit` bytes, BadRequest if the body cannot be decoded, and the errors
    of `hold`.
    """
    pieces: list[bytes] = []
    for step, piece in enumerate(limited(decoder, body, limit), 1):
        if piece:
            hold(len(piece))
            pieces.append(piece)
        if not step % STEPS_AT_ONCE:
            await asyncio.sleep(0)
    return b"".join(pieces)


def limited(decoder: ContentDecoder, body: bytes, limit: int) -> Iterator[bytes]:
    """Decode a body in steps, and yield the bytes of each step. Raises BodyTooLarge if the output of any of its codings
    exceeds `limit` bytes, and BadRequest if the body cannot be decoded.
    """
    for piece in decoder.feed(body):
        if decoder.size > limit:
            raise BodyTooLarge
        yield piece
    decoder.end()


def header_value(headers: Headers, name: bytes) -> str | None:
    """Return the first value of the header with this lower-case name; None if it is missing."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return None


def _length(headers: Headers) -> int | None:
    declared = header_value(headers, b"content-length")
    return int(declared) if declared is not None and declared.isdecimal() else None
