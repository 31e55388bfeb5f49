"""HTTP clients that limit the size of each response from any server.

Every httpx client is made here (`tests/unit/project/test_bounded_clients.py`). A response that exceeds the limit, or is
compressed although the client did not request compression, is treated like a broken connection. Streams are read in
pieces and have no end; each stream request is marked with `BY_PIECES`, and its refusals (400 and above) are bounded
like any response.
"""

from collections.abc import AsyncIterator
from functools import cache
from typing import Any, TypeVar

import httpx
import msgspec

from fairlead_process.json_documents import decode_json

LARGEST_ANSWER = 64 * 1024 * 1024
"""Maximum size of a response of our own control API, in bytes."""
BY_PIECES = {"fairlead_by_pieces": True}
"""The `extensions` of a request whose response is read in pieces; the pieces are not stored."""

DEEPEST = 512
"""Maximum nesting depth of a response. The depth is checked only if a response has more brackets than this."""

Answer = TypeVar("Answer")


class UnboundedAnswer(httpx.ReadError):
    """A response that was not read to its end; `str(error)` says why, as in `answers with more than 5 bytes`."""


class NotReadable(Exception):
    """A response that is not JSON of the expected type; `str(error)` says why in one line."""


class BoundedClient(httpx.AsyncClient):
    """An httpx client that reads at most `largest` bytes of a response; `options` are httpx's.

    Reading a larger response raises UnboundedAnswer. Proxies of the environment are used only with `trust_env`.
    """

    def __init__(self, largest: int, **options: Any) -> None:
        hooks = [self._bound, *options.pop("event_hooks", {}).get("response", ())]
        headers = {"accept-encoding": "identity", **options.pop("headers", {})}
        super().__init__(**{"trust_env": False, **options}, headers=headers, event_hooks={"response": hooks})
        self._largest = largest

    async def _bound(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream), "the client is asynchronous"
        compresses = response.headers.get("content-encoding", "identity") != "identity"
        if compresses or response.is_error or not response.request.extensions.get("fairlead_by_pieces"):
            response.stream = _Bounded(response.stream, self._largest, compresses=compresses)


class _Bounded(httpx.AsyncByteStream):
    """A response's body with bounds. An error is raised when the body is read, so a caller that needs only the status
    gets the status.
    """

    def __init__(self, inner: httpx.AsyncByteStream, largest: int, *, compresses: bool) -> None:
        self._inner = inner
        self._largest = largest
        self._compresses = compresses

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._compresses:
            raise UnboundedAnswer("compresses its answers though nobody asked for that")
        left = self._largest
        async for piece in self._inner:
            left -= len(piece)
            if left < 0:
                raise UnboundedAnswer(f"answers with more than {self._largest} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def decoded(content: bytes, answer: type[Answer]) -> Answer:
    """Decode a JSON document as this type. Raises NotReadable if the document has another type or nests too deeply."""
    kind: Any = answer  # a cache wants what can be hashed, which mypy does not know of each type
    decoder: msgspec.json.Decoder[Answer] = _decoder(kind)
    try:
        return decode_json(content, decoder, deepest=DEEPEST)
    except msgspec.MsgspecError as error:
        raise NotReadable(str(error)) from error


@cache
def _decoder(answer: Any) -> Any:
    return msgspec.json.Decoder(answer)
