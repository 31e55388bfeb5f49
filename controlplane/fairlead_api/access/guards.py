"""Checks the caller that `Identify` found against the role that an endpoint needs."""

from collections.abc import Awaitable, Callable
from datetime import datetime

from fastapi import Request

from fairlead_api.access.access import Access
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import NotAuthenticated, ServiceError
from fairlead_client.resources.access import AccessRole, Identity


class Guard:
    """Makes the dependencies that check roles."""

    def __init__(self, access: Access, clock: Callable[[], datetime]) -> None:
        self._access = access
        self._clock = clock

    def needs(self, role: AccessRole, *, somewhere: bool = False) -> Callable[[Request], Awaitable[Caller]]:
        """A dependency that gives the caller if its role reaches `role`; 403 otherwise.

        The role is needed in the namespace that the path names. A path without one needs it in all namespaces; or,
        with `somewhere`, in any, and then the endpoint must answer with that part only which the caller may see
        (`Caller.sight`). A pool among the parameters of such an endpoint must be in a namespace with the role.
        """

        async def dependency(request: Request) -> Caller:
            caller: Caller = request.state.caller
            named = namespace_of(request, somewhere=somewhere)
            await self._access.require(caller, role, _target(request), self._clock(), named, somewhere=somewhere and named is None)
            return caller

        return dependency

    async def still_knows(self, request: Request, caller: Caller) -> bool:
        """Whether the credential of a request that goes on is as good as at its beginning; it is while nobody can be
        asked.
        """
        try:
            identity: Identity = await request.state.identify()
        except NotAuthenticated:
            return False
        except ServiceError:
            return True
        return (identity.role, identity.namespaces) == (caller.identity.role, caller.identity.namespaces)

    async def require(self, request: Request, caller: Caller, role: AccessRole, pool: str) -> None:
        """Raises Denied unless the caller's role reaches `role` where the pool is."""
        await self._access.require(caller, role, _target(request), self._clock(), pool.partition("/")[0])

    async def require_router(self, request: Request, caller: Caller, router: str) -> None:
        """Raises Denied unless the caller's token speaks for this router."""
        await self._access.require_router(caller, router, _target(request), self._clock())


def namespace_of(request: Request, *, somewhere: bool) -> str | None:
    """The namespace that the path names, or with `somewhere` the parameter `pool`; None without one."""
    if "namespace" in request.path_params:
        return str(request.path_params["namespace"])
    pool = request.query_params.get("pool") if somewhere else None
    return pool.partition("/")[0] if pool is not None and "/" in pool else None


def _target(request: Request) -> str:
    return f"{request.method} {request.url.path}"[:200]
