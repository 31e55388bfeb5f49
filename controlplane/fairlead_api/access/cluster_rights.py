"""People of the cluster: who a Kubernetes token belongs to, and which roles the cluster's RBAC gives them here.

Rights live where the cluster's administrators keep them: a role is held where the API server allows what ASKED says.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from fairlead_api.infra.errors import ClusterUnavailable, StoreUnavailable
from fairlead_client.resources.access import AccessRole, Rights

ASKED = (
    (AccessRole.ADMIN, "patch", ""),
    (AccessRole.OPERATOR, "patch", "scale"),
    (AccessRole.VIEWER, "list", ""),
)
"""Role, verb and subresource of `inferencepools`, the highest role first: `patch` pools makes an admin, `patch` their
scale an operator, `list` them a viewer."""

FRESH = timedelta(seconds=10)
"""How long an answer about somebody's rights counts."""

KEPT = timedelta(minutes=10)
"""How long it counts while the Kubernetes API is away."""

MOST_NAMESPACES = 200
"""Most namespaces of pools that are asked about one by one, the first by name."""
_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUser:
    """Whom the API server recognized. `expires_at` is that of the token, None if it does not say."""

    name: str
    groups: tuple[str, ...]
    expires_at: datetime | None = None


class ClusterReviews(Protocol):
    """The API server's reviews. Both raise ClusterUnavailable and Denied."""

    async def user_of(self, token: str) -> ClusterUser | None:
        """TokenReview: the token's user, None for a token that is not good."""

    async def allows(self, user: ClusterUser, verb: str, subresource: str, namespace: str) -> bool:
        """SubjectAccessReview of `inferencepools`; an empty namespace means all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """Rights as the cluster gave them at an instant: a role for all namespaces, and those of single ones."""

    role: AccessRole
    namespaces: Rights
    at: datetime


class ClusterRights:
    """`namespaces` gives those that have pools."""

    def __init__(self, reviews: ClusterReviews, namespaces: Callable[[], Awaitable[Sequence[str]]]) -> None:
        self._reviews = reviews
        self._namespaces = namespaces
        self._known: dict[tuple[str, tuple[str, ...]], Granted] = {}
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def user_of(self, token: str) -> ClusterUser | None:
        """The token's user. Raises ClusterUnavailable, Denied."""
        return await self._reviews.user_of(token)

    async def of(self, user: ClusterUser, now: datetime) -> Granted:
        """The user's rights, at most FRESH old, or KEPT while the API server is away.

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
