"""Several addresses of one control API: calls go to the address in use, and to the next one after a failure.

If no server received a call, it is repeated at the next address at once. After any other failure the API may have
carried out the call, so the call fails, and only later calls use the next address.
"""

from collections.abc import AsyncIterator, Sequence

import httpx

from fairlead_client.tls import client_context

UNWELL = frozenset({502, 503, 504})
"""Statuses after which the next call uses another address: this API, its database or its proxy is
unavailable or busy.
"""


def reaching(urls: str | Sequence[str], transport: httpx.AsyncBaseTransport | None = None) -> tuple[str, httpx.AsyncBaseTransport]:
    """Return the base URL and the transport of a client for one address or several; `transport` replaces the
    network.
    """
    addresses = (urls,) if isinstance(urls, str) else tuple(urls)
    if transport is None:  # where nothing is encrypted, no certificates are read: that takes 25 ms
        is_plain = all(url.startswith("http://") for url in addresses)
        transport = httpx.AsyncHTTPTransport(trust_env=False, verify=False if is_plain else client_context())
    return addresses[0], transport if len(addresses) == 1 else SeveralAddresses(addresses, transport)


class SeveralAddresses(httpx.AsyncBaseTransport):
    """Sends the requests of a client, whose base URL is the first address, to the address in use."""

    def __init__(self, urls: Sequence[str], inner: httpx.AsyncBaseTransport) -> None:
        self._urls = tuple(httpx.URL(url.rstrip("/")) for url in urls)
        self._inner = inner
        self._prefix = len(_path(self._urls[0]))
        self._in_use = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path[self._prefix :]
        first = self._in_use
        for step in range(len(self._urls)):
            number = (first + step) % len(self._urls)
            url = self._urls[number]
            request.url = url.copy_with(raw_path=_path(url) + path)
            request.headers["host"] = url.netloc.decode("ascii")
            try:
                response = await self._inner.handle_async_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                self._leave(number)
                if step == len(self._urls) - 1:
                    raise
                continue
            except httpx.PoolTimeout:
                raise  # our own connections are all in use
            except httpx.TransportError:
                self._leave(number)
                raise
            if response.status_code in UNWELL:
                self._leave(number)
            if isinstance(response.stream, httpx.AsyncByteStream):
                response.stream = _Watched(self, number, response.stream)
            return response
        raise AssertionError("the last address answers or raises")

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _leave(self, number: int) -> None:
        if self._in_use == number:  # else another call has left it already
            self._in_use = (number + 1) % len(self._urls)


class _Watched(httpx.AsyncByteStream):
    """A response's body that is watched: if it breaks off or stalls, later calls use another address."""

    def __init__(self, addresses: SeveralAddresses, number: int, inner: httpx.AsyncByteStream) -> None:
        self._addresses = addresses
        self._number = number
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._inner:
                yield piece
        except httpx.TransportError:
            self._addresses._leave(self._number)
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


def _path(url: httpx.URL) -> bytes:
    return url.raw_path.rstrip(b"/")
