"""Decodes compressed bodies (RFC 9110 §8.4) as they come; what comes out is bounded, however little goes in."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from fairlead_router.refusals import BadRequest, Headers

PIECE_BYTES = 64 * 1024
"""Most bytes that are decoded at a time, and that come of it."""

MOST_MEMBERS = 64
"""Gzip files that may follow each other; each costs time, and an empty one takes 20 bytes."""

MOST_CODINGS = 3
"""Codings that may be applied on top of each other."""

_GZIP = 16 + zlib.MAX_WBITS
_TAKEN = "gzip, deflate, identity"


class ContentDecoder:
    """Decodes a body with these codings, in the order in which they were applied. Raises BadRequest 415 for others."""

    def __init__(self, codings: Iterable[str]) -> None:
        self._layers = [_layer(name) for name in reversed(tuple(codings))]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What more of the body decodes to, in pieces that are decoded one by one. Raises BadRequest 400."""
        for start in range(0, len(data), PIECE_BYTES):  # zlib copies what it has not come to, each time
            yield from self._through(data[start : start + PIECE_BYTES], 0)

    def _through(self, data: bytes, layer: int) -> Iterator[bytes]:
        if layer == len(self._layers):
            yield data
            return
        for piece in self._layers[layer].feed(data):
            yield from self._through(piece, layer + 1)

    def end(self) -> None:
        """The body is complete. Raises BadRequest 400 if it is cut short."""
        for layer in self._layers:
            layer.end()


def codings_of(headers: Headers) -> tuple[str, ...]:
    """The codings of a body, without `identity`, which is none. Raises BadRequest 415 for more than are taken."""
    named = [value for name, value in headers if name == b"content-encoding"]
    if not named:
        return ()
    words = [word.strip().lower() for word in b",".join(named).decode("latin-1").split(",")]
    codings = tuple(word for word in words if word not in ("", "identity"))
    if len(codings) > MOST_CODINGS:
        raise _untaken(f"{len(codings)} codings")
    return codings


class _Layer:
    """One coding."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._decoder: zlib._Decompress | None = None
        self._head = b""
        self._members = 1

    def feed(self, data: bytes) -> Iterator[bytes]:
        decoder = self._decoder
        if decoder is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            decoder = self._decoder = zlib.decompressobj(_format(self._name, data))
        full = False
        while data or full:
            if decoder.eof:
                decoder = self._decoder = self._next_member()
            try:
                piece = decoder.decompress(data, PIECE_BYTES)
            except zlib.error:
                raise _damaged(self._name, "its bytes are of no such coding") from None
            data = decoder.unconsumed_tail or decoder.unused_data
            full = len(piece) == PIECE_BYTES and not decoder.eof
            if piece:
                yield piece

    def _next_member(self) -> zlib._Decompress:
        """A gzip file may be followed by further ones."""
        self._members += 1
        if self._name != "gzip" or self._members > MOST_MEMBERS:
            raise _damaged(self._name, "it goes on after its end")
        return zlib.decompressobj(_GZIP)

    def end(self) -> None:
        if self._head or (self._decoder is not None and not self._decoder.eof):
            raise _damaged(self._name, "it is cut short")


def _layer(name: str) -> _Layer:
    name = {"x-gzip": "gzip"}.get(name, name)
    if name not in ("gzip", "deflate"):
        raise _untaken(repr(name[:60]))
    return _Layer(name)


def _format(name: str, head: bytes) -> int:
    """Deflate is zlib's format by the standard, and without its header from some clients."""
    if name == "gzip":
        return _GZIP
    is_zlib = head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(head[:2], "big") % 31 == 0
    return zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS


def _untaken(what: str) -> BadRequest:
    message = f"content-encoding: {what} cannot be used; send the body as it is, or encoded with one of: {_TAKEN}"
    return BadRequest(415, "unsupported_content_encoding", message, None, [(b"accept-encoding", _TAKEN.encode())])


def _damaged(name: str, why: str) -> BadRequest:
    return BadRequest(
        400, "invalid_content_encoding", f"content-encoding: the body is not valid {name} ({why}); send it again, or as it is"
    )
