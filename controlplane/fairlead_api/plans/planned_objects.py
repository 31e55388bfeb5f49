"""All objects that plans change behind one door: those of the Kubernetes API, and the homes of sessions."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fairlead.tables import PoolKey
from fairlead_api.plans.objects import ClusterGateway, ClusterObject, Target, TargetKind
from fairlead_api.plans.rollouts import StoredRevision


class SessionHomes(Protocol):
    """Sessions as objects: `spec.instance` is where one lives (left out = nowhere), the generation a binding's version.

    Raises NotFound, and Conflict and InvalidInput as `ClusterGateway` does.
    """

    async def read(self, target: Target) -> ClusterObject: ...

    async def patch(
        self, target: Target, change: Mapping[str, Any], resource_version: str, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterObject: ...


class PlannedObjects:
    """Implements `ClusterGateway` over both."""

    def __init__(self, cluster: ClusterGateway, sessions: SessionHomes) -> None:
        self._cluster = cluster
        self._sessions = sessions

    async def read(self, target: Target) -> ClusterObject:
        return await self._of(target).read(target)

    async def patch(
        self, target: Target, change: Mapping[str, Any], resource_version: str, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterObject:
        return await self._of(target).patch(target, change, resource_version, marks, dry_run=dry_run)

    async def revisions(self, pool: PoolKey) -> Sequence[StoredRevision]:
        return await self._cluster.revisions(pool)

    async def delete(self, target: Target, uid: str, resource_version: str, *, dry_run: bool) -> None:
        await self._cluster.delete(target, uid, resource_version, dry_run=dry_run)

    async def create(self, target: Target, manifest: Mapping[str, Any], marks: Mapping[str, str | None], *, dry_run: bool) -> ClusterObject:
        return await self._cluster.create(target, manifest, marks, dry_run=dry_run)

    def _of(self, target: Target) -> ClusterGateway | SessionHomes:
        return self._sessions if target.kind is TargetKind.SESSION else self._cluster
