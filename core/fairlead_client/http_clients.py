"""HTTP clients that keep no more of an answer than a bound, whoever sent it.

Every httpx client is made here (`tests/unit/project/test_bounded_clients.py`). An answer that is larger than the bound,
or compressed although nobody asked for that, ends as a broken connection does. Streams are read by pieces and have no
end; each says so with `BY_PIECES`, and its refusals (400 and above) are bounded like any answer.
"""

from collections.abc import AsyncIterator
from functools import cache
from typing import Any, TypeVar

import httpx
import msgspec

from fairlead_process.json_documents import decode_json

LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes of an answer of our own control API."""
BY_PIECES = {"fairlead_by_pieces": True}
"""`extensions` of a request whose answer is read by pieces, none of which is kept."""

DEEPEST = 512
"""Levels of an answer. Only what has more brackets is looked at for it."""

Answer = TypeVar("Answer")


class UnboundedAnswer(httpx.ReadError):
    """An answer that is not read to its end; `str(error)` says what it does, as in `answers with more than 5 bytes`."""


class NotReadable(Exception):
    """An answer that is not JSON of the type; `str(error)` says why in one line."""


class BoundedClient(httpx.AsyncClient):
    """An httpx client that reads at most `largest` bytes of an answer; `options` are httpx's.

    Raises UnboundedAnswer where an answer is read. Proxies of the environment are used with `trust_env` only.
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
    """What is wrong with an answer is said where it is read: who wants only its status gets that."""

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
    """The JSON document as this type. Raises NotReadable, also where it nests too deeply."""
    kind: Any = answer  # a cache wants what can be hashed, which mypy does not know of each type
    decoder: msgspec.json.Decoder[Answer] = _decoder(kind)
    try:
        return decode_json(content, decoder, deepest=DEEPEST)
    except msgspec.MsgspecError as error:
        raise NotReadable(str(error)) from error


@cache
def _decoder(answer: Any) -> Any:
    return msgspec.json.Decoder(answer)
