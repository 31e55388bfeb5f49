"""The Kubernetes objects and homes of sessions that plans change, and the calls by which plans read and write them."""

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
    """The kind of object that a plan may change, by its Kubernetes name. `Engine` is an engine of a pool of running
    engines, and `Engines` the list of them. A `Session` is not an object of Kubernetes: its home is changed.
    """

    POOL = "InferencePool"
    ROLE = "InferencePoolRole"
    INSTANCE = "Pod"
    ENGINE = "Engine"
    ENGINES = "Engines"
    SESSION = "Session"

    @property
    def path(self) -> tuple[str, ...]:
        """The part of the object that plans change: its spec, an instance's annotations, the whole
        file, or a session.
        """
        if self in {TargetKind.ENGINES, TargetKind.SESSION}:
            return ()
        return ("metadata", "annotations") if self.is_instance else ("spec",)

    @property
    def is_instance(self) -> bool:
        """Whether it is one instance of a pool."""
        return self in {TargetKind.INSTANCE, TargetKind.ENGINE}

    @property
    def may_be_owned(self) -> bool:
        """Whether a tool or a file may own it."""
        return not self.is_instance and self is not TargetKind.SESSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The object that a plan changes; prints as `InferencePool default/chat`. A session's name is its pool's, a slash,
    and its own.
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
        """The pool and the session named by a target of kind `Session`."""
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
    """Whether the object was deleted but still waits for something before it disappears."""
    changed_by: str | None = None
    """The last writer of the spec: a person if a plan wrote it, else a field manager. None = unknown."""
    changed_at: datetime | None = None

    def part(self, kind: TargetKind) -> Mapping[str, Any]:
        """The part of the object that plans may change."""
        return self.annotations if kind.is_instance else self.spec


class ObjectReader(Protocol):
    """Reads the objects that plans change. Raises ClusterUnavailable, NotFound, Denied."""

    async def read(self, target: Target) -> ClusterObject: ...

    async def revisions(self, pool: PoolKey) -> Sequence[StoredRevision]:
        """The pool's ControllerRevisions, in any order; none for an unknown pool."""


class ClusterGateway(ObjectReader, Protocol):
    """The calls that plans make to the Kubernetes API. Raises ClusterUnavailable, NotFound, Denied."""

    async def patch(
        self, target: Target, change: Mapping[str, Any], resource_version: str, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterObject:
        """Merge-patches the part of the object that plans may change, and its annotations with the marks.

        Raises Conflict (`object-changed`) if the resource version is not the newest, InvalidInput if the API server
        refuses a value.
        """

    async def delete(self, target: Target, uid: str, resource_version: str, *, dry_run: bool) -> None:
        """Deletes the object; it may remain for a while (`is_deleting`).

        Raises Conflict (`object-changed`) if it is another object, or its resource version is not the newest.
        """

    async def create(self, target: Target, manifest: Mapping[str, Any], marks: Mapping[str, str | None], *, dry_run: bool) -> ClusterObject:
        """Creates a pool with the manifest's `spec`, `labels` and `annotations`, and the marks.

        Raises Conflict (`object-changed`) if one exists, InvalidInput if the API server refuses a value.
        """


class SessionHomes(Protocol):
    """Sessions as objects: `spec.instance` is the session's home (left out = none), the generation is the binding's
    version.

    Raises NotFound, and like `ClusterGateway` Conflict and InvalidInput.
    """

    async def read(self, target: Target) -> ClusterObject: ...

    async def patch(
        self, target: Target, change: Mapping[str, Any], resource_version: str, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterObject: ...


class PlannedObjects:
    """Implements `ClusterGateway` for Kubernetes objects and session homes."""

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
