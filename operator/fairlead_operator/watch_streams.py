"""Keeps kopf's watches going, whatever the Kubernetes API sends in a stream or instead of a stream.

Kopf understands 410 within a stream and a stream that breaks off; any other fault in a stream would end the operator.
So here an error in a stream (500, 429, 403, …), a line that is not an event and a line that is cut off end the stream
like a broken connection, after a pause that grows. The next watch continues from the last version received, so no
deletion is missed. A watch that is refused `FAILURES` times in a row begins with a new list; client-go does so at the
first refusal (`tools/cache/reflector.go`).
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, cast

import aiohttp
import msgspec

from fairlead_process.json_documents import decode_json, nests_deeper, not_utf8, read_json, too_deep

FAILURES = 3
"""Number of failures in a row after which the watch of a kind begins with a new list of all objects of that kind."""
LONGEST_LINE = 64 * 1024 * 1024
"""Maximum size of one event in bytes; an object has at most 3 MB."""
DEEPEST = 512
"""Maximum nesting depth of an object; the schema of a CustomResourceDefinition has the deepest nesting."""
LONGEST_RETRY_AFTER = 60
"""Maximum seconds that a server may ask a watch to wait."""
GONE = b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"asked too often"}}\n'

logger = logging.getLogger(__name__)


class EndlessPauses:
    """Pauses between kopf's attempts at one request; they never end, because an outage of any length must not end the
    operator.
    """

    def __iter__(self) -> Iterator[float]:
        """Yield 1, 2, 4, … seconds, then 15 each time."""
        pause = 1.0
        while True:
            yield pause
            pause = min(15.0, pause * 2)


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the API's name


class _Details(msgspec.Struct):
    retryAfterSeconds: int = 0  # noqa: N815 - the API's name


class _Object(msgspec.Struct):
    metadata: _Metadata | None = None
    code: int = 0
    message: str | None = None
    details: _Details | None = None


class _Event(msgspec.Struct):
    type: str
    object: _Object


class _Whole(msgspec.Struct):
    """The fields that each document of the API has; a list of objects also has a version."""

    kind: str
    metadata: _Metadata | None = None

    @property
    def is_whole(self) -> bool:
        is_list = self.kind.endswith("List") and self.kind not in {"APIGroupList", "APIResourceList"}
        return not is_list or (self.metadata is not None and bool(self.metadata.resourceVersion))


class _Refusal(msgspec.Struct):
    kind: Any = None
    details: Any = None


_events = msgspec.json.Decoder(_Event)
_wholes = msgspec.json.Decoder(_Whole)
_refusals = msgspec.json.Decoder(_Refusal)


class StreamBroken(Exception):
    """A stream contained something other than an event; `str` describes the content. `seconds` is the pause that the
    server requests, or 0.
    """

    def __init__(self, message: str, seconds: int = 0) -> None:
        self.seconds = max(0, min(LONGEST_RETRY_AFTER, seconds))
        super().__init__(message)


class Watches:
    """A middleware of kopf's HTTP session that checks the responses to watches. `pause` sleeps for some seconds."""

    def __init__(self, pause: Callable[[float], Awaitable[None]]) -> None:
        self._pause = pause
        self._failures: Counter[str] = Counter()
        """By path, the number of its watch's failures in a row."""

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Return the response. If it is the response to a watch, it contains only events that kopf understands.

        If the version from which a watch continues is too old, some servers report this in the stream, which kopf
        understands. Other servers respond with the status 410, which would end the operator. In that case, the watch is
        repeated from the present state.
        """
        answer = await send(request)
        if "watch" not in request.url.query:
            return answer
        while answer.status == 410:
            answer.release()
            await self.failed(request.url.path, StreamBroken("its version is too old for the server"))
            request.url = request.url.without_query_params("resourceVersion")
            answer = await send(request)
        if answer.status < 300:
            answer.content = cast(aiohttp.StreamReader, WatchLines(answer.content, request.url.path, self))
        return answer

    def heard(self, path: str) -> None:
        """Record that a watch of this path received an event."""
        del self._failures[path]

    async def failed(self, path: str, why: StreamBroken) -> bool:
        """Wait before the watch of this path is repeated; return whether the repeated watch must begin with a new list
        of all objects.
        """
        self._failures[path] += 1
        times = self._failures[path]
        pause = max(why.seconds, next(islice(EndlessPauses(), min(times, 5) - 1, None)))
        logger.warning("a watch begins again", extra={"path": path, "error": str(why), "times": times, "pause_seconds": pause})
        await self._pause(pause)
        return times % FAILURES == 0


class WatchLines:
    """The content of a watch's response for kopf: whole lines, each an event. All other attributes come from the
    original content, because aiohttp reads them.
    """

    def __init__(self, content: aiohttp.StreamReader, path: str, watches: Watches) -> None:
        self._content = content
        self._path = path
        self._watches = watches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield the lines, each with its end.

        Raises ClientPayloadError after a pause if the watch must begin again. A pause also follows a stream that ends
        without a line, because kopf would call again at once.
        """
        is_heard = False
        try:
            async for line in whole_lines(self._content.iter_chunked(size)):
                check_event(line)
                self._watches.heard(self._path)
                is_heard = True
                yield line + b"\n"
            if not is_heard:
                await self._watches.failed(self._path, StreamBroken("it ended without an event"))
        except StreamBroken as why:
            if await self._watches.failed(self._path, why):
                yield GONE
            raise aiohttp.ClientPayloadError(str(why)) from None


async def whole_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream that are not empty. Raises StreamBroken for a line that is too long or has no end."""
    begun = bytearray()
    async for piece in pieces:
        begun += piece
        if b"\n" in piece:
            *lines, begun = begun.split(b"\n")
            for line in filter(bytes.strip, map(bytes, lines)):
                yield line
        if len(begun) > LONGEST_LINE:
            raise StreamBroken(f"a line has more than {LONGEST_LINE} bytes")
    if begun.strip():
        raise StreamBroken("its last line is cut off")


def check_event(line: bytes) -> None:
    """Raise StreamBroken for a line that would end kopf: an error other than 410, or a line that is not an event."""
    try:
        event = decode_json(line, _events, deepest=DEEPEST)
    except msgspec.DecodeError as error:
        raise StreamBroken(f"a line is not an event: {error}") from None
    found = event.object
    if event.type == "ERROR":
        if found.code != 410:
            seconds = 0 if found.details is None else found.details.retryAfterSeconds
            message = (found.message or "without a message")[:200]
            raise StreamBroken(f"{found.code} {message}", seconds)
    elif event.type != "BOOKMARK" and (found.metadata is None or not (found.metadata.name and found.metadata.uid)):
        raise StreamBroken("an event has no object with name and uid")


async def take_whole_answers(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Return the response, or raise ClientConnectionError for one that kopf could not use: it was cut off, holds no
    document, or is a refusal that cannot be parsed. Kopf then tries again; the unusable response would end it.
    """
    answer = await send(request)
    if "watch" in request.url.query and answer.status < 300:
        return answer
    try:
        body = await answer.read()
        if answer.status < 300:
            _check_document(body)
        else:
            _check_refusal(body, answer.headers.get("Retry-After", "0"))
    except (aiohttp.ClientPayloadError, msgspec.DecodeError) as error:
        raise aiohttp.ClientConnectionError(f"the answer is not whole: {error}") from error
    return answer


def _check_document(body: bytes) -> None:
    """Raise DecodeError for a body that is not an object of the API, and for a list without a version."""
    if not read_json(body, _wholes).is_whole:
        raise msgspec.DecodeError("a list has no version")


def _check_refusal(body: bytes, wait: str) -> None:
    """Raise DecodeError for a refusal that kopf cannot read: its text is not UTF-8 or nests too deeply, or its wait is
    not a number or is longer than a minute.
    """
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(not_utf8(error)) from None
    if nests_deeper(body):
        raise msgspec.DecodeError(too_deep())
    seconds: Any = int(wait) if wait.isdecimal() and wait.isascii() and len(wait) < 9 else None
    with suppress(msgspec.DecodeError):  # a text is as good
        found = read_json(body, _refusals)
        if found.kind == "Status" and found.details:
            seconds = found.details.get("retryAfterSeconds", seconds) if isinstance(found.details, dict) else None
    if not isinstance(seconds, int) or not 0 <= seconds <= LONGEST_RETRY_AFTER:
        raise msgspec.DecodeError(f"its Retry-After is not a number from 0 to {LONGEST_RETRY_AFTER} seconds")
