"""Logging in and out, login links, API tokens."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from fairlead_api.routes.bodies import known_fields
from fairlead_api.routes.guards import Guard
from fairlead_api.services.access.access import Access, Caller
from fairlead_client.resources.access import (
    AccessRole,
    Identity,
    LoginLink,
    LoginLinkRequest,
    LoginRequest,
    TokenItem,
    TokenRequest,
    WebSession,
)
from fairlead_client.resources.pages import Page

Limit = Annotated[int, Query(ge=1, le=100)]


def access_routes(guard: Guard, access: Access, clock: Callable[[], datetime]) -> APIRouter:
    """Identity endpoints under /v1."""
    routes = APIRouter(prefix="/v1", tags=["identity"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type
    Admin = Annotated[Caller, Depends(guard.needs(AccessRole.ADMIN))]  # noqa: N806 - it is a type

    @routes.get("/whoami")
    async def whoami(caller: Viewer) -> Identity:
        """The identity of this token's bearer."""
        return caller.identity

    @routes.post("/login", dependencies=[Depends(known_fields(LoginRequest))])
    async def login(body: LoginRequest, request: Request) -> WebSession:
        """A web session for a one-time login link or an API token; the only endpoint without a bearer token."""
        address = request.client.host if request.client else "unknown"
        return await access.login(body.token, address, request.state.request_id, clock())

    @routes.post("/logout", status_code=204)
    async def logout(caller: Viewer) -> None:
        """Ends the caller's web session."""
        await access.logout(caller, clock())

    @routes.post("/login-links", status_code=201, dependencies=[Depends(known_fields(LoginLinkRequest))])
    async def create_login_link(body: LoginLinkRequest, caller: Admin) -> LoginLink:
        """A link that logs one person in once. It is valid for at most 10 minutes."""
        return await access.create_link(body, caller, clock())

    @routes.get("/tokens")
    async def list_tokens(caller: Admin, cursor: str | None = None, limit: Limit = 50) -> Page[TokenItem]:
        """API tokens, newest first, without secrets."""
        return await access.tokens(cursor, limit)

    @routes.post("/tokens", status_code=201, dependencies=[Depends(known_fields(TokenRequest))])
    async def create_token(body: TokenRequest, caller: Admin) -> TokenItem:
        """A new API token; its secret is shown here and never again."""
        return await access.create_token(body, caller, clock())

    @routes.delete("/tokens/{token_id}", status_code=204)
    async def revoke_token(token_id: str, caller: Admin) -> None:
        """Revokes a token and every web session opened with it."""
        await access.revoke_token(token_id, caller, clock())

    return routes
