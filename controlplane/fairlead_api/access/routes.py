"""Logging in and out, login links, API tokens, and keys of the gateway's clients."""

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request

from fairlead_api.access.access import Access
from fairlead_api.access.cluster_rights import ClusterRights, KubernetesReviews
from fairlead_api.access.guards import Guard
from fairlead_api.access.keys import Tokens, check_rotation, new_key, step_of
from fairlead_api.access.logins import IdentityProvider, Logins
from fairlead_api.access.store.credentials import PostgresAccess
from fairlead_api.access.store.gateway_keys import PostgresGatewayKeys
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.bodies import known_fields
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.listing import Fetch, From, To, listing
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Bootstrap, Caller, Login, digest
from fairlead_api.infra.kubernetes import Kubernetes
from fairlead_api.infra.notices import CredentialsRevoked, Notice
from fairlead_api.infra.times import parse_range
from fairlead_api.oidc_settings import OidcSettings
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
from fairlead_client.resources.gateway_keys import (
    GatewayKey,
    GatewayKeyChange,
    GatewayKeyRequest,
    GatewayKeyRotation,
    GatewayKeyUsage,
    GatewayKeyUsePoint,
)


def access_routes(guard: Guard, logins: Logins, api_tokens: Tokens, clock: Callable[[], datetime], audience: str | None = None) -> Routes:
    """Identity endpoints under /v1. `audience` is the audience of Kubernetes tokens."""
    routes = Routes(prefix="/v1", tags=["identity"])
    person, admin = guard.needs(AccessRole.NONE, somewhere=True), guard.needs(AccessRole.ADMIN, somewhere=True)
    Person = Annotated[Caller, Depends(person)]  # noqa: N806 - it is a type
    Admin = Annotated[Caller, Depends(admin)]  # noqa: N806 - it is a type

    @routes.get("/whoami")
    async def whoami(caller: Person) -> Identity:
        """The identity that the request's token gives."""
        return caller.identity

    @routes.get("/login-modes")
    async def login_modes() -> LoginModes:
        """The ways to log in that this API offers. Needs no token."""
        return LoginModes(modes=logins.modes, audience=audience, issuer=logins.issuer)

    @routes.post("/login", dependencies=[Depends(known_fields(LoginRequest))])
    async def login(body: LoginRequest, request: Request) -> WebSession:
        """A web session for a one-time login link or an API token; needs no bearer token."""
        return await logins.login(body.token, Login(address=request.state.address, request_id=request.state.request_id), clock())

    @routes.get("/login/oidc")
    async def oidc_provider() -> OidcProvider:
        """The address to which a browser is redirected to sign in at the identity provider; needs no bearer token."""
        return await logins.provider()

    @routes.post("/login/oidc", dependencies=[Depends(known_fields(OidcLoginRequest))])
    async def login_with_oidc(body: OidcLoginRequest, request: Request) -> WebSession:
        """A web session for a person whom the identity provider signed in; needs no bearer token."""
        return await logins.login_by_provider(body, Login(address=request.state.address, request_id=request.state.request_id), clock())

    @routes.post("/logout", status_code=204)
    async def logout(caller: Person) -> None:
        """Ends the caller's web session."""
        await logins.logout(caller, clock())

    async def web_sessions(caller: Person) -> Fetch:
        return lambda span: logins.sessions(span.cursor, span.limit, caller, clock())

    own = "the caller's own, or everybody's for an admin of all pools"
    listing(
        routes, "/web-sessions", WebSessionItem, person, web_sessions, about=f"Browser sessions that have not ended, newest first: {own}."
    )

    @routes.delete("/web-sessions/{session_id}", status_code=204)
    async def revoke_web_session(session_id: str, caller: Person) -> None:
        """Ends a web session. The next page that its browser opens asks for a login."""
        await logins.revoke_session(session_id, caller, clock())

    @routes.post("/login-links", status_code=201, dependencies=[Depends(known_fields(LoginLinkRequest))])
    async def create_login_link(body: LoginLinkRequest, caller: Admin) -> LoginLink:
        """A link with which one person can log in once. It is valid for at most 10 minutes."""
        return await logins.create_link(body, caller, clock())

    async def tokens(caller: Admin) -> Fetch:
        return lambda span: api_tokens.page(span.cursor, span.limit, caller)

    listing(routes, "/tokens", TokenItem, admin, tokens, about="API tokens that the caller may revoke, newest first, without secrets.")

    @routes.post("/tokens", status_code=201, dependencies=[Depends(known_fields(TokenRequest))])
    async def create_token(body: TokenRequest, caller: Admin) -> TokenItem:
        """Makes an API token, which can give rights only in namespaces where the caller is admin. Only this response
        contains its secret.
        """
        return await api_tokens.create(body, caller, clock())

    @routes.delete("/tokens/{token_id}", status_code=204)
    async def revoke_token(token_id: str, caller: Admin) -> None:
        """Revokes a token and every web session opened with it."""
        await api_tokens.revoke(token_id, caller, clock())

    return routes


def gateway_key_routes(guard: Guard, keys: PostgresGatewayKeys, new_secret: Callable[[], str], clock: Callable[[], datetime]) -> Routes:
    """Return the routes of /v1/gateway-keys. `new_secret` makes random text of 256 bits."""
    routes = Routes(prefix="/v1", tags=["gateway keys"])
    viewer = guard.needs(AccessRole.VIEWER)
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type

    async def all_keys() -> Fetch:
        return lambda span: keys.keys(span.cursor, span.limit, clock())

    listing(routes, "/gateway-keys", GatewayKey, viewer, all_keys)

    async def get_gateway_key_usage(key_id: str, start: From = None, end: To = None) -> Ask:
        """Requests, tokens and refusals of a gateway key, by default over the last 24 hours.

        Returns one row per minute for ranges up to 6 hours, one per hour up to 14 days, and otherwise one per UTC day.
        """
        now = clock()
        begun, ended = parse_range(start or "now-24h", end or "now", now)
        first, last = begun or now - timedelta(days=1), ended or now
        return lambda sight: keys.usage(key_id, first, last, step_of(first, last))

    path = "/gateway-keys/{key_id}/usage"
    document(routes, path, GatewayKeyUsage, viewer, get_gateway_key_usage, GatewayKeyUsePoint, lambda found: found.points)

    @routes.post("/gateway-keys", status_code=201, dependencies=[Depends(known_fields(GatewayKeyRequest))])
    async def create_gateway_key(body: GatewayKeyRequest, caller: Operator) -> GatewayKey:
        """Makes a gateway key. Only this response contains its secret. Routers accept the key at once."""
        secret, now = f"flk_{new_secret()}", clock()
        return await keys.add(new_key(body, secret, caller, now), digest(secret), caller, now)

    @routes.patch("/gateway-keys/{key_id}", response_model=GatewayKey, dependencies=[Depends(known_fields(GatewayKeyChange))])
    async def change_gateway_key(key_id: str, body: GatewayKeyChange, caller: Operator) -> Any:
        """Changes the pools that a key gives access to, its limits, its class or its expiry. The secret stays the same.
        Routers apply the change at once.
        """
        return answer(await keys.change(key_id, body, caller, clock()))

    @routes.post("/gateway-keys/{key_id}/rotate", response_model=GatewayKey, dependencies=[Depends(known_fields(GatewayKeyRotation))])
    async def rotate_gateway_key(key_id: str, body: GatewayKeyRotation, caller: Operator) -> Any:
        """Gives a gateway key a new secret, which only this response contains. The former secret is accepted for some
        more hours.
        """
        check_rotation(body)
        return answer(await keys.rotate(key_id, f"flk_{new_secret()}", body, caller, clock()))

    @routes.delete("/gateway-keys/{key_id}", status_code=204)
    async def revoke_gateway_key(key_id: str, caller: Operator) -> None:
        """Revokes a gateway key permanently. Connected routers refuse the key at once, and all other routers as soon as
        they are connected again.
        """
        await keys.revoke(key_id, caller, clock())

    return routes


def access_of(infra: Infra, kubernetes: Kubernetes) -> Access:
    """Return the access control that the settings describe."""
    settings, stored = infra.settings, PostgresAccess(infra.control)
    bootstrap = tuple(
        Bootstrap(role=AccessRole(token.role), name=token.name, key=digest(token.secret)) for token in settings.bootstrap_tokens
    )
    return Access(
        stored,
        bootstrap,
        open_to_all=settings.auth_mode == "none",
        requests_per_second=settings.requests_per_second,
        cluster=ClusterRights(KubernetesReviews(kubernetes, settings.kubernetes_audience), stored.namespaces)
        if settings.auth_mode == "kubernetes"
        else None,
        given=settings.oidc.given if settings.auth_mode == "oidc" else None,
    )


def feature(infra: Infra, guard: Guard, access: Access) -> Feature:
    """Return the feature of signing in, credentials and gateway keys. Revoked credentials are removed from the cache at
    once.
    """
    settings, stored, new_secret = infra.settings, PostgresAccess(infra.control), partial(secrets.token_urlsafe, 32)
    logins = Logins(stored, access, new_secret, _identity_provider(settings.oidc) if settings.auth_mode == "oidc" else None)

    async def on_notice(notice: Notice) -> None:
        if isinstance(notice, CredentialsRevoked):
            access.forget_seen()

    return Feature(
        routes=(
            access_routes(guard, logins, Tokens(stored, access, new_secret), infra.clock, settings.kubernetes_audience),
            gateway_key_routes(guard, PostgresGatewayKeys(infra.control), new_secret, infra.clock),
        ),
        on_notice=on_notice,
        on_gap=access.forget_seen,
    )


def _identity_provider(settings: OidcSettings) -> IdentityProvider:
    from fairlead_api.access.identity_provider import OpenIdProvider  # 16 MB of cryptography, only where it is used

    return OpenIdProvider(settings)
