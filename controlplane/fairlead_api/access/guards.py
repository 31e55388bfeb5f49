"""Identifies the caller before the API parses, caches or looks up any part of a request, and checks that the caller has
the role that an endpoint needs.

A 401 gives an unknown caller no information: it names no fields and no paths, and the request's body is not read.
Because the caller is identified first, later middleware such as `StaleReads`, which repeats earlier responses, never
serves an unknown caller.
"""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead_api.access.access import Access
from fairlead_api.http.answers import OPEN_PATHS
from fairlead_api.http.problems import of_service, problem_response
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import Conflict, Denied, NotAuthenticated, ServiceError
from fairlead_client import protocol
from fairlead_client.public.calling import TOKEN_HEADER
from fairlead_client.resources.access import AccessRole, Identity

IN_PROCESS = "in-process\n"
"""The value that stands for the client address of an in-process call, which has no socket. No client can pretend to
have it: no address contains a line break, and `X-Forwarded-For` sets a client's address only behind a trusted proxy.
"""

_FOREIGN = Denied(
    "FAIRLEAD_AUTH_MODE=none accepts everybody except pages of other sites: open this API at localhost or 127.0.0.1, or enable sign-in"
)

_BEARER = re.compile(r"Bearer +(\S+)\s*", re.IGNORECASE)


class Identify:
    """Middleware that puts a Caller into the request's state, or responds with 401.

    It responds with 503 while the database is unreachable and the caller was not seen recently. Cookies are ignored, so
    that no other site can make a browser act for its user.
    """

    def __init__(self, app: ASGIApp, access: Access, clock: Callable[[], datetime]) -> None:
        self._app = app
        self._access = access
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope)
            request.state.address = address_of(request)
            if self._access.open_to_all and is_foreign(request):
                problem, headers = of_service(_FOREIGN)
                await problem_response(request, problem, headers)(scope, receive, send)
                return
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                now, token = self._clock(), bearer(request)
                identity, key = await self._access.identify(token, now)
                self._access.require_pace(identity, key, now)
            except ServiceError as error:
                problem, headers = of_service(error)
                await problem_response(request, problem, headers)(scope, receive, send)
                return
            caller = Caller(identity=identity, key=key, request_id=request.state.request_id, address=request.state.address)
            request.state.caller = caller
            request.state.identify = partial(self._identity, token)
            request.state.actor = identity.subject
        await self._app(scope, receive, send)

    async def _identity(self, token: str | None) -> Identity:
        return (await self._access.identify(token, self._clock()))[0]


def is_foreign(request: Request) -> bool:
    """Return whether a page of another site made a person's browser send this request. A browser can reach loopback
    addresses, so such a page could otherwise use an API that listens only there.

    The request is foreign if its browser or its `Origin` header names another site as its source, or if its `Host`
    header is not loopback, because the other site's DNS name may resolve to loopback.
    """
    if request.client is not None and request.client.host == IN_PROCESS:
        return False
    if not _is_loopback(request.headers.get("host", "")):
        return True
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site not in {"same-origin", "none"}
    return origin is not None and not _is_loopback(urlsplit(origin).netloc)


def _is_loopback(host: str) -> bool:
    """Return whether the text `host`, with or without a port, names this machine: `localhost` or a loopback address. No
    name server is asked.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def address_of(request: Request) -> str:
    """Return the address of the calling person or program. The web UI in the same process passes on the address of its
    visitor.
    """
    host = request.client.host if request.client else "unknown"
    return request.headers.get("x-forwarded-for", host)[:64] if host == IN_PROCESS else host


def bearer(request: Request) -> str | None:
    """Return the caller's token; None if the request has none. X-Fairlead-Token takes precedence over Authorization,
    because some proxies, such as the Kubernetes API's proxy, use Authorization themselves. Raises NotAuthenticated if
    Authorization has another scheme than Bearer.
    """
    if (own := request.headers.get(TOKEN_HEADER)) is not None:
        return own.strip() or None
    header = request.headers.get("authorization")
    if header is None:
        return None
    match = _BEARER.fullmatch(header)
    if match is None:
        raise NotAuthenticated("token-invalid", "the Authorization header must be: Bearer <token>")
    return match[1]


class Guard:
    """Creates the FastAPI dependencies that check roles."""

    def __init__(self, access: Access, clock: Callable[[], datetime]) -> None:
        self._access = access
        self._clock = clock

    def needs(self, role: AccessRole, *, somewhere: bool = False) -> Callable[[Request], Awaitable[Caller]]:
        """Return a FastAPI dependency that returns the caller if the caller's role reaches `role`, and otherwise
        responds with 403.

        The role is needed in the namespace that the path names. If the path names no namespace, the role is needed in
        all namespaces, unless `somewhere` is set. With `somewhere`, it is needed in the namespace of the query
        parameter `pool`. If that parameter is missing, one namespace is enough, and the endpoint must limit its
        response to what the caller may see (`Caller.sight`).
        """

        async def dependency(request: Request) -> Caller:
            caller: Caller = request.state.caller
            named = namespace_of(request, somewhere=somewhere)
            await self._access.require(caller, role, _target(request), self._clock(), named, somewhere=somewhere and named is None)
            return caller

        return dependency

    async def still_knows(self, request: Request, caller: Caller) -> bool:
        """Return whether the caller's credential still gives the rights that it gave when this long request began. If
        the API cannot check that, it assumes that the rights are unchanged.
        """
        try:
            identity: Identity = await request.state.identify()
        except NotAuthenticated:
            return False
        except ServiceError:
            return True
        return (identity.role, identity.namespaces) == (caller.identity.role, caller.identity.namespaces)

    async def require(self, request: Request, caller: Caller, role: AccessRole, pool: str | None) -> None:
        """Raises Denied unless the caller's role reaches `role` in the pool's namespace, or in all namespaces if `pool`
        is None.
        """
        namespace = None if pool is None else pool.partition("/")[0]
        await self._access.require(caller, role, _target(request), self._clock(), namespace)

    async def require_router(self, request: Request, caller: Caller, router: str) -> None:
        """Raises Denied unless the caller's token may report as this router."""
        await self._access.require_router(caller, router, _target(request), self._clock())


def namespace_of(request: Request, *, somewhere: bool) -> str | None:
    """Return the namespace that the path names, or with `somewhere` the namespace of the parameter `pool`. None if
    neither is given.
    """
    if "namespace" in request.path_params:
        return str(request.path_params["namespace"])
    pool = request.query_params.get("pool") if somewhere else None
    return pool.partition("/")[0] if pool is not None and "/" in pool else None


def _target(request: Request) -> str:
    return f"{request.method} {request.url.path}"[:200]


async def understood(request: Request) -> None:
    """Raises Conflict if the caller's release and this API's release are too far apart. The call may succeed later,
    after an upgrade.
    """
    if (problem := protocol.too_far(request.headers.get(protocol.HEADER))) is not None:
        raise Conflict("protocol-too-far", problem)
