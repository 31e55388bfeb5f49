"""The port to the database in which credentials are stored."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.callers import Caller, Login
from fairlead_api.infra.spans import Sight
from fairlead_client.resources.access import Identity, LoginLinkRequest, TokenItem, WebSessionItem
from fairlead_client.resources.pages import Page

IDLE = timedelta(hours=8)
"""Idle time after which a web session ends."""

ABSOLUTE = timedelta(hours=24)
"""Maximum lifetime of a web session."""

ID_DIGITS = 16
"""Digits of a credential's hash that serve as its public name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The identity that a credential gives.

    `opened_by` is the hash of the bootstrap token with which a web session was opened. It is None for all other
    credentials, and for sessions that a process of the previous release opened.
    """

    identity: Identity
    opened_by: bytes | None = None


class AccessStore(Protocol):
    """Credentials in the database. Every write appends its audit entry in the same transaction."""

    async def identify(self, key: bytes, kind: str, now: datetime) -> Held | None:
        """Return the holder of the API token (`flt`) or web session (`fls`) whose hash is `key`; None if the credential
        is not valid now.

        Records that the credential was used.
        """

    async def redeem(self, key: bytes, session: bytes, login: Login, now: datetime) -> Identity | None:
        """Exchange an unused, unexpired login link for a web session. Returns None if the link is invalid."""

    async def open_session(self, session: bytes, held: Held, login: Login, now: datetime) -> None:
        """Store a web session for an identity that was established without a login link."""

    async def close_session(self, caller: Caller, now: datetime) -> None:
        """Revokes the caller's web session."""

    async def add_link(self, key: bytes, request: LoginLinkRequest, expires_at: datetime, caller: Caller, now: datetime) -> None: ...

    async def sessions(self, cursor: str | None, limit: int, owner: Identity | None, now: datetime) -> Page[WebSessionItem]:
        """List the web sessions that have not ended, newest first; with `owner`, only the owner's sessions."""

    async def revoke_session(self, session_id: str, owner: Identity | None, caller: Caller, now: datetime) -> None:
        """End a web session; with `owner`, only a session of that owner. Raises NotFound."""

    async def tokens(self, cursor: str | None, limit: int, within: Sight) -> Page[TokenItem]:
        """List tokens, newest first. Tokens with a right outside the namespaces `within` are left out; None = all
        namespaces.
        """

    async def add_token(self, item: TokenItem, key: bytes, caller: Caller, now: datetime) -> None: ...

    async def revoke_token(self, token_id: str, within: Sight, caller: Caller, now: datetime) -> None:
        """Revoke a token and end the web sessions opened with it. Raises NotFound if there is no such token, or if it
        has rights outside the namespaces `within`.
        """

    async def record(self, draft: AuditDraft, now: datetime) -> None: ...
