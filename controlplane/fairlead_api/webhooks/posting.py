"""Posts notices over HTTP, to addresses that were checked just before (`receivers`).

A host name is resolved once, and the request is sent to the IP address that was checked; TLS still verifies the host
name. Redirects are not followed, and only the status of the response is read. If the environment names a proxy, the
proxy resolves names, and its rules decide to which addresses requests may be sent. Error messages name a kind of
failure, never the address.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from functools import cached_property
from ipaddress import ip_address

import httpx

from fairlead_api.webhooks.deliveries import TIMEOUT_SECONDS
from fairlead_api.webhooks.receivers import IpAddress, Networks, NotAllowed, Receiver, allowed, literal_of
from fairlead_client.http_clients import BoundedClient
from fairlead_client.tls import client_context
from fairlead_process.proxies import proxy_for

UNREAD = 0
"""Maximum number of bytes that are read of a response's body."""
_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (TimeoutError, f"no answer within {TIMEOUT_SECONDS:g} s"),
    (httpx.TimeoutException, f"no answer within {TIMEOUT_SECONDS:g} s"),
    (socket.gaierror, "the host's name is not known"),
    (httpx.ProxyError, "the proxy refused the request"),
    (httpx.ConnectError, "the receiver takes no connection"),
    (httpx.HTTPError, "the connection broke off"),
    (httpx.InvalidURL, "the address cannot be used"),
    (OSError, "the receiver takes no connection"),
)


class HttpPost:
    """Implements `deliveries.Post`. `transport` replaces the network in tests."""

    def __init__(
        self, networks: Networks, environment: Mapping[str, str] = os.environ, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._networks = networks
        self._environment = environment
        self._transport = transport

    async def __call__(self, receiver: Receiver, content: bytes, sent: dict[str, str]) -> tuple[int | None, str | None]:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status = await self._posted(receiver, content, sent)
        except NotAllowed as error:
            return None, str(error)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return None, words_of(error)
        return status, None if 200 <= status < 300 else _refused(status)

    async def _posted(self, receiver: Receiver, content: bytes, sent: dict[str, str]) -> int:
        proxy = proxy_for(receiver.url, self._environment)
        url, extensions = httpx.URL(receiver.url), {}
        if proxy is None:
            address = allowed(receiver, await resolved(receiver), self._networks)
            extensions = {"sni_hostname": receiver.host}
            sent = {**sent, "host": url.netloc.decode()}
            url = url.copy_with(host=str(address))
        elif (literal := literal_of(receiver.host)) is not None:
            allowed(receiver, [literal], self._networks)
        client = BoundedClient(UNREAD, verify=self._tls, proxy=proxy, transport=self._transport, timeout=TIMEOUT_SECONDS)
        async with client as http, http.stream("POST", url, content=content, headers=sent, extensions=extensions) as answer:
            return answer.status_code

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return client_context()


async def resolved(receiver: Receiver) -> list[IpAddress]:
    """Return the IP addresses of the receiver's host, in the order of the system's resolver. Raises socket.gaierror."""
    found = await asyncio.get_running_loop().getaddrinfo(receiver.host, receiver.port, type=socket.SOCK_STREAM)
    return [ip_address(str(place[0]).partition("%")[0]) for *_, place in found]


def words_of(error: Exception) -> str:
    """Return a description of a failure for people. It does not contain the library's message, which may contain the
    receiver's address.
    """
    if isinstance(error.__cause__, ssl.SSLError) or "certificate" in str(error).lower():
        return "the receiver's certificate is not trusted"
    return next((words for kind, words in _WORDS if isinstance(error, kind)), "the request failed")


def _refused(status: int) -> str:
    return f"redirected ({status}); write the address it leads to" if 300 <= status < 400 else f"answered {status}"
