"""Reading a client's body: whole, or piece by piece where it may be larger than memory allows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from fairlead_router.client_requests import BodyTooLarge, ClientRequest
from fairlead_router.refusals import Headers, body_too_large, body_too_slow
from fairlead_router.settings import RouterSettings


class BodyReader:
    """Reads bodies within the limits of the settings. `now` is the router's clock in Unix seconds."""

    def __init__(self, settings: RouterSettings, now: Callable[[], float]) -> None:
        self._body_limit = settings.max_body_bytes
        self._upload_limit = settings.max_upload_bytes
        self._seconds = settings.timeouts.body
        self._now = now

    async def whole(self, headers: Headers, client: ClientRequest) -> bytes:
        """The whole body. Raises BadRequest 413 as soon as it is known to be too large, 408, or ClientGone."""
        if not client.complete:  # else it is as large as it is
            length = _length(headers)
            if length is not None and length > self._body_limit:
                raise body_too_large(self._body_limit, "FAIRLEAD_MAX_BODY_BYTES")
        try:
            return await client.body(self._body_limit, self._seconds)
        except BodyTooLarge:
            raise body_too_large(self._body_limit, "FAIRLEAD_MAX_BODY_BYTES") from None
        except TimeoutError:
            raise body_too_slow(self._seconds) from None

    def upload(self, headers: Headers, client: ClientRequest, arrived_at: float) -> tuple[int | None, AsyncIterator[bytes]]:
        """An upload's length (None when it is sent in chunks) and its pieces as they arrive.

        Raises BadRequest 413; reading the pieces raises BadRequest 413 or 408, or ClientGone.
        """
        length = _length(headers)
        if length is not None and length > self._upload_limit:
            raise body_too_large(self._upload_limit, "FAIRLEAD_MAX_UPLOAD_BYTES")
        return length, self._pieces(client, arrived_at + self._seconds)

    async def _pieces(self, client: ClientRequest, until: float) -> AsyncIterator[bytes]:
        """The body's pieces. Memory never holds more of the body than one piece and the connection's buffer."""
        size = 0
        while True:
            try:
                piece = await client.next_piece(max(0.0, until - self._now()))
            except TimeoutError:
                raise body_too_slow(self._seconds) from None
            if not piece:
                return
            size += len(piece)
            if size > self._upload_limit:
                raise body_too_large(self._upload_limit, "FAIRLEAD_MAX_UPLOAD_BYTES")
            yield piece


def header_value(headers: Headers, name: bytes) -> str | None:
    """The first value of a header, by its lower-case name."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return None


def _length(headers: Headers) -> int | None:
    declared = header_value(headers, b"content-length")
    return int(declared) if declared is not None and declared.isdecimal() else None
