"""Identities, logins and API tokens."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class AccessRole(StrEnum):
    """The role of a credential, which decides what its holder may do.

    A person's role includes everything that lower ones allow. The roles of the operator process and of routers stand
    apart: neither may do the other's work or read what people read.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    SYSTEM_OPERATOR = "system-operator"
    SYSTEM_ROUTER = "system-router"

    def reaches(self, needed: "AccessRole") -> bool:
        """Whether this role may do what needs `needed`."""
        return self is needed or (self in PEOPLE and needed in PEOPLE and PEOPLE.index(self) >= PEOPLE.index(needed))


PEOPLE = (AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.ADMIN)
"""Roles of people; each includes everything that the ones before it allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The caller's identity. `expires_at` is None for a bootstrap token."""

    subject: str
    role: AccessRole
    source: str
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest:
    """`token` is the token of a one-time login link, or an API token that a person pasted."""

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """A browser session. `token` goes into the cookie; the database holds only its hash."""

    token: str
    identity: Identity
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLinkRequest:
    role: AccessRole
    subject: str = "sandbox"
    minutes: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLink:
    token: str
    path: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    name: str
    role: AccessRole
    days: int = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenItem:
    """`secret` is present only in the answer that created it."""

    id: str
    name: str
    role: AccessRole
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    secret: str | None = None
