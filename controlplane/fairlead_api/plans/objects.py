"""The Kubernetes objects and the bindings of sessions that plans change, and the ports through which plans read and
write them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from fairlead.instances import Role
from fairlead.pool_roles import role_object_name
from fairlead.tables import PoolKey
from fairlead_api.plans.rollouts import StoredRevision


class TargetKind(StrEnum):
    """A kind of object that a plan may change, named as in Kubernetes. `Engine` is one engine of a pool whose engines
    already run, and `Engines` the list of such engines. `Session` is not a Kubernetes object; a plan changes the
    instance to which the session is bound.
    """

    POOL = "InferencePool"
    ROLE = "InferencePoolRole"
    INSTANCE = "Pod"
    ENGINE = "Engine"
    ENGINES = "Engines"
    SESSION = "Session"

    @property
    def path(self) -> tuple[str, ...]:
        """The path to the part of the object that plans change: the pool's spec, an instance's annotations, the whole
        file, or a session.
        """
        if self in {TargetKind.ENGINES, TargetKind.SESSION}:
            return ()
        return ("metadata", "annotations") if self.is_instance else ("spec",)

    @property
    def is_instance(self) -> bool:
        """Whether objects of this kind are single instances of a pool."""
        return self in {TargetKind.INSTANCE, TargetKind.ENGINE}

    @property
    def may_be_owned(self) -> bool:
        """Whether a GitOps tool or a file may own objects of this kind."""
        return not self.is_instance and self is not TargetKind.SESSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The object that a plan changes. Its text form is `InferencePool default/chat`. The name of a session is
    `pool/session`.
    """

    kind: TargetKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @staticmethod
    def of_instance(pool: PoolKey, name: str) -> "Target":
        return Target(kind=TargetKind.INSTANCE, namespace=pool.namespace, name=name)

    @staticmethod
    def of_role(pool: PoolKey, role: Role) -> "Target":
        return Target(kind=TargetKind.ROLE, namespace=pool.namespace, name=role_object_name(pool.name, role))

    @staticmethod
    def of_engines(pool: PoolKey) -> "Target":
        return Target(kind=TargetKind.ENGINES, namespace=pool.namespace, name=pool.name)

    @staticmethod
    def of_session(pool: PoolKey, session: str) -> "Target":
        return Target(kind=TargetKind.SESSION, namespace=pool.namespace, name=f"{pool.name}/{session}")

    @property
    def pool_and_session(self) -> tuple[PoolKey, str]:
        """The pool and session that a target of kind `Session` names."""
        name, _, session = self.name.partition("/")
        return PoolKey(namespace=self.namespace, name=name), session

    @staticmethod
    def of_pool(pool: PoolKey) -> "Target":
        return Target(kind=TargetKind.POOL, namespace=pool.namespace, name=pool.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObject:
    """An object as the Kubernetes API returns it. `managers` are the field managers that wrote its spec."""

    uid: str
    resource_version: str
    generation: int
    spec: Mapping[str, Any]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    managers: tuple[str, ...]
    status: Mapping[str, Any] = field(default_factory=dict)
    is_deleting: bool = False
    """Whether the object is marked as deleted but has not disappeared yet."""
    changed_by: str | None = None
    """The last writer of the spec: a person if a plan wrote the spec, otherwise a field manager. None = unknown."""
    changed_at: datetime | None = None

    def part(self, kind: TargetKind) -> Mapping[str, Any]:
        """Return the part of the object that plans may change."""
        return self.annotations if kind.is_instance else self.spec


class ObjectReader(Protocol):
    """Reads the objects that plans change. Methods raise ClusterUnavailable, NotFound, Denied."""

    async def read(self, target: Target) -> ClusterObject: ...

    async def revisions(self, pool: PoolKey) -> Sequence[StoredRevision]:
        """Return the pool's ControllerRevisions, in any order; empty for an unknown pool."""


class ClusterGateway(ObjectReader, Protocol):
    """The calls that plans make to the Kubernetes API. Methods raise ClusterUnavailable, NotFound, Denied."""

    async def patch(
        self, target: Target, change: Mapping[str, Any], resource_version: str, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterObject:
        """Merge-patch the part of the object that plans may change, and add `marks` to the object's annotations.

        Raises Conflict (`object-changed`) if the resource version is not the newest, InvalidInput if the API server
        refuses a value.
        """

    async def delete(self, target: Target, uid: str, resource_version: str, *, dry_run: bool) -> None:
        """Delete the object, which may remain for a while (`is_deleting`).

        Raises Conflict (`object-changed`) if an object with another uid has the name, or if the resource version is not
        the newest.
        """

    async def create(self, target: Target, manifest: Mapping[str, Any], marks: Mapping[str, str | None], *, dry_run: bool) -> ClusterObject:
        """Create a pool with the manifest's `spec`, `labels` and `annotations`, and with `marks` as further
        annotations.

        Raises Conflict (`object-changed`) if the pool exists, InvalidInput if the API server refuses a value.
        """


class SessionHomes(Protocol):
    """Sessions as objects that plans change: `spec.instance` is the instance to which the session is bound (missing =
    not bound), and the generation is the version of the session's binding.

    Methods raise NotFound, and Conflict and InvalidInput as `ClusterGateway` does.
    """

    async def read(self, target: Target) -> ClusterObject: ...

    async def patch(
        self, target: Target, change: Mapping[str, Any], resource_version: str, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterObject: ...


class PlannedObjects:
    """Implements `ClusterGateway` for Kubernetes objects and for the bindings of sessions."""

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
