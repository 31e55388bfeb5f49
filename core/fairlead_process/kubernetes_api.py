"""Requests to the Kubernetes API, for all processes.

Handles expiring credentials, time limits, and the meaning of errors. The official asyncio client reads the
configuration and the credentials; the requests are made here, because that client does not allow control over how JSON
is written. Objects are plain JSON documents; the callers choose the objects.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml
from kubernetes.aio import client, config

from fairlead_process.json_documents import read_json
from fairlead_process.proxies import proxy_for
from fairlead_process.yaml_documents import complaint

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
"""Content type of a server-side apply. JSON is allowed, because JSON is YAML too."""

_document = msgspec.json.Decoder(dict[str, Any])
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

LARGEST_ANSWER = 256 * 1024 * 1024
"""Maximum size of a response in bytes. For comparison, 20,000 pods are about 200 MB."""

_SECONDS = 10.0
_CONNECT_SECONDS = 3.0
LONGEST_RETRY_AFTER = 60.0
"""Maximum number of seconds for which a server's Retry-After is obeyed, so that a wrong value does not stop a caller
for a day.
"""


class ClusterError(Exception):
    """A call to the Kubernetes API failed; `str(error)` is one line.

    ClusterError
    ├── ClusterUnavailable         no usable answer (none, 401, 429 or 5xx): worth repeating
    │   └── ClusterNotConfigured   nothing says where the API is: worth repeating once somebody has configured it
    └── ClusterRefused             the request was answered and refused: repeating it unchanged is pointless
    """


class ClusterUnavailable(ClusterError):
    """The server gave no usable response; the call may or may not have had its effect.

    `status` is None if there was no response; `is_late` then says whether a write was sent and only its response was
    too late. `retry_after` is the number of seconds that the server asks its caller to wait, at most
    LONGEST_RETRY_AFTER.
    """

    def __init__(self, message: str, status: int | None = None, *, is_late: bool = False, retry_after: float = 0.0) -> None:
        self.status = status
        self.is_late = is_late
        self.retry_after = retry_after
        super().__init__(message)


class ClusterNotConfigured(ClusterUnavailable):
    """The kubeconfig cannot be used, or there is no kubeconfig and the process runs outside a cluster."""


class ClusterRefused(ClusterError):
    """A refusal with the HTTP status, the server's reason code, its message `text` and the first `field` that it names
    (empty if none).
    """

    def __init__(self, status: int, reason: str, message: str, text: str = "", field: str = "") -> None:
        self.status = status
        self.reason = reason
        self.text = text or message
        self.field = field
        super().__init__(message)


class BoundedResponse(aiohttp.ClientResponse):
    """A response that is read up to LARGEST_ANSWER; a larger response fails like a broken connection. Streams are read
    in pieces, without this class.
    """

    async def read(self) -> bytes:
        if self._body is None:
            try:
                self._body = await self._whole()
            except BaseException:
                self.close()
                raise
        return await super().read()

    async def _whole(self) -> bytes:
        content = bytearray()
        async for piece in self.content.iter_any():
            content += piece
            if len(content) > LARGEST_ANSWER:
                raise aiohttp.ClientPayloadError(f"it answers with more than {LARGEST_ANSWER} bytes")
        return bytes(content)


class _Login:
    """Credentials, and the connections opened with them. When the credentials are replaced, their connections stay open
    until the last call on them ends, so that the failure of one call does not interrupt another.
    """

    def __init__(self, api: client.ApiClient) -> None:
        self.configuration = api.configuration
        self.session = _session(api)
        self._api = api
        self._calls = 0
        self._is_left = False

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            await self._close_unused()

    async def leave(self) -> None:
        self._is_left = True
        await self._close_unused()

    async def _close_unused(self) -> None:
        if self._is_left and not self._calls:
            await self.session.close()
            await self._api.close()


class KubernetesApi:
    """A connection to the Kubernetes API. Create it with `connect`, end it with `close`.

    Expired credentials are read again, once per call. Writes wait up to `write_seconds` for their response.
    """

    def __init__(self, api: client.ApiClient, kubeconfig: str | None, write_seconds: float) -> None:
        self._login = _Login(api)
        self._logging_in = asyncio.Lock()
        self._kubeconfig = kubeconfig
        self._write_seconds = write_seconds

    @classmethod
    async def connect(cls, kubeconfig: str | None, *, write_seconds: float = _SECONDS) -> "KubernetesApi":
        """Connect with a kubeconfig file or, if it is None, with the pod's service account. No request is made yet.

        Raises ClusterNotConfigured.
        """
        return cls(await _log_in(kubeconfig), kubeconfig, write_seconds)

    async def close(self) -> None:
        """Close all connections. Connections with calls in progress close when these calls have ended."""
        await self._login.leave()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
        absent: int | None = None,
        decoder: "msgspec.json.Decoder[dict[str, Any]]" = _document,
    ) -> dict[str, Any] | None:
        """Make one request, with a limit of ten seconds for reads, and return the document in the response; None if the
        response's status is `absent`.

        With a `decoder` for a TypedDict, fields that the caller does not read are skipped; these are most of a list of
        pods.

        Raises ClusterUnavailable, ClusterRefused.
        """
        written = as_go_writes(body) if body is not None else None
        status, data = await self._asked(method, path, query, content, written, absent)
        try:
            return None if data is None else read_json(data, decoder)
        except msgspec.DecodeError as error:
            raise ClusterUnavailable(f"{method} {path}: {status} without a document: {error}", status) from error

    async def text(self, path: str, query: Sequence[tuple[str, str]], *, absent: int) -> str | None:
        """Read text, such as a pod's log; None if the response's status is `absent`. Raises the errors of `call`."""
        _, data = await self._asked("GET", path, query, "application/json", None, absent)
        return None if data is None else data.decode(errors="replace")

    async def _asked(
        self, method: str, path: str, query: Sequence[tuple[str, str]], content: str, body: bytes | None, absent: int | None
    ) -> tuple[int, bytes | None]:
        """Return the status and the content of a response; the content is None if the status is `absent`."""
        headers = {"Accept": "application/json", "Content-Type": content}
        login = self._login
        status, data, retry_after = await self._send(login, method, path, query, headers, body)
        if status == 401:
            status, data, retry_after = await self._send(await self._later_than(login), method, path, query, headers, body)
        if status < 300:
            return status, data
        if status == absent:
            return status, None
        text, reason, field = _explain(data)
        line = f"{method} {path}: {status} {text}"
        if status in {401, 429} or status >= 500:
            raise ClusterUnavailable(line, status, retry_after=retry_after)
        raise ClusterRefused(status, reason, line, text, field)

    async def _later_than(self, refused: _Login) -> _Login:
        """Return credentials that are newer than `refused`: log in again, unless another call has already done so."""
        async with self._logging_in:
            if self._login is refused:
                self._login = _Login(await _log_in(self._kubeconfig))
                await refused.leave()
            return self._login

    async def _send(
        self, login: _Login, method: str, path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes, float]:
        configuration = login.configuration
        writes = method != "GET"
        total = self._write_seconds if writes else _SECONDS
        # The wait for a connection ends before that for everything, so that it is told apart: then nothing was sent.
        timeout = aiohttp.ClientTimeout(total=total, connect=0.9 * min(_SECONDS, total), sock_connect=_CONNECT_SECONDS)
        try:
            async with login.calling():
                token = await configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
                async with login.session.request(
                    method,
                    configuration.host + path,
                    params=query,
                    headers={**headers, "Authorization": token} if token else headers,
                    data=body,
                    proxy=configuration.proxy,
                    proxy_headers=configuration.proxy_headers,
                    server_hostname=configuration.tls_server_name,
                    timeout=timeout,
                ) as response:
                    return response.status, await response.read(), _retry_after(response.headers.get("Retry-After", ""))
        except aiohttp.ConnectionTimeoutError as error:
            raise ClusterUnavailable(f"{method} {path}: {error}") from error
        except TimeoutError as error:
            raise ClusterUnavailable(f"{method} {path}: no answer within {total:g} s", is_late=writes) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ClusterUnavailable(f"{method} {path}: {str(error) or type(error).__name__}") from error


def _retry_after(text: str) -> float:
    """Return the seconds of a Retry-After header; 0 without such a header, or if its value is a date."""
    return min(float(text), LONGEST_RETRY_AFTER) if text.isdecimal() and text.isascii() else 0.0


def as_go_writes(document: Mapping[str, Any]) -> bytes:
    """Return the document in the form in which Go's encoding/json writes it: sorted keys, no spaces, `<`, `>`, `&` and
    line separators escaped.

    A ControllerRevision's `data` may never change, and the API server compares it as text. The server writes an object
    in Go's form at every patch, and refuses the patch (422) if the text differs.
    """
    text = msgspec.json.encode(document, order="sorted")
    for plain, escaped in _GO_ESCAPES:
        text = text.replace(plain, escaped)
    return text


_GO_ESCAPES = tuple((character.encode(), b"\\u%04x" % ord(character)) for character in "<>&\u2028\u2029")
"""Characters to escape; in JSON they occur only in strings."""


def _session(api: client.ApiClient) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=api.configuration.connection_pool_maxsize, ssl=api.rest_client.ssl_context)
    return aiohttp.ClientSession(connector=connector, response_class=BoundedResponse)


async def open_session(
    kubeconfig: str | None, connections: int, *traces: aiohttp.TraceConfig, middlewares: Sequence[aiohttp.ClientMiddlewareType] = ()
) -> tuple[str, aiohttp.ClientSession]:
    """Return the server's address and a session with the same credentials, for a framework that makes its own requests.

    The session opens at most `connections` connections and reports its requests to `traces`, after they have passed the
    `middlewares`. Raises ClusterNotConfigured.
    """
    api = await _log_in(kubeconfig)
    authorization = await api.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    connector = aiohttp.TCPConnector(limit=connections, ssl=api.rest_client.ssl_context)
    headers = {"Authorization": authorization} if authorization else None
    session = aiohttp.ClientSession(
        connector=connector, headers=headers, trace_configs=list(traces), middlewares=middlewares, response_class=BoundedResponse
    )
    return api.configuration.host, session


def _require_a_file(kubeconfig: str) -> None:
    """Raise FileNotFoundError if none of the listed kubeconfig files exists. The client would treat missing files as an
    empty kubeconfig.
    """
    if not any(Path(part).expanduser().exists() for part in kubeconfig.split(os.pathsep)):
        raise FileNotFoundError("there is no such file")


async def _log_in(kubeconfig: str | None) -> client.ApiClient:
    configuration = client.Configuration()
    # What Python 3.13 refuses beyond chain, dates and name: many clusters' authorities lack key usage or identifiers.
    configuration.disable_strict_ssl_verification = True
    try:
        if kubeconfig is not None:
            _require_a_file(kubeconfig)
            await config.load_kube_config(config_file=kubeconfig, client_configuration=configuration, persist_config=False)
        else:
            config.load_incluster_config(client_configuration=configuration)
        # Asked once: a session that trusts the environment asks at every request, in a thread: a third of its cost.
        configuration.proxy = configuration.proxy or proxy_for(configuration.host, os.environ)
        return client.ApiClient(configuration=configuration)
    except Exception as error:  # the client's reader fails in its own ways at a document that is no kubeconfig
        told = isinstance(error, config.ConfigException | OSError)
        reason = (
            " ".join(str(error).split()) if told else complaint(error) if isinstance(error, yaml.YAMLError) else "it is not a kubeconfig"
        )
        if kubeconfig is None:
            raise ClusterNotConfigured(f"no Kubernetes API is configured ({reason}); set KUBECONFIG to a kubeconfig file") from error
        raise ClusterNotConfigured(f"KUBECONFIG: {kubeconfig!r} cannot be used ({reason}); set it to a kubeconfig file") from error


def _explain(data: bytes) -> tuple[str, str, str]:
    """Return the server's message, its reason code, and the field that its first cause names."""
    try:
        status = read_json(data, _ANY)
    except msgspec.DecodeError:
        return data[:200].decode(errors="replace"), "Unknown", ""
    if not isinstance(status, dict):
        return str(status)[:200], "Unknown", ""
    causes = (status.get("details") or {}).get("causes") or [{}]
    return str(status.get("message", "")), str(status.get("reason", "Unknown")), str(causes[0].get("field") or "")
