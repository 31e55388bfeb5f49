"""Finds the Kubernetes user of a token, and the roles in Fairlead that the cluster's RBAC gives that user."""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from fairlead.pools import GROUP, PLURAL
from fairlead_api.infra.errors import ClusterUnavailable, StoreUnavailable
from fairlead_api.infra.kubernetes import Kubernetes
from fairlead_client.resources.access import AccessRole, Rights

ASKED = (
    (AccessRole.ADMIN, "patch", ""),
    (AccessRole.OPERATOR, "patch", "scale"),
    (AccessRole.VIEWER, "list", ""),
)
"""Each role, with the verb and subresource of `inferencepools` that give it, the highest role first: whoever may
`patch` pools is an admin, whoever may `patch` their scale an operator, whoever may `list` them a viewer.
"""

FRESH = timedelta(seconds=10)
"""Time for which a response of the Kubernetes API about a caller's rights is reused."""

KEPT = timedelta(minutes=10)
"""Time for which a response of the Kubernetes API about a caller's rights is reused while that API is unreachable."""

MOST_NAMESPACES = 200
"""Maximum number of namespaces in which a user's rights are requested, with one request for each. If more namespaces
have pools, the first by name are used.
"""
_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUser:
    """The user that the API server recognized. `expires_at` is the time at which the user's token expires; None if the
    token does not expire.
    """

    name: str
    groups: tuple[str, ...]
    expires_at: datetime | None = None


class ClusterReviews(Protocol):
    """Reviews of tokens and rights by the API server. Both methods raise ClusterUnavailable and Denied."""

    async def user_of(self, token: str) -> ClusterUser | None:
        """Return the user that a TokenReview finds for the token; None for an invalid token."""

    async def allows(self, user: ClusterUser, verb: str, subresource: str, namespace: str) -> bool:
        """Return whether the user may use the verb on `inferencepools`, by a SubjectAccessReview. An empty namespace
        means all namespaces.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The rights of a user in the cluster, as looked up at one time: a role for all namespaces, and roles for single
    namespaces.
    """

    role: AccessRole
    namespaces: Rights
    at: datetime


class ClusterRights:
    """Looks up and caches users' rights. `namespaces` returns the namespaces that have pools."""

    def __init__(self, reviews: ClusterReviews, namespaces: Callable[[], Awaitable[Sequence[str]]]) -> None:
        self._reviews = reviews
        self._namespaces = namespaces
        self._known: dict[tuple[str, tuple[str, ...]], Granted] = {}
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def user_of(self, token: str) -> ClusterUser | None:
        """Return the token's user. Raises ClusterUnavailable, Denied."""
        return await self._reviews.user_of(token)

    async def of(self, user: ClusterUser, now: datetime) -> Granted:
        """Return the user's rights. The rights are at most FRESH old, or at most KEPT while the API server is
        unreachable.

        Raises ClusterUnavailable, StoreUnavailable.
        """
        key = user.name, user.groups
        known = self._known.get(key)
        if known is not None and now - known.at < FRESH:
            return known
        try:
            granted = await self._ask(user, now)
        except (ClusterUnavailable, StoreUnavailable):
            if known is None or now - known.at > KEPT:
                raise
            return known
        if len(self._known) >= 10_000:
            self._known.clear()
        self._known[key] = granted
        return granted

    async def _ask(self, user: ClusterUser, now: datetime) -> Granted:
        everywhere = await self._role(user, "")
        namespaces = () if everywhere is AccessRole.ADMIN else sorted(await self._namespaces())[:MOST_NAMESPACES]
        roles = await asyncio.gather(*(self._role(user, namespace) for namespace in namespaces))
        higher = {
            namespace: role
            for namespace, role in zip(namespaces, roles, strict=True)
            if role is not everywhere and role.reaches(everywhere)
        }
        return Granted(role=everywhere, namespaces=higher, at=now)

    async def _role(self, user: ClusterUser, namespace: str) -> AccessRole:
        for role, verb, subresource in ASKED:
            async with self._asking:
                if await self._reviews.allows(user, verb, subresource, namespace):
                    return role
        return AccessRole.NONE


_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class KubernetesReviews:
    """Implements `access.cluster_rights.ClusterReviews`. `audience` is the audience that tokens must have; None means
    the audience of the API server itself.
    """

    def __init__(self, cluster: Kubernetes, audience: str | None) -> None:
        self._cluster = cluster
        self._audience = audience

    async def user_of(self, token: str) -> ClusterUser | None:
        audiences = {} if self._audience is None else {"audiences": [self._audience]}
        status = await self._cluster.review(_TOKENS, "authentication.k8s.io/v1", "TokenReview", {"token": token, **audiences})
        if status.get("authenticated") is not True:
            return None
        if self._audience is not None and self._audience not in (status.get("audiences") or ()):
            return None  # an API server that knows no audiences says nothing about them
        user = status.get("user") or {}
        return ClusterUser(name=str(user.get("username")), groups=tuple(user.get("groups") or ()), expires_at=expiry(token))

    async def allows(self, user: ClusterUser, verb: str, subresource: str, namespace: str) -> bool:
        asked = {"group": GROUP, "resource": PLURAL, "verb": verb, "subresource": subresource, "namespace": namespace}
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "resourceAttributes": {name: value for name, value in asked.items() if value},
        }
        status = await self._cluster.review(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        return status.get("allowed") is True


def expiry(token: str) -> datetime | None:
    """Return the time at which a token that the API server accepted expires; None if the token is not a JWT with an
    expiry.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
