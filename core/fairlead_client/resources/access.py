"""Identities, logins and API tokens."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class AccessRole(StrEnum):
    """The role of a credential, which decides what its holder may do.

    A person's role includes everything that lower roles allow; `none` allows nothing. The roles of the operator
    process, of routers and of the Kubernetes API's audit log are separate: each of them allows only its own work and
    none of the endpoints for people.
    """

    NONE = "none"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    SYSTEM_OPERATOR = "system-operator"
    SYSTEM_ROUTER = "system-router"
    SYSTEM_AUDIT = "system-audit"

    def reaches(self, needed: "AccessRole") -> bool:
        """Return whether this role includes everything that the role `needed` allows."""
        return self is needed or (self in RISING and needed in RISING and RISING.index(self) >= RISING.index(needed))


PEOPLE = (AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.ADMIN)
"""Roles of people, the lowest first; each includes everything that the roles before it allow."""

RISING = (AccessRole.NONE, *PEOPLE)

Rights = dict[str, AccessRole]
"""Roles by namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The caller's identity: `role` holds in all namespaces, and `namespaces` adds roles in the namespaces that it
    names.

    `expires_at` is None for a bootstrap token. `groups` are the person's groups in Kubernetes or at the identity
    provider.
    """

    subject: str
    role: AccessRole
    source: str
    expires_at: datetime | None
    namespaces: Rights = field(default_factory=dict)
    groups: tuple[str, ...] = ()

    def role_in(self, namespace: str | None) -> AccessRole:
        """Return the highest role held in a namespace; with None, the role held in all namespaces."""
        here = AccessRole.NONE if namespace is None else self.namespaces.get(namespace, AccessRole.NONE)
        return here if here.reaches(self.role) else self.role

    def reaches(self, needed: AccessRole, namespace: str | None = None) -> bool:
        """Return whether the caller has the role `needed` in a namespace; with None, in all namespaces."""
        return self.role_in(namespace).reaches(needed)

    def reaches_somewhere(self, needed: AccessRole) -> bool:
        """Return whether the caller has the role `needed` in at least one namespace."""
        return any(role.reaches(needed) for role in (self.role, *self.namespaces.values()))

    def where(self, needed: AccessRole) -> frozenset[str] | None:
        """Return the namespaces in which the caller has the role `needed`; None = all."""
        if self.role.reaches(needed):
            return None
        return frozenset(name for name, role in self.namespaces.items() if role.reaches(needed))


class LoginMode(StrEnum):
    """A way to log in: with a one-time link, an API token, a token of the Kubernetes cluster, or an identity provider
    (OpenID Connect). With `open`, no login is needed.
    """

    LINK = "link"
    TOKEN = "token"  # noqa: S105 - a word, no secret
    KUBERNETES = "kubernetes"
    OIDC = "oidc"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModes:
    """The ways to log in that this API offers. `audience` is the audience that Kubernetes tokens must have, `issuer`
    the identity provider.
    """

    modes: tuple[LoginMode, ...]
    audience: str | None = None
    issuer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest:
    """A request to log in. `token` is a one-time login link's token, an API token that a person pasted, or a Kubernetes
    token; empty if the mode is open.
    """

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcProvider:
    """The identity provider to which a browser is sent to sign in, with the `client_id` and `scopes` of the request.

    The parameter `iss` of the address to which the provider returns must equal `issuer` if present, and must be present
    if `tells_issuer` (RFC 9207).
    """

    issuer: str
    authorization_endpoint: str
    client_id: str
    scopes: str
    tells_issuer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcLoginRequest:
    """The values of a completed OpenID Connect login: the `code` with which the identity provider sent the browser
    back, and the `redirect_uri`, `nonce` and `code_verifier` of the login's beginning. The SHA-256 of `code_verifier`
    was the code challenge (PKCE, RFC 7636).
    """

    code: str
    code_verifier: str
    nonce: str
    redirect_uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """A browser session. `token` goes into the cookie; the database holds only its hash."""

    token: str
    identity: Identity
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLinkRequest:
    """A request for a login link. `role` holds in all namespaces, and `namespaces` adds roles in single namespaces.
    With the role `none` the link is valid only in the namespaces that `namespaces` names.
    """

    role: AccessRole
    subject: str = "sandbox"
    minutes: int = 10
    namespaces: Rights = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLink:
    token: str
    path: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A request for an API token. `role` holds in all namespaces, and `namespaces` adds roles in single namespaces.
    With the role `none` the token is valid only in the namespaces that `namespaces` names.
    """

    name: str
    role: AccessRole
    days: int = 90
    namespaces: Rights = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenItem:
    """An API token as lists show it. `secret` is present only in the response that created the token."""

    id: str
    name: str
    role: AccessRole
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    namespaces: Rights = field(default_factory=dict)
    secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSessionItem:
    """A browser session as lists show it. `current` marks the caller's own session."""

    id: str
    subject: str
    role: AccessRole
    namespaces: Rights
    source: str
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime
    address: str | None = None
    current: bool = False
