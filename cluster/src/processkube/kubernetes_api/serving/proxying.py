"""`services/NAME/proxy/PATH`: the API server passes the caller's request on to a pod behind a Service.

As in the real server, the Authorization header that the server has checked is not passed on. Headers `X-Forwarded-…`
describe the original request. The path is passed on decoded, so a `%2F` in it becomes a slash. CORS headers are removed
from the response. Unlike the real server, this one does not rewrite links in HTML.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from processkube.kubernetes_api.objects.errors import BadRequest, ServiceUnavailable
from processkube.kubernetes_api.serving.request_paths import Target
from processkube.kubernetes_api.writing.resources import Resources
from processkube.service_endpoints import backing_pods, targets_of

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"}
)
_KEPT_HERE = _HOP_BY_HOP | {"authorization", "host", "content-length"}
_CORS = "access-control-allow-"
_CONNECT_SECONDS = 30.0


class ServiceProxy:
    """The handler of the subresource `proxy` of Services."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def serve(self, request: web.Request, target: Target) -> web.StreamResponse:
        path = request.path.partition(f"/{target.name}/proxy")[2]
        if not path and request.method in {"GET", "HEAD"}:
            query = f"?{request.query_string}" if request.query_string else ""
            return web.Response(status=301, headers={"Location": f"{request.path}/{query}"})
        scheme, address, port = self._place(target)
        url = URL.build(scheme=scheme, host=address, port=port, path=path or "/", query_string=request.query_string)
        return await _passed_on(request, url)

    def _place(self, target: Target) -> tuple[str, str, int]:
        """Return the scheme, address and port of a random pod behind the Service that the path names, as `NAME`,
        `NAME:PORT` or `SCHEME:NAME:PORT`.
        """
        scheme, name, wanted = _parts(target.name)
        service = self._resources.require(target.kind, target.namespace, name).object
        port = _port(service, name, wanted)
        kind = self._resources.registry.find("", "v1", "pods")
        assert kind is not None
        pods = [one.object for one in self._resources.store.list(kind.storage, target.namespace)]
        places = targets_of(port, backing_pods(service, pods)) if port is not None else ()
        if not places:
            raise ServiceUnavailable(f'no endpoints available for service "{target.name}"')
        address, number = random.choice(places)
        return scheme, address, number


def _parts(identifier: str) -> tuple[str, str, str]:
    """Return (scheme, name, port) of the Service that the path names. The port is "" if it is not given. Raises
    BadRequest.
    """
    parts = identifier.split(":")
    scheme, name, port = ("", *parts, "")[:3] if len(parts) == 1 else ("", *parts) if len(parts) == 2 else (*parts, "")[:3]
    if len(parts) > 3 or scheme not in {"", "http", "https"} or not name:
        raise BadRequest(f'invalid service request "{identifier}"')
    return scheme or "http", name, port


def _port(service: dict[str, Any], name: str, wanted: str) -> dict[str, Any] | None:
    """Return the Service's port with the number or name `wanted`. If `wanted` is "", return the port without a name.
    Return None if no port has this name. Raises ServiceUnavailable if no port has this number.
    """
    ports: list[dict[str, Any]] = service["spec"].get("ports") or []
    if wanted.isdecimal():
        found = next((one for one in ports if one["port"] == int(wanted)), None)
        if found is None:
            raise ServiceUnavailable(f'no service port {int(wanted)} found for service "{name}"')
        return found
    return next((one for one in ports if one.get("name", "") == wanted), None)


def _sent_on(request: web.Request) -> CIMultiDict[str]:
    headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in _KEPT_HERE)
    headers["X-Forwarded-Host"] = request.host
    headers["X-Forwarded-Proto"] = "https"
    headers["X-Forwarded-Uri"] = request.path
    headers["X-Forwarded-For"] = ", ".join(filter(None, (request.headers.get("X-Forwarded-For"), request.remote)))
    return headers


def _answered(headers: Any) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        if name.lower() not in _HOP_BY_HOP and not name.lower().startswith(_CORS):
            yield name, value


async def _passed_on(request: web.Request, url: URL) -> web.StreamResponse:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
    async with aiohttp.ClientSession(auto_decompress=False, timeout=timeout) as session:
        try:
            headers, body = _sent_on(request), await request.read()
            answer = await session.request(
                request.method, url, headers=headers, data=body or None, allow_redirects=False, ssl=False, skip_auto_headers=("User-Agent",)
            )
        except (aiohttp.ClientError, OSError) as error:
            raise ServiceUnavailable(f"error trying to reach service: {error}") from error
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=CIMultiDict(_answered(answer.headers)))
        await response.prepare(request)
        try:
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
        except (ConnectionResetError, aiohttp.ClientError):
            pass  # one of the two has gone
        return response
