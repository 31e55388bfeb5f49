"""Signing in and out: login links, web sessions."""

import asyncio
import logging
import os
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead_api.access.access import BOOTSTRAP, Access
from fairlead_api.access.credentials import ABSOLUTE, ID_DIGITS, AccessStore, Held
from fairlead_api.access.limits import Allowances, DenialBudgets, with_count
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.callers import Caller, Login, digest
from fairlead_api.infra.errors import Denied, NotAuthenticated, NotFound
from fairlead_api.oidc_settings import OIDC
from fairlead_client.resources.access import (
    PEOPLE,
    RISING,
    AccessRole,
    Identity,
    LoginLink,
    LoginLinkRequest,
    LoginMode,
    OidcLoginRequest,
    OidcProvider,
    WebSession,
    WebSessionItem,
)
from fairlead_client.resources.audit import AuditAction, AuditResult
from fairlead_client.resources.pages import Page

FAILED_LOGINS = 10
"""Number of failed logins that one address may have in quick succession. After that, the address must wait."""

FAILED_LOGIN_SECONDS = 10.0
"""Seconds until an address that has used up its FAILED_LOGINS is allowed one more failed login."""

DOUBTED_AT_ONCE = 4
"""Maximum number of simultaneous checks of login attempts from addresses with too many failed logins."""

WARN_AGAIN = timedelta(hours=1)

ALIKE = ("LATIN", "CYRILLIC", "GREEK", "COPTIC", "ARMENIAN", "CHEROKEE", "LISU")
"""Scripts that share letters of the same shape. No real name mixes letters of two of these scripts."""

logger = logging.getLogger(__name__)


def why_odd(name: str) -> str | None:
    """Return the reason why a name could be mistaken for a different name, as the end of a sentence; None for an
    unambiguous name.
    """
    if name != name.strip():
        return "must not begin or end with a space"
    if not name.isprintable() or any(letter.isspace() and letter != " " for letter in name):
        return "must have no invisible characters"
    if unicodedata.normalize("NFKC", name) != name:
        return "must be written with ordinary letters"
    if len({script for letter in name if letter.isalpha() and (script := unicodedata.name(letter, "").partition(" ")[0]) in ALIKE}) > 1:
        return "must not mix letters that look alike"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person whom an identity provider has signed in."""

    name: str
    groups: tuple[str, ...]


class IdentityProvider(Protocol):
    """A provider of OpenID Connect. Methods raise IdentityProviderUnavailable."""

    @property
    def issuer(self) -> str:
        """The address by which the provider names itself."""

    async def described(self) -> OidcProvider:
        """Return the provider's description, with the address to which a login redirects the browser."""

    async def person(self, answer: OidcLoginRequest, now: datetime) -> Person:
        """Exchange the authorization code that a browser brought back, and return the person who signed in. Raises
        NotAuthenticated.
        """


class Logins:
    """Use cases of signing in and out. `new_secret` makes random text of 256 bits. With `provider`, people can also
    sign in at the identity provider.
    """

    def __init__(self, store: AccessStore, access: Access, new_secret: Callable[[], str], provider: IdentityProvider | None = None) -> None:
        self._store = store
        self._provider = provider
        self._access = access
        self._new_secret = new_secret
        self._denials = DenialBudgets()
        self._doubted = asyncio.Semaphore(DOUBTED_AT_ONCE)
        self._warned_at: datetime | None = None
        self._failures = Allowances(burst=FAILED_LOGINS, per_second=1 / FAILED_LOGIN_SECONDS, code="too-many-logins")

    @property
    def modes(self) -> tuple[LoginMode, ...]:
        """The ways to log in that are available."""
        if self._access.open_to_all:
            return (LoginMode.OPEN,)
        further = {LoginMode.KUBERNETES: self._access.knows_cluster, LoginMode.OIDC: self._provider is not None}
        return (LoginMode.LINK, LoginMode.TOKEN, *(mode for mode, offered in further.items() if offered))

    @property
    def issuer(self) -> str | None:
        """The identity provider's address; None without an identity provider."""
        return self._provider.issuer if self._provider is not None else None

    async def login(self, secret: str, login: Login, now: datetime) -> WebSession:
        """Open a web session with a login link or an API token. A login link can be used only once.

        Raises NotAuthenticated, Denied; TooMany for a wrong secret from an address with too many failed logins.
        """
        async with self._one_try(login, now):
            return await self._login(secret, login, now)

    async def _login(self, secret: str, login: Login, now: datetime) -> WebSession:
        token = f"fls_{self._new_secret()}"
        if secret.startswith("fll_"):
            identity = await self._store.redeem(digest(secret), digest(token), login, now)
            if identity is None or identity.expires_at is None:
                raise NotAuthenticated("login-link-expired", "this login link was used, has expired or never existed; ask for a new one")
            return WebSession(token=token, identity=identity, expires_at=identity.expires_at)
        found, key = await self._access.identify(secret or None, now)
        if secret.startswith("fls_"):
            raise Denied("this is a web session's own token; log in with a login link or an API token")
        if found.role not in RISING:
            raise Denied(f"tokens of role {found.role} are for processes; log in with a person's token")
        expires_at = min(now + ABSOLUTE, found.expires_at or now + ABSOLUTE)
        identity = replace(found, expires_at=expires_at)
        held = Held(identity=identity, opened_by=key if found.source == BOOTSTRAP else None)
        await self._store.open_session(digest(token), held, login, now)
        return WebSession(token=token, identity=identity, expires_at=expires_at)

    async def provider(self) -> OidcProvider:
        """Return the description of the identity provider. Raises NotFound if none is configured,
        IdentityProviderUnavailable.
        """
        return await self._asked().described()

    async def login_by_provider(self, answer: OidcLoginRequest, login: Login, now: datetime) -> WebSession:
        """Open a web session for a person that the identity provider signed in, with or without a role in Fairlead.

        Raises NotFound if no provider is configured, NotAuthenticated, IdentityProviderUnavailable; TooMany instead of
        NotAuthenticated if the login comes from an address with too many failed logins.
        """
        provider = self._asked()
        async with self._one_try(login, now):
            return await self._login_by_provider(provider, answer, login, now)

    async def _login_by_provider(self, provider: IdentityProvider, answer: OidcLoginRequest, login: Login, now: datetime) -> WebSession:
        person = await provider.person(answer, now)
        token, expires_at = f"fls_{self._new_secret()}", now + ABSOLUTE
        known = Identity(subject=person.name, role=AccessRole.NONE, source=OIDC, expires_at=expires_at, groups=person.groups)
        identity = self._access.provided(known)
        await self._store.open_session(digest(token), Held(identity=identity), login, now)
        return WebSession(token=token, identity=identity, expires_at=expires_at)

    def _asked(self) -> IdentityProvider:
        if self._provider is None:
            raise NotFound("login mode", LoginMode.OIDC.value)
        return self._provider

    async def logout(self, caller: Caller, now: datetime) -> None:
        """Ends a web session; does nothing for other credentials."""
        try:
            await self._store.close_session(caller, now)
        finally:
            self._access.forget_seen()

    async def create_link(self, request: LoginLinkRequest, caller: Caller, now: datetime) -> LoginLink:
        """Makes a login link. Raises InvalidInput; Denied unless the caller is an admin of everything that the link
        gives access to.
        """
        if request.role not in RISING or (request.role is AccessRole.NONE and not request.namespaces):
            raise InvalidInput("role", request.role, f"write one of {', '.join(PEOPLE)}, or give a role in single namespaces")
        await self._access.require_admin_of(caller, request.role, request.namespaces, "login-links", now)
        if not 1 <= request.minutes <= 10:
            raise InvalidInput("minutes", request.minutes, "write 1 to 10")
        if not request.subject or len(request.subject) > 200:
            raise InvalidInput("subject", request.subject, "write a name of at most 200 characters")
        token = f"fll_{self._new_secret()}"
        expires_at = now + timedelta(minutes=request.minutes)
        await self._store.add_link(digest(token), request, expires_at, caller, now)
        return LoginLink(token=token, path=f"/login?token={token}", expires_at=expires_at)

    async def sessions(self, cursor: str | None, limit: int, caller: Caller, now: datetime) -> Page[WebSessionItem]:
        """List live web sessions: all of them for an admin in all namespaces, otherwise the caller's own."""
        found = await self._store.sessions(cursor, limit, _owner(caller), now)
        mine = caller.key.hex()[:ID_DIGITS]
        return replace(found, items=[replace(item, current=item.id == mine) for item in found.items])

    async def revoke_session(self, session_id: str, caller: Caller, now: datetime) -> None:
        """End a web session. Only an admin in all namespaces may end other people's sessions. Raises NotFound."""
        try:
            await self._store.revoke_session(session_id, _owner(caller), caller, now)
        finally:
            self._access.forget_seen()

    @asynccontextmanager
    async def _one_try(self, login: Login, now: datetime) -> AsyncIterator[None]:
        """Run the block, which checks a secret. If the block raises NotAuthenticated, count a failed login of the
        address.

        A secret is checked even if its address has too many failed logins, so that a person with a valid secret need
        not wait because of other people's failures. This is safe, because a secret of 256 bits cannot be guessed. For a
        wrong secret, an address with too many failures gets TooMany instead of NotAuthenticated. Only a few secrets
        from such addresses are checked at the same time.
        """
        async with self._doubted if not self._failures.has(login.address, now) else nullcontext():
            try:
                yield
            except NotAuthenticated as error:
                if not self._failures.has(login.address, now):
                    self._warn(login, now)
                self._failures.take(login.address, now)
                await self._failed(login, str(error), now)
                raise

    def _warn(self, login: Login, now: datetime) -> None:
        """Log a warning if all failures come from one address: either one person fails again and again, or all people
        come through a proxy whose forwarding headers are not trusted.
        """
        if len(self._failures) > 1 or (self._warned_at is not None and now - self._warned_at < WARN_AGAIN):
            return
        self._warned_at = now
        remedy = "if this is a proxy's address, add it to FORWARDED_ALLOW_IPS, so that failed logins count for the visitors' own addresses"
        extra = {"address": login.address, "believed": os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1"), "remedy": remedy}
        logger.warning("too many failed logins, all of them from one address", extra=extra)

    async def _failed(self, login: Login, reason: str, now: datetime) -> None:
        counted = self._denials.spend(login.address, now)
        if counted is None:
            return
        draft = AuditDraft(
            actor="unknown",
            role="none",
            source=login.address,
            action=AuditAction.LOGIN,
            object="web",
            reason=reason,
            result=AuditResult.DENIED,
            request_id=login.request_id,
        )
        await self._access.note(with_count(draft, counted), now)


def _owner(caller: Caller) -> Identity | None:
    return None if caller.identity.reaches(AccessRole.ADMIN) else caller.identity
