"""Who is calling: the bearer token of a request, checked against the role an endpoint needs."""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime

from fastapi import Request

from fairlead_api.services.access import Access, Caller
from fairlead_api.services.errors import NotAuthenticated

_BEARER = re.compile(r"Bearer +(\S+)\s*", re.IGNORECASE)


class Guard:
    """Makes dependencies. Cookies are ignored, so a browser can be tricked into nothing."""

    def __init__(self, access: Access, clock: Callable[[], datetime]) -> None:
        self._access = access
        self._clock = clock

    def needs(self, role: str) -> Callable[[Request], Awaitable[Caller]]:
        """A dependency that gives the caller if its role reaches `role`; 401 or 403 otherwise."""

        async def dependency(request: Request) -> Caller:
            now = self._clock()
            identity, key = await self._access.identify(bearer(request), now)
            caller = Caller(identity=identity, key=key, request_id=request.state.request_id)
            await self._access.require(caller, role, _target(request), now)
            request.state.actor = identity.subject
            return caller

        return dependency

    async def require_router(self, request: Request, caller: Caller, router: str) -> None:
        """Raises Denied unless the caller's token speaks for this router."""
        await self._access.require_router(caller, router, _target(request), self._clock())


def _target(request: Request) -> str:
    return f"{request.method} {request.url.path}"[:200]


def bearer(request: Request) -> str | None:
    """The token of the Authorization header, None without the header. Raises NotAuthenticated for other schemes."""
    header = request.headers.get("authorization")
    if header is None:
        return None
    match = _BEARER.fullmatch(header)
    if match is None:
        raise NotAuthenticated("token-invalid", "the Authorization header must be: Bearer <token>")
    return match[1]
