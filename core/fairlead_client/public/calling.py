"""Calls the public API: each call returns a typed response or a stream, or raises a problem."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from fairlead.tables import PoolKey
from fairlead_client.addresses import reaching
from fairlead_client.http_clients import BY_PIECES, LARGEST_ANSWER, BoundedClient, NotReadable, decoded
from fairlead_client.problems import ApiLate, ApiProblem, ApiUnreachable, ClientBusy
from fairlead_client.resources.problems import Problem

Answer = TypeVar("Answer")
TOKEN_HEADER = "x-fairlead-token"  # noqa: S105 - a name, no secret
Query = Mapping[str, str | int | float | bool | tuple[str, ...] | None]


class ApiCalls:
    """Calls of the control API at `urls` (one address, or several of the same API), authenticated by `token`.

    `transport` replaces the network (httpx.ASGITransport in one process). With `own_header` the token is sent in
    X-Fairlead-Token, because a proxy in between uses the Authorization header itself. A response may have at most
    `largest` bytes. Raises ApiProblem for every problem document and ApiUnreachable if there was no usable response.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        timeout_seconds: float = 10.0,
        http: httpx.AsyncClient | None = None,
        own_header: bool = False,
        largest: int = LARGEST_ANSWER,
    ) -> None:
        if http is None:
            base_url, transport = reaching(urls, transport)
            headers = {"accept": "application/json"}
            http = BoundedClient(largest, base_url=base_url, transport=transport, timeout=timeout_seconds, headers=headers)
        self._http = http
        self._token = token
        self._own_header = own_header

    def with_token(self, token: str | None) -> Self:
        """Return a client with the same connections and another bearer token."""
        return type(self)("", token, http=self._http, own_header=self._own_header)

    async def close(self) -> None:
        """Close the connections, also the connections of every client made by `with_token`."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _call(
        self,
        method: str,
        path: str,
        answer: type[Answer] | None,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        payload = msgspec.json.encode(body) if body is not None else None
        headers = {**self._headers(), **(headers or {})}
        if payload is not None:
            headers["content-type"] = "application/json"
        try:
            response = await self._http.request(method, path, params=_present(query), content=payload, headers=headers)
        except httpx.HTTPError as error:
            raise unreachable(error) from error
        # httpx's response and its stream know each other: left so, each call is garbage that has to be searched for
        response.stream = httpx.ByteStream(b"")
        if response.status_code >= 400:
            raise _problem(response)
        if answer is None:
            return None  # type: ignore[return-value]  # callers without an answer type discard the value
        try:
            return decoded(response.content, answer)
        except NotReadable as error:
            raise ApiUnreachable(f"the control API's answer to {method} {path} cannot be read: {error}") from error

    @asynccontextmanager
    async def _streaming(self, path: str, query: Query, limits: httpx.Timeout, headers: dict[str, str]) -> AsyncIterator[httpx.Response]:
        try:
            async with self._http.stream(
                "GET", path, params=_present(query), headers={**self._headers(), **headers}, timeout=limits, extensions=BY_PIECES
            ) as response:
                if response.status_code >= 400:
                    await response.aread()
                    raise _problem(response)
                yield response
        except httpx.HTTPError as error:
            raise unreachable(error) from error

    def _headers(self) -> dict[str, str]:
        if not self._token:
            return {}
        return {TOKEN_HEADER: self._token} if self._own_header else {"authorization": f"Bearer {self._token}"}


def _present(query: Query | None) -> dict[str, Any]:
    return {name: value for name, value in (query or {}).items() if value is not None}


def path_of(pool: PoolKey) -> str:
    """Return the part of a URL path that names the pool: `default/chat`."""
    return f"{segment(pool.namespace)}/{segment(pool.name)}"


def subject_of(pool: PoolKey | None, instance: str | None) -> str:
    """Return the beginning of the URL path for all pools (None), for one pool, or for one of its instances."""
    of_pool = "" if pool is None else f"/pools/{path_of(pool)}"
    return "/v1" + of_pool + ("" if instance is None else f"/instances/{segment(instance)}")


def segment(text: str) -> str:
    """Return a name as one segment of a path."""
    return quote(text, safe="")


def unreachable(error: httpx.HTTPError) -> ApiUnreachable:
    """Return the error for a request without a response. The error says whether the connections were all in use, the
    API took the request but did not respond in time, or the API could not be reached.
    """
    if isinstance(error, httpx.PoolTimeout):
        return ClientBusy("all of this process's connections to the control API are in use; send the request again later")
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return ApiLate("the control API took too long to answer")
    return ApiUnreachable(f"the control API did not answer: {str(error) or type(error).__name__}")


def _problem(response: httpx.Response) -> ApiProblem | ApiUnreachable:
    try:
        problem = decoded(response.content, Problem)
    except NotReadable:
        if told := _of_kubernetes(response.content):
            return ApiUnreachable(f"the Kubernetes API answered {response.status_code}: {told}")
        return ApiUnreachable(f"the control API answered {response.status_code} without a problem document")
    after = response.headers.get("retry-after", "")
    return ApiProblem(problem, float(after) if after.isdigit() else None)


def _of_kubernetes(content: bytes) -> str:
    """Return the message of a Kubernetes Status, which an API server sends if the server behind its proxy does not
    respond; empty for another document.
    """
    try:
        found = decoded(content, dict[str, Any])
    except NotReadable:
        return ""
    return str(found.get("message") or "") if found.get("kind") == "Status" else ""
