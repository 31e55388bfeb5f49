"""Who is asking: identities, logins, API tokens."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who is asking. `role` is viewer, operator, admin, system-operator or system-router; `expires_at` None for a bootstrap token."""

    subject: str
    role: str
    source: str
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest:
    """`token` is a one-time login link's token, or an API token pasted by a person."""

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """A browser session. `token` goes into the cookie; the database holds only its hash."""

    token: str
    identity: Identity
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLinkRequest:
    role: str
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
    role: str
    days: int = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenItem:
    """`secret` is present only in the answer that created it."""

    id: str
    name: str
    role: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    secret: str | None = None
