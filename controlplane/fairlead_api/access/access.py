"""Access control: identifies callers and checks their rights.

Secrets are compared and stored only as SHA-256. The prefix of a secret shows its kind: `flt_` API token, `fls_` web
session, `fll_` login link. A secret with another prefix can only be a bootstrap token or a Kubernetes token.
"""

import hmac
import logging
from dataclasses import replace
from datetime import datetime, timedelta

from fairlead.errors import InvalidInput
from fairlead_api.access.cluster_rights import FRESH, ClusterRights, ClusterUser
from fairlead_api.access.credentials import AccessStore
from fairlead_api.access.limits import Allowances, DenialBudgets, with_count
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.callers import Bootstrap, Caller, digest
from fairlead_api.infra.errors import Denied, NotAuthenticated, StoreUnavailable
from fairlead_api.infra.sharing import Shared
from fairlead_api.oidc_settings import NAMESPACE, OIDC, GivenRoles
from fairlead_client.resources.access import PEOPLE, RISING, AccessRole, Identity, Rights
from fairlead_client.resources.audit import AuditAction, AuditResult

_log = logging.getLogger(__name__)

GRACE = timedelta(minutes=10)
"""Maximum time for which the identity of a recent caller is trusted while the database is unreachable. The identity may
then only read, because nothing can be written.
"""


BURST_SECONDS = 10

KUBERNETES = "kubernetes"
"""The `source` of identities that the Kubernetes cluster authenticates."""

BOOTSTRAP = "bootstrap"
"""The `source` of identities whose tokens are set in the environment."""

ANYBODY = "none"
"""The `source` of the identity that every caller has in open mode, without a credential."""

SHARE_SECONDS = 1.0
"""Seconds for which the result of looking up a credential is reused, so that the ten requests of one page need a single
look-up. If any process reports that a credential ended, the results are dropped at once.
"""

MOST_NAMESPACES = 100


class Access:
    """Use cases of access control.

    With `open_to_all`, everybody is accepted as admin (loopback only). `requests_per_second` limits the requests of
    each person's credential (0 = unlimited); after a pause, a person may send at once as many requests as the limit
    allows in BURST_SECONDS. With `cluster`, tokens of the Kubernetes cluster are accepted too. `given` holds the roles
    that the settings give to people from the identity provider; without it, these people are not accepted.
    """

    def __init__(
        self,
        store: AccessStore,
        bootstrap: tuple[Bootstrap, ...],
        *,
        open_to_all: bool = False,
        requests_per_second: int = 0,
        cluster: ClusterRights | None = None,
        given: GivenRoles | None = None,
    ) -> None:
        self._cluster = cluster
        self._given = given
        self._reviewed: dict[bytes, tuple[ClusterUser, datetime]] = {}
        self._store = store
        self._bootstrap = bootstrap
        self.open_to_all = open_to_all
        self._seen: dict[bytes, tuple[Identity, datetime]] = {}
        self._identified = Shared(SHARE_SECONDS)
        self._denials = DenialBudgets()
        pace = Allowances(burst=BURST_SECONDS * requests_per_second, per_second=float(requests_per_second), code="too-many-requests")
        self._pace = pace if requests_per_second else None

    @property
    def knows_cluster(self) -> bool:
        """Whether tokens of the Kubernetes cluster are accepted."""
        return self._cluster is not None

    async def identify(self, secret: str | None, now: datetime) -> tuple[Identity, bytes]:
        """Return the identity that the secret gives, and the SHA-256 of the secret, which identifies the credential.

        Raises NotAuthenticated; StoreUnavailable if the database is unreachable and the caller was not seen recently.
        """
        if secret is None:
            if self.open_to_all:
                return Identity(subject="anonymous", role=AccessRole.ADMIN, source=ANYBODY, expires_at=None), b"anonymous"
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
        """Return the identity behind an API token or a web session. Raises NotAuthenticated, StoreUnavailable."""
        held = await self._store.identify(key, kind, now)
        if held is None:
            self._seen.pop(key, None)
            raise NotAuthenticated("token-invalid", "the token is not known, has expired or was revoked")
        if held.opened_by is not None and held.opened_by not in {token.key for token in self._bootstrap}:
            raise NotAuthenticated(
                "token-invalid", f"the bootstrap token {held.identity.subject!r} has a different secret now, or was removed"
            )
        return held.identity

    async def _of_cluster(self, secret: str, key: bytes, now: datetime) -> Identity:
        """Return the identity of a Kubernetes token. Raises NotAuthenticated, ClusterUnavailable."""
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
        """Return the identity with its present rights. Only the rights of people from the identity provider and of
        users of the Kubernetes cluster can have changed.

        A web session is valid only as long as the login that opened it. Raises NotAuthenticated.
        """
        if identity.source == OIDC:
            return self.provided(identity)
        if identity.source == ANYBODY and not self.open_to_all:
            raise NotAuthenticated("token-invalid", "this API no longer accepts callers without a token")
        if identity.source == BOOTSTRAP and (identity.subject, identity.role) not in {
            (token.name, token.role) for token in self._bootstrap
        }:
            raise NotAuthenticated("token-invalid", f"the bootstrap token {identity.subject!r} is no longer in the settings")
        if identity.source != KUBERNETES:
            return identity
        if self._cluster is None:
            raise NotAuthenticated("token-invalid", "this API no longer accepts logins of the Kubernetes cluster")
        granted = await self._cluster.of(ClusterUser(name=identity.subject, groups=identity.groups), now)
        return replace(identity, role=granted.role, namespaces=granted.namespaces)

    def provided(self, identity: Identity) -> Identity:
        """Return the identity of a person from the identity provider, with the roles that the settings give to that
        person. Raises NotAuthenticated.
        """
        if self._given is None:
            raise NotAuthenticated("token-invalid", "this API no longer accepts logins of the identity provider")
        role, namespaces = self._given.of(identity.subject, identity.groups)
        return replace(identity, role=role, namespaces=namespaces)

    def require_pace(self, identity: Identity, key: bytes, now: datetime) -> None:
        """Raise TooMany if a person's credential makes too many requests per second. Credentials of processes have no
        limit.
        """
        if self._pace is not None and identity.role in RISING:
            self._pace.take(key, now)

    def _bootstrapped(self, key: bytes) -> Identity | None:
        found = None
        for token in self._bootstrap:  # all of them, so that time tells nothing
            if hmac.compare_digest(token.key, key):
                found = Identity(subject=token.name, role=token.role, source=BOOTSTRAP, expires_at=None)
        return found

    def _remember(self, key: bytes, identity: Identity, now: datetime) -> None:
        if len(self._seen) >= 10_000:
            self._seen.clear()
        self._seen[key] = (identity, now)

    async def require(
        self, caller: Caller, role: AccessRole, target: str, now: datetime, namespace: str | None = None, *, somewhere: bool = False
    ) -> None:
        """Raises Denied (and records it) unless the caller's role reaches `role` in `namespace`. If `namespace` is
        None, the caller's role must reach `role` in every namespace; with `somewhere`, one namespace is enough.

        The roles of machines are not ordered: the caller must have exactly the role `role`, except in open mode.
        """
        who = caller.identity
        if self._is_anybody(who) or who.reaches(role, namespace) or (somewhere and who.reaches_somewhere(role)):
            return
        place = "" if namespace is None else f" in namespace {namespace[:63]}"
        await self._denied(caller, target, f"needs role {role}{place}", now)
        everywhere = " in all namespaces" if who.namespaces and not place and not somewhere else place
        raise Denied(f"{who.subject} has role {who.role_in(namespace)}{everywhere}; this needs {role}")

    async def require_router(self, caller: Caller, router: str, target: str, now: datetime) -> None:
        """Raises Denied (and records it) unless the caller may report as `router`.

        A token named `edge` may report as the router `edge` and as every router `edge-…`. So one token serves all
        replicas of a Deployment, and no router can report under another Deployment's name.
        """
        name = caller.identity.subject
        if self._is_anybody(caller.identity) or router == name or router.startswith(f"{name}-"):
            return
        await self._denied(caller, target, f"may not report as router {router[:200]}", now)
        raise Denied(f"token {name!r} may report as router {name!r} or {name + '-…'!r}, not as {router[:200]!r}; use a token of that name")

    def _is_anybody(self, who: Identity) -> bool:
        return self.open_to_all and who.source == ANYBODY

    async def _denied(self, caller: Caller, target: str, reason: str, now: datetime) -> None:
        counted = self._denials.spend(caller.key, now)
        if counted is not None:
            await self.note(
                with_count(caller.draft(AuditAction.ACCESS_DENIED, target, result=AuditResult.DENIED, reason=reason), counted), now
            )

    async def note(self, draft: AuditDraft, now: datetime) -> None:
        """Record an audit event that belongs to no other change. If the database is unreachable, the event is only
        logged, and the caller's request continues.
        """
        try:
            await self._store.record(draft, now)
        except StoreUnavailable as error:
            _log.warning("audit entry not stored", extra={"action": draft.action, "actor": draft.actor, "error": str(error)})

    async def require_admin_of(self, caller: Caller, role: AccessRole, namespaces: Rights, target: str, now: datetime) -> None:
        """Check that the caller is admin in all of `namespaces`, because the caller wants to give somebody the role
        `role` there. Raises InvalidInput, Denied (and records it).
        """
        _check_namespaces(namespaces)
        for namespace in (*namespaces, *(() if role is AccessRole.NONE else (None,))):
            await self.require(caller, AccessRole.ADMIN, target, now, namespace)

    def forget_seen(self) -> None:
        """Drop all remembered identities, because a credential ended in this or another process."""
        self._seen.clear()
        self._identified.forget()


def _check_namespaces(namespaces: Rights) -> None:
    if len(namespaces) > MOST_NAMESPACES:
        raise InvalidInput(
            "namespaces", f"{len(namespaces)} namespaces", f"name at most {MOST_NAMESPACES}, or give the role in all namespaces"
        )
    for namespace, role in namespaces.items():
        if not NAMESPACE.fullmatch(namespace):
            raise InvalidInput("namespaces", namespace[:100], "write the name of a namespace, such as team-a")
        if role not in PEOPLE:
            raise InvalidInput(f"namespaces.{namespace}", role, f"write one of {', '.join(PEOPLE)}")
