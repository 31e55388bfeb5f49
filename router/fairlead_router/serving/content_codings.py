"""Decodes compressed bodies (RFC 9110 §8.4) as they arrive. The output of each step is bounded, even if its input is
tiny.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from fairlead_router.protocols.refusals import BadRequest, Headers

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE_BYTES = 64 * 1024
"""Maximum number of bytes that one step of decoding reads, and maximum number of bytes that it returns."""

MOST_MEMBERS = 64
"""Maximum number of consecutive gzip members or zstd frames in a body. Each costs time, and an empty one has only 20 or
8 bytes.
"""

MOST_CODINGS = 3
"""Maximum number of codings that may be applied to a body one after the other."""

_GZIP = 16 + zlib.MAX_WBITS
_WINDOW_LOG = 23
"""Binary logarithm of the largest zstd window: 8 MiB, which a decoder of this content coding must support (RFC 9659).
"""
_TAKEN = "gzip, deflate, zstd, identity"


class ContentDecoder:
    """Decodes a body with these content codings, which are in the order in which they were applied. Raises BadRequest
    415 for an unknown coding.
    """

    def __init__(self, codings: Iterable[str]) -> None:
        self._layers = [_layer(name) for name in reversed(tuple(codings))]

    @property
    def size(self) -> int:
        """The largest number of bytes that any of the codings has decoded so far. This need not be the last coding,
        because a large output of one coding may decode to nothing in the next.
        """
        return max(layer.size for layer in self._layers)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode more of the body in steps, and yield the bytes of each step, which may be empty. Raises BadRequest
        400.
        """
        for start in range(0, len(data), PIECE_BYTES):  # zlib copies what it has not come to, each time
            yield from self._through(data[start : start + PIECE_BYTES], 0)

    def _through(self, data: bytes, layer: int) -> Iterator[bytes]:
        if not data or layer == len(self._layers):
            yield data
            return
        for piece in self._layers[layer].feed(data):
            yield from self._through(piece, layer + 1)

    def end(self) -> None:
        """Check that the body is complete. Raises BadRequest 400 if it is cut off."""
        for layer in self._layers:
            layer.end()


def codings_of(headers: Headers) -> tuple[str, ...]:
    """Return the codings of a body, without `identity`, which changes nothing. Raises BadRequest 415 if there are more
    codings than allowed.
    """
    for name, _ in headers:
        if name == b"content-encoding":
            break
    else:
        return ()
    named = [value for name, value in headers if name == b"content-encoding"]
    words = [word.strip().lower() for word in b",".join(named).decode("latin-1").split(",")]
    codings = tuple(word for word in words if word not in ("", "identity"))
    if len(codings) > MOST_CODINGS:
        raise _untaken(f"{len(codings)} codings")
    return codings


class _Decoder(Protocol):
    """A decoder of one gzip member or zstd frame, with the interface of the standard library's newer decoders."""

    @property
    def eof(self) -> bool:
        """Whether the end of the compressed member or frame was reached. `unused_data` is the data after the end."""

    @property
    def needs_input(self) -> bool:
        """Whether the decoder needs more input before it can return more output."""

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Inflater:
    """A decoder of zlib's formats."""

    def __init__(self, wbits: int) -> None:
        self._inflating = zlib.decompressobj(wbits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflating.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflating.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        inflating = self._inflating
        piece = inflating.decompress(inflating.unconsumed_tail + data, max_length)
        self.needs_input = not inflating.unconsumed_tail and len(piece) < max_length
        return piece


class _Layer:
    """The decoder of one coding. `begin` makes a decoder from the first `head_bytes` of the data, which show the
    format.
    """

    def __init__(self, name: str, begin: Callable[[bytes], _Decoder], head_bytes: int = 1, members: int = 1) -> None:
        self._name = name
        self._begin = begin
        self._head_bytes = head_bytes
        self._members_left = members
        self._decoder: _Decoder | None = None
        self._head = b""
        self.size = 0
        """Number of bytes decoded so far."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        data, self._head = self._head + data, b""
        while data or not (self._decoder is None or self._decoder.eof or self._decoder.needs_input):
            if self._decoder is None or self._decoder.eof:
                if len(data) < self._head_bytes:
                    self._head = data
                    return
                self._decoder = self._next_member(data)
            decoder = self._decoder
            try:
                piece = decoder.decompress(data, PIECE_BYTES)
            except (zlib.error, zstd.ZstdError):
                raise _damaged(self._name, _WRONG.get(self._name, "its bytes are not in this coding")) from None
            data = decoder.unused_data if decoder.eof else b""
            self.size += len(piece)
            yield piece

    def _next_member(self, head: bytes) -> _Decoder:
        if not self._members_left:
            raise _damaged(self._name, "more bytes follow its end")
        self._members_left -= 1
        return self._begin(head)

    def end(self) -> None:
        if self._head or (self._decoder is not None and not self._decoder.eof):
            raise _damaged(self._name, "it is cut short")


def _layer(name: str) -> _Layer:
    name = {"x-gzip": "gzip"}.get(name, name)
    if name == "gzip":
        return _Layer(name, lambda _: _Inflater(_GZIP), members=MOST_MEMBERS)
    if name == "deflate":
        return _Layer(name, lambda head: _Inflater(_deflate_format(head)), head_bytes=2)
    if name == "zstd":
        return _Layer(name, lambda _: _zstd_decoder(), members=MOST_MEMBERS)
    raise _untaken(repr(name[:60]))


def _zstd_decoder() -> _Decoder:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


def _deflate_format(head: bytes) -> int:
    """Return the `wbits` for deflated data. The standard requires zlib's format, but some clients omit its header."""
    is_zlib = head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(head[:2], "big") % 31 == 0
    return zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS


_WRONG = {"zstd": "its bytes are not in this coding, need a dictionary, or a window of more than 8 MiB"}


def _untaken(what: str) -> BadRequest:
    message = f"content-encoding: {what} cannot be used; send the body as it is, or encoded with one of: {_TAKEN}"
    return BadRequest(415, "unsupported_content_encoding", message, None, [(b"accept-encoding", _TAKEN.encode())])


def _damaged(name: str, why: str) -> BadRequest:
    return BadRequest(
        400, "invalid_content_encoding", f"content-encoding: the body is not valid {name} ({why}); send it again, or as it is"
    )
