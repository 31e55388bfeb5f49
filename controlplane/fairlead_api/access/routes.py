"""Logging in and out, login links, API tokens."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from fairlead_api.access.guards import Guard
from fairlead_api.access.logins import Logins
from fairlead_api.access.tokens import Tokens
from fairlead_api.http.bodies import known_fields
from fairlead_api.http.listing import Fetch, listing
from fairlead_api.infra.callers import Caller, Login
from fairlead_client.resources.access import (
    AccessRole,
    Identity,
    LoginLink,
    LoginLinkRequest,
    LoginModes,
    LoginRequest,
    OidcLoginRequest,
    OidcProvider,
    TokenItem,
    TokenRequest,
    WebSession,
    WebSessionItem,
)


def access_routes(
    guard: Guard, logins: Logins, api_tokens: Tokens, clock: Callable[[], datetime], audience: str | None = None
) -> APIRouter:
    """Identity endpoints under /v1. `audience` is the one of Kubernetes tokens."""
    routes = APIRouter(prefix="/v1", tags=["identity"])
    person, admin = guard.needs(AccessRole.NONE, somewhere=True), guard.needs(AccessRole.ADMIN, somewhere=True)
    Person = Annotated[Caller, Depends(person)]  # noqa: N806 - it is a type
    Admin = Annotated[Caller, Depends(admin)]  # noqa: N806 - it is a type

    @routes.get("/whoami")
    async def whoami(caller: Person) -> Identity:
        """The identity of this token's bearer."""
        return caller.identity

    @routes.get("/login-modes")
    async def login_modes() -> LoginModes:
        """The ways to log in that are offered here. Needs no token."""
        return LoginModes(modes=logins.modes, audience=audience, issuer=logins.issuer)

    @routes.post("/login", dependencies=[Depends(known_fields(LoginRequest))])
    async def login(body: LoginRequest, request: Request) -> WebSession:
        """A web session for a one-time login link or an API token; needs no bearer token."""
        return await logins.login(body.token, Login(address=request.state.address, request_id=request.state.request_id), clock())

    @routes.get("/login/oidc")
    async def oidc_provider() -> OidcProvider:
        """Where a browser is sent to sign in at the identity provider; needs no bearer token."""
        return await logins.provider()

    @routes.post("/login/oidc", dependencies=[Depends(known_fields(OidcLoginRequest))])
    async def login_with_oidc(body: OidcLoginRequest, request: Request) -> WebSession:
        """A web session for somebody whom the identity provider signed in; needs no bearer token."""
        return await logins.login_by_provider(body, Login(address=request.state.address, request_id=request.state.request_id), clock())

    @routes.post("/logout", status_code=204)
    async def logout(caller: Person) -> None:
        """Ends the caller's web session."""
        await logins.logout(caller, clock())

    async def web_sessions(caller: Person) -> Fetch:
        return lambda span: logins.sessions(span.cursor, span.limit, caller, clock())

    own = "the caller's own; all of them for who is admin everywhere"
    listing(routes, "/web-sessions", WebSessionItem, person, web_sessions, about=f"Browser sessions that live, newest first: {own}.")

    @routes.delete("/web-sessions/{session_id}", status_code=204)
    async def revoke_web_session(session_id: str, caller: Person) -> None:
        """Ends a browser session, which asks for a login with its next page."""
        await logins.revoke_session(session_id, caller, clock())

    @routes.post("/login-links", status_code=201, dependencies=[Depends(known_fields(LoginLinkRequest))])
    async def create_login_link(body: LoginLinkRequest, caller: Admin) -> LoginLink:
        """A link that logs one person in once. It is valid for at most 10 minutes."""
        return await logins.create_link(body, caller, clock())

    async def tokens(caller: Admin) -> Fetch:
        return lambda span: api_tokens.page(span.cursor, span.limit, caller)

    listing(routes, "/tokens", TokenItem, admin, tokens, about="API tokens that the caller may revoke, newest first, without secrets.")

    @routes.post("/tokens", status_code=201, dependencies=[Depends(known_fields(TokenRequest))])
    async def create_token(body: TokenRequest, caller: Admin) -> TokenItem:
        """A new API token; its secret is shown here and never again. Its rights must lie where the caller is admin."""
        return await api_tokens.create(body, caller, clock())

    @routes.delete("/tokens/{token_id}", status_code=204)
    async def revoke_token(token_id: str, caller: Admin) -> None:
        """Revokes a token and every web session opened with it."""
        await api_tokens.revoke(token_id, caller, clock())

    return routes
