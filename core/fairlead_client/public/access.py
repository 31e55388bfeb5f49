"""Callers and their rights: sign-in, tokens, web sessions and gateway keys."""

from fairlead_client.public.calling import ApiCalls, Query, segment
from fairlead_client.resources.access import (
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
from fairlead_client.resources.gateway_keys import GatewayKey, GatewayKeyChange, GatewayKeyRequest, GatewayKeyRotation, GatewayKeyUsage
from fairlead_client.resources.pages import Page


class AccessCalls(ApiCalls):
    """Calls about people, tokens and sessions of the API."""

    async def whoami(self) -> Identity:
        return await self._call("GET", "/v1/whoami", Identity)

    async def login_modes(self) -> LoginModes:
        return await self._call("GET", "/v1/login-modes", LoginModes)

    async def login(self, token: str, *, address: str | None = None) -> WebSession:
        """Log in. `address` is the address of the person on whose behalf another process makes the call; the API
        accepts it only from trusted processes.
        """
        headers = {"x-forwarded-for": address} if address else {}
        return await self._call("POST", "/v1/login", WebSession, body=LoginRequest(token=token), headers=headers)

    async def oidc_provider(self) -> OidcProvider:
        return await self._call("GET", "/v1/login/oidc", OidcProvider)

    async def login_with_oidc(self, request: OidcLoginRequest, *, address: str | None = None) -> WebSession:
        """Log in with an identity provider's code; for `address` see `login`."""
        headers = {"x-forwarded-for": address} if address else {}
        return await self._call("POST", "/v1/login/oidc", WebSession, body=request, headers=headers)

    async def logout(self) -> None:
        await self._call("POST", "/v1/logout", None)

    async def web_sessions(self, *, cursor: str | None = None, limit: int | None = None) -> Page[WebSessionItem]:
        return await self._call("GET", "/v1/web-sessions", Page[WebSessionItem], query={"cursor": cursor, "limit": limit})

    async def revoke_web_session(self, session_id: str) -> None:
        await self._call("DELETE", f"/v1/web-sessions/{segment(session_id)}", None)

    async def create_login_link(self, request: LoginLinkRequest) -> LoginLink:
        return await self._call("POST", "/v1/login-links", LoginLink, body=request)

    async def tokens(self, *, cursor: str | None = None, limit: int | None = None) -> Page[TokenItem]:
        return await self._call("GET", "/v1/tokens", Page[TokenItem], query={"cursor": cursor, "limit": limit})

    async def create_token(self, request: TokenRequest) -> TokenItem:
        return await self._call("POST", "/v1/tokens", TokenItem, body=request)

    async def revoke_token(self, token_id: str) -> None:
        await self._call("DELETE", f"/v1/tokens/{segment(token_id)}", None)

    async def gateway_keys(self, *, cursor: str | None = None, limit: int | None = None) -> Page[GatewayKey]:
        return await self._call("GET", "/v1/gateway-keys", Page[GatewayKey], query={"cursor": cursor, "limit": limit})

    async def create_gateway_key(self, request: GatewayKeyRequest) -> GatewayKey:
        return await self._call("POST", "/v1/gateway-keys", GatewayKey, body=request)

    async def change_gateway_key(self, key_id: str, change: GatewayKeyChange) -> GatewayKey:
        """Change a gateway key that is not revoked; its secret stays the same."""
        return await self._call("PATCH", f"/v1/gateway-keys/{segment(key_id)}", GatewayKey, body=change)

    async def rotate_gateway_key(self, key_id: str, rotation: GatewayKeyRotation) -> GatewayKey:
        """Create a new secret for a key that is not revoked, and set the time for which the former secret is still
        accepted.
        """
        return await self._call("POST", f"/v1/gateway-keys/{segment(key_id)}/rotate", GatewayKey, body=rotation)

    async def revoke_gateway_key(self, key_id: str) -> None:
        await self._call("DELETE", f"/v1/gateway-keys/{segment(key_id)}", None)

    async def gateway_key_usage(self, key_id: str, filters: Query | None = None) -> GatewayKeyUsage:
        return await self._call("GET", f"/v1/gateway-keys/{segment(key_id)}/usage", GatewayKeyUsage, query=filters)
