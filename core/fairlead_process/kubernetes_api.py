"""Requests to the Kubernetes API, for every process that makes some.

It handles credentials, which expire, time limits, and the meaning of errors. The official asyncio client reads the
configuration and the credentials; the requests are made here, because the client gives no say in how JSON is written.
Objects are plain JSON documents; the callers choose the objects.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
import yaml
from kubernetes.aio import client, config

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
"""Server-side apply; JSON is YAML too."""

_document = msgspec.json.Decoder(dict[str, Any])

_TIMEOUT = aiohttp.ClientTimeout(total=10.0, sock_connect=3.0)


class ClusterError(Exception):
    """A call to the Kubernetes API failed; `str(error)` is one line.

    ClusterError
    ├── ClusterUnavailable         no usable answer (none, 401, 429 or 5xx): worth repeating
    │   └── ClusterNotConfigured   nothing says where the API is: worth repeating once somebody has configured it
    └── ClusterRefused             the request was answered and refused: repeating it unchanged is pointless
    """


class ClusterUnavailable(ClusterError):
    """No usable answer; the call may or may not have had its effect.

    `status` is None when there was no answer at all.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class ClusterNotConfigured(ClusterUnavailable):
    """The kubeconfig cannot be used, or there is none and this runs outside a cluster."""


class ClusterRefused(ClusterError):
    """Refused, with the HTTP status, the server's reason word, its message `text` and the first `field` it names (empty
    if none).
    """

    def __init__(self, status: int, reason: str, message: str, text: str = "", field: str = "") -> None:
        self.status = status
        self.reason = reason
        self.text = text or message
        self.field = field
        super().__init__(message)


class KubernetesApi:
    """A connection to the Kubernetes API. Create it with `connect`, end it with `close`.

    Expired credentials are read again, once per call.
    """

    def __init__(self, api: client.ApiClient, kubeconfig: str | None) -> None:
        self._api = api
        self._session = _session(api)
        self._kubeconfig = kubeconfig

    @classmethod
    async def connect(cls, kubeconfig: str | None) -> "KubernetesApi":
        """Connect with a kubeconfig file, or with the pod's service account when None; no request is made yet.

        Raises ClusterNotConfigured.
        """
        return cls(await _log_in(kubeconfig), kubeconfig)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._api.close()

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
        """Make one request, within ten seconds, and return its answer; None when the answer's status is `absent`.

        A `decoder` of a TypedDict leaves out what the caller does not read, which is most of a list of pods.

        Raises ClusterUnavailable, ClusterRefused.
        """
        headers = {"Accept": "application/json", "Content-Type": content}
        written = as_go_writes(body) if body is not None else None
        status, data = await self._send(method, path, query, headers, written)
        if status == 401:
            stale = self._api, self._session
            self._api = await _log_in(self._kubeconfig)
            self._session = _session(self._api)
            for one in stale:
                await one.close()
            status, data = await self._send(method, path, query, headers, written)
        if status < 300:
            try:
                return decoder.decode(data)
            except msgspec.DecodeError as error:
                raise ClusterUnavailable(f"{method} {path}: {status} without a document: {error}", status) from error
        if status == absent:
            return None
        text, reason, field = _explain(data)
        line = f"{method} {path}: {status} {text}"
        if status in {401, 429} or status >= 500:
            raise ClusterUnavailable(line, status)
        raise ClusterRefused(status, reason, line, text, field)

    async def _send(
        self, method: str, path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        configuration = self._api.configuration
        try:
            token = await configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
            async with self._session.request(
                method,
                configuration.host + path,
                params=query,
                headers={**headers, "Authorization": token} if token else headers,
                data=body,
                proxy=configuration.proxy,
                proxy_headers=configuration.proxy_headers,
                server_hostname=configuration.tls_server_name,
            ) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterUnavailable(f"{method} {path}: {str(error) or type(error).__name__}") from error


def as_go_writes(document: Mapping[str, Any]) -> bytes:
    """The document as Go's encoding/json writes it: sorted keys, no spaces, `<`, `>`, `&` and line separators escaped.

    A ControllerRevision's `data` may never change, and the API server compares texts: it writes an object anew at every
    patch, and refuses the patch (422) when that text is not the one it was given.
    """
    text = msgspec.json.encode(document, order="sorted")
    for plain, escaped in _GO_ESCAPES:
        text = text.replace(plain, escaped)
    return text


_GO_ESCAPES = tuple((character.encode(), b"\\u%04x" % ord(character)) for character in "<>&\u2028\u2029")
"""In JSON these stand in strings only."""


def _session(api: client.ApiClient) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=api.configuration.connection_pool_maxsize, ssl=api.rest_client.ssl_context)
    return aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT)


async def open_session(kubeconfig: str | None, connections: int) -> tuple[str, aiohttp.ClientSession]:
    """The server's address and a session with the same credentials, for a framework that makes its own requests.

    The session opens at most `connections` connections. Raises ClusterNotConfigured.
    """
    api = await _log_in(kubeconfig)
    authorization = await api.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    connector = aiohttp.TCPConnector(limit=connections, ssl=api.rest_client.ssl_context)
    headers = {"Authorization": authorization} if authorization else None
    return api.configuration.host, aiohttp.ClientSession(connector=connector, headers=headers)


async def _log_in(kubeconfig: str | None) -> client.ApiClient:
    configuration = client.Configuration()
    try:
        if kubeconfig is not None:
            await config.load_kube_config(config_file=kubeconfig, client_configuration=configuration, persist_config=False)
        else:
            config.load_incluster_config(client_configuration=configuration)
        # Asked once: a session that trusts the environment asks at every request, in a thread: a third of its cost.
        configuration.proxy = configuration.proxy or _environment_proxy(configuration.host)
        return client.ApiClient(configuration=configuration)
    except (config.ConfigException, OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        if kubeconfig is None:
            raise ClusterNotConfigured(f"no Kubernetes API is configured ({reason}); set KUBECONFIG to a kubeconfig file") from error
        raise ClusterNotConfigured(f"KUBECONFIG: {kubeconfig!r} cannot be used ({reason}); set it to a kubeconfig file") from error


def _environment_proxy(url: str) -> str | None:
    """The proxy that `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` name for this address."""
    address = urlsplit(url)
    if proxy_bypass(address.hostname or ""):
        return None
    return getproxies().get(address.scheme)


def _explain(data: bytes) -> tuple[str, str, str]:
    """The server's message, reason word and the field of its first cause."""
    try:
        status = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data[:200].decode(errors="replace"), "Unknown", ""
    if not isinstance(status, dict):
        return str(status)[:200], "Unknown", ""
    causes = (status.get("details") or {}).get("causes") or [{}]
    return str(status.get("message", "")), str(status.get("reason", "Unknown")), str(causes[0].get("field") or "")
