"""The few requests that the kubelet and the service proxy make to a Kubernetes API.

It sends JSON with aiohttp. Errors become ClusterProblem, and watches are asynchronous iterators.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any

import aiohttp
import orjson

from processkube.errors import ClusterProblem
from processkube.kubeconfig import ClusterConnection

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

LARGEST_ANSWER = 256 * 1024 * 1024
"""Maximum number of bytes of one response, or of one line of a watch."""

Document = dict[str, Any]


class KubernetesClient:
    """A client of one Kubernetes API with a pool of connections, used as an async context manager. Paths start with
    `/api` or `/apis`.
    """

    def __init__(self, connection: ClusterConnection, *, timeout_seconds: float = 10.0) -> None:
        self._connection = connection
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "KubernetesClient":
        headers = {"Accept": "application/json", "User-Agent": "processkube"}
        if self._connection.token is not None:
            headers["Authorization"] = f"Bearer {self._connection.token}"
        connector = aiohttp.TCPConnector(ssl=self._connection.tls or True, limit=32)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, trust_env=False)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json", query: Mapping[str, str] | None = None
    ) -> Document:
        """Send one request, and return the decoded response.

        Raises ClusterProblem for an error status, and if the server cannot be reached.
        """
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type} if data is not None else {}
        try:
            async with self._opened().request(
                method, self._connection.server + path, data=data, headers=headers, params=query, timeout=self._timeout
            ) as answer:
                text = await _text(answer)
        except (aiohttp.ClientError, TimeoutError, OSError, UnicodeDecodeError) as problem:
            raise ClusterProblem(f"Kubernetes API {self._connection.server} does not answer ({_cause(problem)})") from None
        if answer.status >= 400:
            raise _refusal(method, path, answer.status, text)
        try:
            document: Document = orjson.loads(text)
        except ValueError:
            raise ClusterProblem(f"{method} {path} was answered with something that is not JSON") from None
        return document

    async def watch(self, path: str, *, resource_version: str, query: Mapping[str, str] | None = None) -> AsyncIterator[Document]:
        """Yield the events after `resource_version` until the server ends the watch.

        Raises ClusterProblem. If its status is 410, the caller must list the objects again.
        """
        wanted = {
            **(query or {}),
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "300",
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=330.0)
        try:
            async with self._opened().get(self._connection.server + path, params=wanted, timeout=timeout, read_bufsize=2**20) as answer:
                if answer.status >= 400:
                    raise _refusal("GET", path, answer.status, await _text(answer))
                async for line in _lines(answer.content):
                    yield _event(line)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
            raise ClusterProblem(f"watch of {path} broke ({_cause(problem)})") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("KubernetesClient is used outside its `async with`")
        return self._session


async def _text(answer: aiohttp.ClientResponse) -> str:
    """Return the body of a response. Raises ClientPayloadError if it is too large."""
    content = bytearray()
    async for piece in answer.content.iter_any():
        content += _fits(content, piece)
    return content.decode()


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the complete, non-empty lines of a stream."""
    begun = bytearray()
    async for piece in content.iter_any():
        begun += _fits(begun, piece)
        if b"\n" in piece:
            *lines, begun = begun.split(b"\n")
            for line in filter(bytes.strip, map(bytes, lines)):
                yield line


def _fits(begun: bytearray, piece: bytes) -> bytes:
    if len(begun) + len(piece) > LARGEST_ANSWER:
        raise aiohttp.ClientPayloadError(f"more than {LARGEST_ANSWER} bytes")
    return piece


def _event(line: bytes) -> Document:
    """Return the event in a line of a watch. Raises ClusterProblem for an error event, and ValueError for a line that
    is not an event.
    """
    event = orjson.loads(line)
    found = event.get("object") if isinstance(event, dict) else None
    if not isinstance(found, dict) or not isinstance(event.get("type"), str):
        raise ValueError("a line is not an event")  # noqa: TRY004 - of what a server wrote
    if event["type"] == "ERROR":
        raise ClusterProblem(str(found.get("message", "watch ended")), status=found.get("code"), reason=found.get("reason", ""))
    metadata = found.get("metadata")
    if not isinstance(metadata, dict) or (event["type"] != "BOOKMARK" and not isinstance(metadata.get("uid"), str)):
        raise ValueError("an event has no object")
    return dict(event)


def _cause(problem: Exception) -> str:
    if isinstance(problem, asyncio.TimeoutError):
        return "time-out"
    return str(problem) or type(problem).__name__


def _refusal(method: str, path: str, status: int, text: str) -> ClusterProblem:
    reason, message = "", text.strip()[:300]
    try:
        document = orjson.loads(text)
        reason, message = document.get("reason") or "", document.get("message") or message
    except (ValueError, AttributeError):
        pass
    return ClusterProblem(f"{method} {path}: {status} {reason}: {message}", status=status, reason=reason)
