"""Access control: bearer tokens, one-time login links, web sessions.

Secrets are compared and stored only as SHA-256. Prefixes tell the kinds apart: `flt_` API token, `fls_` web session,
`fll_` login link; anything else can only be a bootstrap secret.
"""

import hashlib
import hmac
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead_api.services.access.cluster_rights import FRESH, ClusterRights, ClusterUser
from fairlead_api.services.access.denials import DenialBudgets
from fairlead_api.services.access.rate_limits import Allowances
from fairlead_api.services.audit.chain import AuditDraft
from fairlead_api.services.errors import Denied, NotAuthenticated, StoreUnavailable
from fairlead_api.services.sharing import Shared
from fairlead_api.services.spans import Sight
from fairlead_client.resources.access import (
    PEOPLE,
    RISING,
    AccessRole,
    Identity,
    LoginLink,
    LoginLinkRequest,
    LoginMode,
    Rights,
    TokenItem,
    TokenRequest,
    WebSession,
    WebSessionItem,
)
from fairlead_client.resources.audit import AuditAction, AuditResult
from fairlead_client.resources.pages import Page

_log = logging.getLogger(__name__)

IDLE = timedelta(hours=8)
ABSOLUTE = timedelta(hours=24)
GRACE = timedelta(minutes=10)
"""How long a previously seen identity is trusted while the database is away.

Only for reading: nothing can be written then.
"""


FAILED_LOGINS = 10
"""Failed logins of one address before it must wait."""

FAILED_LOGIN_SECONDS = 10.0
"""After this long one more may fail."""

BURST_SECONDS = 10

KUBERNETES = "kubernetes"
"""Source of identities of the cluster."""

SHARE_SECONDS = 1.0
"""A credential is looked up once in that time, but anew once any process says that one ended. Pages ask ten things."""

ID_DIGITS = 16
"""Of a credential's hash, as its public name."""

MOST_NAMESPACES = 100
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


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
    address: str = "unknown"

    @property
    def sight(self) -> Sight:
        """The namespaces whose pools the caller may see; None = all."""
        return self.identity.where(AccessRole.VIEWER)

    def sees(self, pool: str) -> bool:
        """Whether the caller may see what is of a pool, namespace/name."""
        return self.identity.reaches(AccessRole.VIEWER, pool.partition("/")[0])

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """An attempt to log in: from which address, and the id of its request."""

    address: str
    request_id: str


class AccessStore(Protocol):
    """Credentials in the database. Every write appends its audit entry in the same transaction."""

    async def identify(self, key: bytes, kind: str, now: datetime) -> Identity | None:
        """The holder of the API token (`flt`) or web session (`fls`) with this hash, None unless it is valid now.

        Records that it was used.
        """

    async def redeem(self, key: bytes, session: bytes, login: Login, now: datetime) -> Identity | None:
        """Exchanges an unused, unexpired login link for a web session; None if it is not one."""

    async def open_session(self, session: bytes, identity: Identity, login: Login, now: datetime) -> None:
        """Stores a web session for an identity established in another way."""

    async def close_session(self, caller: Caller, now: datetime) -> None:
        """Revokes the caller's web session."""

    async def add_link(self, key: bytes, request: LoginLinkRequest, expires_at: datetime, caller: Caller, now: datetime) -> None: ...

    async def sessions(self, cursor: str | None, limit: int, owner: Identity | None, now: datetime) -> Page[WebSessionItem]:
        """Web sessions that live, newest first; only those of `owner` unless it is None."""

    async def revoke_session(self, session_id: str, owner: Identity | None, caller: Caller, now: datetime) -> None:
        """Ends a web session, of `owner` unless it is None. Raises NotFound."""

    async def tokens(self, cursor: str | None, limit: int, within: Sight) -> Page[TokenItem]:
        """Tokens, newest first; only those whose rights all lie `within` these namespaces."""

    async def add_token(self, item: TokenItem, key: bytes, caller: Caller, now: datetime) -> None: ...

    async def revoke_token(self, token_id: str, within: Sight, caller: Caller, now: datetime) -> None:
        """Revokes a token and ends the web sessions opened with it. Raises NotFound, also for a token with rights
        beyond `within`.
        """

    async def record(self, draft: AuditDraft, now: datetime) -> None: ...


class Access:
    """Use cases of access control.

    `new_secret` makes random text of 256 bits; `open_to_all` accepts everybody as admin (loopback only). A person's
    credential may make `requests_per_second`, and those of BURST_SECONDS at once; 0 = any number. With `cluster`,
    tokens of the Kubernetes cluster are good too.
    """

    def __init__(
        self,
        store: AccessStore,
        bootstrap: tuple[Bootstrap, ...],
        new_secret: Callable[[], str],
        *,
        open_to_all: bool = False,
        requests_per_second: int = 0,
        cluster: ClusterRights | None = None,
    ) -> None:
        self._cluster = cluster
        self._reviewed: dict[bytes, tuple[ClusterUser, datetime]] = {}
        self._store = store
        self._bootstrap = bootstrap
        self._new_secret = new_secret
        self._open = open_to_all
        self._seen: dict[bytes, tuple[Identity, datetime]] = {}
        self._identified = Shared(SHARE_SECONDS)
        self._denials = DenialBudgets()
        pace = Allowances(burst=BURST_SECONDS * requests_per_second, per_second=float(requests_per_second), code="too-many-requests")
        self._pace = pace if requests_per_second else None
        self._failures = Allowances(burst=FAILED_LOGINS, per_second=1 / FAILED_LOGIN_SECONDS, code="too-many-logins")

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
            return await self._of_cluster(secret, key, now), key
        try:
            identity = await self._identified.get((key, int(now.timestamp())), lambda: self._looked_up(key, kind, now))
        except StoreUnavailable:
            known = self._seen.get(key)
            if known is None or now - known[1] > GRACE or (known[0].expires_at is not None and known[0].expires_at <= now):
                raise
            return await self._refreshed(known[0], now), key
        self._remember(key, identity, now)
        return await self._refreshed(identity, now), key

    async def _looked_up(self, key: bytes, kind: str, now: datetime) -> Identity:
        """The holder of a token or web session. Raises NotAuthenticated, StoreUnavailable."""
        identity = await self._store.identify(key, kind, now)
        if identity is None:
            self._seen.pop(key, None)
            raise NotAuthenticated("token-invalid", "the token is not known, has expired or was revoked")
        return identity

    async def _of_cluster(self, secret: str, key: bytes, now: datetime) -> Identity:
        """The identity of a Kubernetes token. Raises NotAuthenticated, ClusterUnavailable."""
        if self._cluster is None or secret.startswith("fll_"):
            raise NotAuthenticated("token-invalid", "the token is not known")
        known = self._reviewed.get(key)
        if known is None or now - known[1] >= FRESH:
            user = await self._cluster.user_of(secret)
            if user is None:
                self._reviewed.pop(key, None)
                raise NotAuthenticated("token-invalid", "the token is not known, neither here nor to the Kubernetes API")
            if len(self._reviewed) >= 10_000:
                self._reviewed.clear()
            self._reviewed[key] = known = (user, now)
        user = known[0]
        nobody = Identity(subject=user.name, role=AccessRole.NONE, source=KUBERNETES, expires_at=user.expires_at, groups=user.groups)
        return await self._refreshed(nobody, now)

    async def _refreshed(self, identity: Identity, now: datetime) -> Identity:
        """The identity with its rights as the cluster has them now, if it is the cluster's."""
        if identity.source != KUBERNETES:
            return identity
        if self._cluster is None:
            raise NotAuthenticated("token-invalid", "logins of the Kubernetes cluster do not count here any more")
        granted = await self._cluster.of(ClusterUser(name=identity.subject, groups=identity.groups), now)
        return replace(identity, role=granted.role, namespaces=granted.namespaces)

    def require_pace(self, identity: Identity, key: bytes, now: datetime) -> None:
        """Raises TooMany for a person's credential with too many requests. Processes are never held up."""
        if self._pace is not None and identity.role in RISING:
            self._pace.require(key, now)
            self._pace.spend(key, now)

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

    async def require(
        self, caller: Caller, role: AccessRole, target: str, now: datetime, namespace: str | None = None, *, somewhere: bool = False
    ) -> None:
        """Raises Denied (and records it) unless the caller's role reaches `role`: in `namespace`, without one in all of
        them, or `somewhere` in any of them.

        A machine's role is reached only by itself and in open mode.
        """
        who = caller.identity
        if who.source == "none" or who.reaches(role, namespace) or (somewhere and who.reaches_somewhere(role)):
            return
        place = "" if namespace is None else f" in namespace {namespace[:63]}"
        await self._denied(caller, target, f"needs role {role}{place}", now)
        everywhere = " in all namespaces" if who.namespaces and not place and not somewhere else place
        raise Denied(f"{who.subject} has role {who.role_in(namespace)}{everywhere}; this needs {role}")

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

    @property
    def modes(self) -> tuple[LoginMode, ...]:
        """The ways to log in."""
        if self._open:
            return (LoginMode.OPEN,)
        return (LoginMode.LINK, LoginMode.TOKEN, *((LoginMode.KUBERNETES,) if self._cluster is not None else ()))

    async def login(self, secret: str, login: Login, now: datetime) -> WebSession:
        """A web session for a login link (used up by this) or an API token.

        Raises NotAuthenticated, Denied; TooMany for an address with too many failures.
        """
        self._failures.require(login.address, now)
        token = f"fls_{self._new_secret()}"
        if secret.startswith("fll_"):
            identity = await self._store.redeem(digest(secret), digest(token), login, now)
            if identity is None or identity.expires_at is None:
                await self._failed(login, "login link used, expired or unknown", now)
                raise NotAuthenticated("login-link-expired", "this login link was used, has expired or never existed; ask for a new one")
            return WebSession(token=token, identity=identity, expires_at=identity.expires_at)
        try:
            found, _ = await self.identify(secret or None, now)
        except NotAuthenticated:
            await self._failed(login, "token unknown, expired or revoked", now)
            raise
        if secret.startswith("fls_"):
            raise Denied("this is a web session's own token; log in with a login link or an API token")
        if found.role not in RISING:
            raise Denied(f"tokens of role {found.role} are for processes; log in with a person's token")
        expires_at = min(now + ABSOLUTE, found.expires_at or now + ABSOLUTE)
        identity = replace(found, expires_at=expires_at)
        await self._store.open_session(digest(token), identity, login, now)
        return WebSession(token=token, identity=identity, expires_at=expires_at)

    async def _failed(self, login: Login, reason: str, now: datetime) -> None:
        self._failures.spend(login.address, now)
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
        await self.note(_with_count(draft, counted), now)

    async def logout(self, caller: Caller, now: datetime) -> None:
        """Ends a web session; does nothing for other credentials."""
        try:
            await self._store.close_session(caller, now)
        finally:
            self.forget_seen()

    async def create_link(self, request: LoginLinkRequest, caller: Caller, now: datetime) -> LoginLink:
        """Makes a login link. Raises InvalidInput; Denied where the caller is no admin of all that it opens."""
        if request.role not in RISING or (request.role is AccessRole.NONE and not request.namespaces):
            raise InvalidInput("role", request.role, f"write one of {', '.join(PEOPLE)}, or name namespaces")
        await self._require_admin(caller, request.role, request.namespaces, "login-links", now)
        if not 1 <= request.minutes <= 10:
            raise InvalidInput("minutes", request.minutes, "write 1 to 10")
        if not request.subject or len(request.subject) > 200:
            raise InvalidInput("subject", request.subject, "write a name of at most 200 characters")
        token = f"fll_{self._new_secret()}"
        expires_at = now + timedelta(minutes=request.minutes)
        await self._store.add_link(digest(token), request, expires_at, caller, now)
        return LoginLink(token=token, path=f"/login?token={token}", expires_at=expires_at)

    async def sessions(self, cursor: str | None, limit: int, caller: Caller, now: datetime) -> Page[WebSessionItem]:
        """Web sessions that live: all for who is admin in all namespaces, else the caller's own."""
        found = await self._store.sessions(cursor, limit, _owner(caller), now)
        mine = caller.key.hex()[:ID_DIGITS]
        return replace(found, items=[replace(item, current=item.id == mine) for item in found.items])

    async def revoke_session(self, session_id: str, caller: Caller, now: datetime) -> None:
        """Ends a web session; only who is admin in all namespaces ends one of others. Raises NotFound."""
        try:
            await self._store.revoke_session(session_id, _owner(caller), caller, now)
        finally:
            self.forget_seen()

    async def tokens(self, cursor: str | None, limit: int, caller: Caller) -> Page[TokenItem]:
        """The tokens that the caller may revoke: those whose rights lie where it is admin."""
        return await self._store.tokens(cursor, limit, caller.identity.where(AccessRole.ADMIN))

    async def create_token(self, request: TokenRequest, caller: Caller, now: datetime) -> TokenItem:
        """Makes an API token; no other answer contains its secret.

        Raises InvalidInput; Denied where the caller is no admin of all that it opens.
        """
        if request.role is AccessRole.NONE and not request.namespaces:
            raise InvalidInput("role", request.role, f"write one of {', '.join(PEOPLE)}, or name namespaces")
        if request.namespaces and request.role not in RISING:
            raise InvalidInput("namespaces", ", ".join(request.namespaces), f"leave it out: {request.role} is a process of all namespaces")
        await self._require_admin(caller, request.role, request.namespaces, "tokens", now)
        if not 1 <= request.days <= 365:
            raise InvalidInput("days", request.days, "write 1 to 365")
        if not request.name.strip() or len(request.name) > 200:
            raise InvalidInput("name", request.name, "write a name of at most 200 characters")
        secret = f"flt_{self._new_secret()}"
        item = TokenItem(
            id=digest(secret).hex()[:ID_DIGITS],
            name=request.name,
            role=request.role,
            created_at=now,
            created_by=caller.identity.subject,
            expires_at=now + timedelta(days=request.days),
            last_used_at=None,
            revoked_at=None,
            namespaces=request.namespaces,
            secret=secret,
        )
        await self._store.add_token(item, digest(secret), caller, now)
        return item

    async def revoke_token(self, token_id: str, caller: Caller, now: datetime) -> None:
        try:
            await self._store.revoke_token(token_id, caller.identity.where(AccessRole.ADMIN), caller, now)
        finally:
            self.forget_seen()

    async def _require_admin(self, caller: Caller, role: AccessRole, namespaces: Rights, target: str, now: datetime) -> None:
        """Nobody hands out rights where they are not admin. Raises InvalidInput, Denied (and records it)."""
        _check_namespaces(namespaces)
        for namespace in (*namespaces, *(() if role is AccessRole.NONE else (None,))):
            await self.require(caller, AccessRole.ADMIN, target, now, namespace)

    def forget_seen(self) -> None:
        """Trust no remembered identity: a credential ended, here or in another process."""
        self._seen.clear()
        self._identified.forget()


def _owner(caller: Caller) -> Identity | None:
    return None if caller.identity.reaches(AccessRole.ADMIN) else caller.identity


def _check_namespaces(namespaces: Rights) -> None:
    if len(namespaces) > MOST_NAMESPACES:
        raise InvalidInput("namespaces", f"{len(namespaces)} namespaces", f"name at most {MOST_NAMESPACES}, or give the role for all")
    for namespace, role in namespaces.items():
        if not _NAMESPACE.fullmatch(namespace):
            raise InvalidInput("namespaces", namespace[:100], "write the name of a namespace, such as team-a")
        if role not in PEOPLE:
            raise InvalidInput(f"namespaces.{namespace}", role, f"write one of {', '.join(PEOPLE)}")


def _with_count(draft: AuditDraft, counted: int) -> AuditDraft:
    """The entry, with the number of the caller's earlier refusals that were only counted."""
    return replace(draft, after={"refusals_counted_before": counted}) if counted else draft
