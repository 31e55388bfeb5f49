"""Checks the caller that `Identify` found against the role that an endpoint needs."""

from collections.abc import Awaitable, Callable
from datetime import datetime

from fastapi import Request

from fairlead_api.services.access.access import Access, Caller
from fairlead_client.resources.access import AccessRole


class Guard:
    """Makes the dependencies that check roles."""

    def __init__(self, access: Access, clock: Callable[[], datetime]) -> None:
        self._access = access
        self._clock = clock

    def needs(self, role: AccessRole) -> Callable[[Request], Awaitable[Caller]]:
        """A dependency that gives the caller if its role reaches `role`; 403 otherwise."""

        async def dependency(request: Request) -> Caller:
            caller: Caller = request.state.caller
            await self.require(request, caller, role)
            return caller

        return dependency

    async def require(self, request: Request, caller: Caller, role: AccessRole) -> None:
        """Raises Denied unless the caller's role reaches `role`."""
        await self._access.require(caller, role, _target(request), self._clock())

    async def require_router(self, request: Request, caller: Caller, router: str) -> None:
        """Raises Denied unless the caller's token speaks for this router."""
        await self._access.require_router(caller, router, _target(request), self._clock())


def _target(request: Request) -> str:
    return f"{request.method} {request.url.path}"[:200]
