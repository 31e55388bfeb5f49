"""Access control: bearer tokens, one-time login links, web sessions.

Secrets are compared and stored only as SHA-256. Prefixes tell the kinds apart: `flt_` API token, `fls_` web session,
`fll_` login link; anything else can only be a bootstrap secret.
"""

import hashlib
import hmac
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead_api.services.access.denials import DenialBudgets
from fairlead_api.services.audit.chain import AuditDraft
from fairlead_api.services.errors import Denied, NotAuthenticated, StoreUnavailable
from fairlead_client.resources.access import PEOPLE, AccessRole, Identity, LoginLink, LoginLinkRequest, TokenItem, TokenRequest, WebSession
from fairlead_client.resources.audit import AuditAction, AuditResult
from fairlead_client.resources.pages import Page

_log = logging.getLogger(__name__)

IDLE = timedelta(hours=8)
ABSOLUTE = timedelta(hours=24)
GRACE = timedelta(minutes=10)
"""How long a previously seen identity is trusted while the database is away.

Only for reading: nothing can be written then.
"""


def digest(secret: str) -> bytes:
    """The hash that is stored instead of a secret."""
    return hashlib.sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated request.

    `key` identifies the credential (its hash), `request_id` the request in logs and audit.
    """

    identity: Identity
    key: bytes
    request_id: str

    def draft(self, action: AuditAction, target: str, *, result: AuditResult = AuditResult.OK, reason: str | None = None) -> AuditDraft:
        """An audit entry by this caller; the caller of this function adds further fields with `replace`."""
        who = self.identity
        return AuditDraft(
            actor=who.subject,
            role=who.role,
            source=who.source,
            action=action,
            object=target,
            result=result,
            reason=reason,
            request_id=self.request_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """A credential given by the environment."""

    role: AccessRole
    name: str
    key: bytes


class AccessStore(Protocol):
    """Credentials in the database. Every write appends its audit entry in the same transaction."""

    async def identify(self, key: bytes, kind: str, now: datetime) -> Identity | None:
        """The holder of the API token (`flt`) or web session (`fls`) with this hash, None unless it is valid now.

        Records that it was used.
        """

    async def redeem(self, key: bytes, session: bytes, now: datetime, request_id: str) -> Identity | None:
        """Exchanges an unused, unexpired login link for a web session; None if it is not one."""

    async def open_session(self, session: bytes, identity: Identity, now: datetime, request_id: str) -> None:
        """Stores a web session for an identity established in another way."""

    async def close_session(self, caller: Caller, now: datetime) -> None:
        """Revokes the caller's web session."""

    async def add_link(self, key: bytes, request: LoginLinkRequest, expires_at: datetime, caller: Caller, now: datetime) -> None: ...

    async def tokens(self, cursor: str | None, limit: int) -> Page[TokenItem]: ...

    async def add_token(self, item: TokenItem, key: bytes, caller: Caller, now: datetime) -> None: ...

    async def revoke_token(self, token_id: str, caller: Caller, now: datetime) -> None:
        """Revokes a token and ends the web sessions opened with it. Raises NotFound."""

    async def record(self, draft: AuditDraft, now: datetime) -> None: ...


class Access:
    """Use cases of access control.

    `new_secret` makes random text of 256 bits; `open_to_all` accepts everybody as admin (loopback only).
    """

    def __init__(
        self, store: AccessStore, bootstrap: tuple[Bootstrap, ...], new_secret: Callable[[], str], *, open_to_all: bool = False
    ) -> None:
        self._store = store
        self._bootstrap = bootstrap
        self._new_secret = new_secret
        self._open = open_to_all
        self._seen: dict[bytes, tuple[Identity, datetime]] = {}
        self._denials = DenialBudgets()

    async def identify(self, secret: str | None, now: datetime) -> tuple[Identity, bytes]:
        """The identity and key of a secret's holder.

        Raises NotAuthenticated; StoreUnavailable if the database is away and the caller was not seen lately.
        """
        if secret is None:
            if self._open:
                return Identity(subject="anonymous", role=AccessRole.ADMIN, source="none", expires_at=None), b"anonymous"
            raise NotAuthenticated("token-missing", "send Authorization: Bearer <token>")
        key = digest(secret)
        found = self._bootstrapped(key)
        if found is not None:
            return found, key
        kind = secret.partition("_")[0]
        if kind not in {"flt", "fls"}:
            raise NotAuthenticated("token-invalid", "the token is not known")
        try:
            identity = await self._store.identify(key, kind, now)
        except StoreUnavailable:
            known = self._seen.get(key)
            if known is None or now - known[1] > GRACE or (known[0].expires_at is not None and known[0].expires_at <= now):
                raise
            return known[0], key
        if identity is None:
            self._seen.pop(key, None)
            raise NotAuthenticated("token-invalid", "the token is not known, has expired or was revoked")
        self._remember(key, identity, now)
        return identity, key

    def _bootstrapped(self, key: bytes) -> Identity | None:
        found = None
        for token in self._bootstrap:  # all of them, so that time tells nothing
            if hmac.compare_digest(token.key, key):
                found = Identity(subject=token.name, role=token.role, source="bootstrap", expires_at=None)
        return found

    def _remember(self, key: bytes, identity: Identity, now: datetime) -> None:
        if len(self._seen) >= 10_000:
            self._seen.clear()
        self._seen[key] = (identity, now)

    async def require(self, caller: Caller, role: AccessRole, target: str, now: datetime) -> None:
        """Raises Denied (and records it) unless the caller's role reaches `role`.

        A machine's role is reached only by itself and in open mode.
        """
        held = caller.identity.role
        if held.reaches(role) or caller.identity.source == "none":
            return
        await self._denied(caller, target, f"needs role {role}", now)
        raise Denied(f"{caller.identity.subject} has role {held}; this needs {role}")

    async def require_router(self, caller: Caller, router: str, target: str, now: datetime) -> None:
        """Raises Denied (and records it) unless the caller may speak for `router`.

        A token named `edge` speaks for `edge` and every `edge-…`. So one token serves all replicas of a Deployment,
        and no router can report as another's.
        """
        name = caller.identity.subject
        if caller.identity.source == "none" or router == name or router.startswith(f"{name}-"):
            return
        await self._denied(caller, target, f"does not speak for router {router[:200]}", now)
        raise Denied(f"token {name!r} speaks for router {name!r} and {name + '-…'!r}, not for {router[:200]!r}; use a token of that name")

    async def _denied(self, caller: Caller, target: str, reason: str, now: datetime) -> None:
        counted = self._denials.spend(caller.key, now)
        if counted is not None:
            await self.note(
                _with_count(caller.draft(AuditAction.ACCESS_DENIED, target, result=AuditResult.DENIED, reason=reason), counted), now
            )

    async def note(self, draft: AuditDraft, now: datetime) -> None:
        """Records an event that belongs to no other change; the answer stands even if the database is away."""
        try:
            await self._store.record(draft, now)
        except StoreUnavailable as error:
            _log.warning("audit entry not stored", extra={"action": draft.action, "actor": draft.actor, "error": str(error)})

    async def login(self, secret: str, address: str, request_id: str, now: datetime) -> WebSession:
        """A web session for a login link (used up by this) or an API token. Raises NotAuthenticated, Denied."""
        token = f"fls_{self._new_secret()}"
        if secret.startswith("fll_"):
            identity = await self._store.redeem(digest(secret), digest(token), now, request_id)
            if identity is None or identity.expires_at is None:
                await self._failed(address, "login link used, expired or unknown", request_id, now)
                raise NotAuthenticated("login-link-expired", "this login link was used, has expired or never existed; ask for a new one")
            return WebSession(token=token, identity=identity, expires_at=identity.expires_at)
        try:
            found, _ = await self.identify(secret, now)
        except NotAuthenticated:
            await self._failed(address, "token unknown, expired or revoked", request_id, now)
            raise
        if found.role not in PEOPLE:
            raise Denied(f"tokens of role {found.role} are for processes; log in with a person's token")
        if secret.startswith("fls_"):
            raise Denied("this is a web session's own token; log in with a login link or an API token")
        expires_at = min(now + ABSOLUTE, found.expires_at or now + ABSOLUTE)
        identity = Identity(subject=found.subject, role=found.role, source=found.source, expires_at=expires_at)
        await self._store.open_session(digest(token), identity, now, request_id)
        return WebSession(token=token, identity=identity, expires_at=expires_at)

    async def _failed(self, address: str, reason: str, request_id: str, now: datetime) -> None:
        counted = self._denials.spend(address, now)
        if counted is None:
            return
        draft = AuditDraft(
            actor="unknown",
            role="none",
            source=address,
            action=AuditAction.LOGIN,
            object="web",
            reason=reason,
            result=AuditResult.DENIED,
            request_id=request_id,
        )
        await self.note(_with_count(draft, counted), now)

    async def logout(self, caller: Caller, now: datetime) -> None:
        """Ends a web session; does nothing for other credentials."""
        self._seen.pop(caller.key, None)
        await self._store.close_session(caller, now)

    async def create_link(self, request: LoginLinkRequest, caller: Caller, now: datetime) -> LoginLink:
        """Makes a login link. Raises InvalidInput."""
        if request.role not in PEOPLE:
            raise InvalidInput("role", request.role, f"write one of {', '.join(PEOPLE)}")
        if not 1 <= request.minutes <= 10:
            raise InvalidInput("minutes", request.minutes, "write 1 to 10")
        if not request.subject or len(request.subject) > 200:
            raise InvalidInput("subject", request.subject, "write a name of at most 200 characters")
        token = f"fll_{self._new_secret()}"
        expires_at = now + timedelta(minutes=request.minutes)
        await self._store.add_link(digest(token), request, expires_at, caller, now)
        return LoginLink(token=token, path=f"/login?token={token}", expires_at=expires_at)

    async def tokens(self, cursor: str | None, limit: int) -> Page[TokenItem]:
        return await self._store.tokens(cursor, limit)

    async def create_token(self, request: TokenRequest, caller: Caller, now: datetime) -> TokenItem:
        """Makes an API token; no other answer contains its secret. Raises InvalidInput."""
        if not 1 <= request.days <= 365:
            raise InvalidInput("days", request.days, "write 1 to 365")
        if not request.name.strip() or len(request.name) > 200:
            raise InvalidInput("name", request.name, "write a name of at most 200 characters")
        secret = f"flt_{self._new_secret()}"
        item = TokenItem(
            id=digest(secret).hex()[:16],
            name=request.name,
            role=request.role,
            created_at=now,
            created_by=caller.identity.subject,
            expires_at=now + timedelta(days=request.days),
            last_used_at=None,
            revoked_at=None,
            secret=secret,
        )
        await self._store.add_token(item, digest(secret), caller, now)
        return item

    async def revoke_token(self, token_id: str, caller: Caller, now: datetime) -> None:
        self.forget_seen()
        await self._store.revoke_token(token_id, caller, now)

    def forget_seen(self) -> None:
        """Trust no remembered identity: a credential ended, here or in another process."""
        self._seen.clear()


def _with_count(draft: AuditDraft, counted: int) -> AuditDraft:
    """The entry, with the number of the caller's earlier refusals that were only counted."""
    return replace(draft, after={"refusals_counted_before": counted}) if counted else draft
