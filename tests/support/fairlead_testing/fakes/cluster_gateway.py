"""A Kubernetes API for plans, in memory: generations, resource versions, dry runs and refusals, and the failures of
real APIs.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import ClusterUnavailable, Conflict, Denied, NotFound
from fairlead_api.plans.merge_patches import merged
from fairlead_api.plans.objects import ClusterObject, Target, TargetKind
from fairlead_api.plans.rollouts import StoredRevision

SECTIONS = {
    "routing": {"policy": "dualmap", "parameters": {}, "anchorsPerInstance": 160, "prefillsInFlight": 1, "migrations": "Enabled"},
    "slo": {"ttft": "5s", "tpot": "100ms", "percentile": 90},
    "earlyRejection": {"mode": "Disabled", "headroom": 1},
    "scaling": {"mode": "Fixed", "targetLoad": 0.8},
    "ratio": {"mode": "Fixed", "method": "RoleFlip", "band": 0.3, "cooldown": "120s"},
    "rollout": {"paused": False, "maxSurge": 1, "maxUnavailable": 0, "progressDeadline": "10m"},
}
"""The defaults that a Kubernetes API would have filled in."""


@dataclass(kw_only=True)
class FakeClusterGateway:
    """Implements ClusterGateway.

    The next `status_moves` patches get a 409, as if a status update had come between. The next `lose_answers` real
    patches take effect, but their answers are lost.
    """

    objects: dict[Target, ClusterObject] = field(default_factory=dict)
    most: int = 64
    status_moves: int = 0
    lose_answers: int = 0
    history: list[StoredRevision] = field(default_factory=list)
    """The ControllerRevisions of every pool."""
    writes: list[tuple[Mapping[str, Any], Mapping[str, str | None]]] = field(default_factory=list)
    dry_runs: int = 0
    lost_writes: int = 0
    """The number of next real patches that get an error and have no effect."""
    forbids: bool = False
    """Whether real patches and deletions are refused because RBAC forbids them. Dry runs pass, as when a role was just
    changed.
    """
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """An event that is set when a real patch arrives."""
    answers_late: asyncio.Event | None = None
    """The event for which a real patch waits before it takes effect; None if patches do not wait."""
    keeps_deleted: bool = False
    """Whether a deleted object stays for a while, like an object with a finalizer."""
    _made: int = 0

    def add(self, pool: PoolKey, replicas: int, **changes: Any) -> None:
        values: dict[str, Any] = {"labels": {}, "annotations": {}, "managers": ("kubectl-client-side-apply",), "uid": "uid-1", **changes}
        spec = {"model": "tiny", "replicas": replicas, **SECTIONS}
        self.objects[Target.of_pool(pool)] = ClusterObject(resource_version="10", generation=1, spec=spec, **values)

    def add_role(self, pool: PoolKey, role: Role, replicas: int) -> None:
        """Add the InferencePoolRole object of a role; the pool's spec has no number for such a role."""
        spec = {"pool": pool.name, "role": role.value, "replicas": replicas}
        made = ClusterObject(uid=f"uid-{role}", resource_version="10", generation=1, spec=spec, labels={}, annotations={}, managers=())
        self.objects[Target.of_role(pool, role)] = made

    def add_instance(self, pool: PoolKey, name: str) -> None:
        labels = {"fairlead.dev/pool": pool.name}
        made = ClusterObject(uid=f"uid-{name}", resource_version="10", generation=1, spec={}, labels=labels, annotations={}, managers=())
        self.objects[Target.of_instance(pool, name)] = made

    def edit(self, pool: PoolKey, **spec: Any) -> None:
        """Change the pool's spec, as a person or a controller outside Fairlead would."""
        target = Target.of_pool(pool)
        self.objects[target] = _next(target, self.objects[target], spec, {})

    def wrote(self, pool: PoolKey, manager: str) -> None:
        """Make `manager` the last writer of the pool."""
        target = Target.of_pool(pool)
        self.objects[target] = replace(self.objects[target], changed_by=manager)

    def spec(self, pool: PoolKey) -> Mapping[str, Any]:
        return self.objects[Target.of_pool(pool)].spec

    async def read(self, target: Target) -> ClusterObject:
        if target not in self.objects:
            raise NotFound(target.kind.value, f"{target.namespace}/{target.name}")
        return self.objects[target]

    async def ask(self, method: str, path: str, *, query: Sequence[tuple[str, str]] = ()) -> Mapping[str, Any] | None:
        """Return the pod of an instance, or an empty list of events; None if there is no such pod."""
        namespace, kind, name = _place(path)
        if kind == "events":
            return {"items": []}
        found = self.objects.get(Target(kind=TargetKind.INSTANCE, namespace=namespace, name=name))
        if found is None:
            return None
        return {"metadata": {"name": name, "labels": found.labels}, "spec": {"containers": [{"name": "engine"}]}}

    async def ask_text(self, path: str, query: Sequence[tuple[str, str]]) -> str | None:
        """Return the log of a pod."""
        return "started\nready\n"

    async def revisions(self, pool: PoolKey) -> Sequence[StoredRevision]:
        return self.history if Target.of_pool(pool) in self.objects else []

    async def patch(
        self, target: Target, change: Mapping[str, Any], resource_version: str, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterObject:
        found = await self.read(target)
        if not dry_run and self.status_moves:
            self.status_moves -= 1
            found = self.objects[target] = replace(found, resource_version=str(int(found.resource_version) + 1))
        if resource_version != found.resource_version:
            raise Conflict("object-changed", "the object has been modified")
        changed = _next(target, found, change, marks)
        if changed.spec.get("replicas", 1) > self.most:
            raise InvalidInput("spec", None, f"replicas must not be greater than roles[].maxReplicas ({self.most})")
        if dry_run:
            self.dry_runs += 1
            return changed
        self._check_rights()
        if self.lost_writes:
            self.lost_writes -= 1
            raise ClusterUnavailable("the Kubernetes API does not answer: connection refused")
        self.asked.set()
        if self.answers_late is not None:
            await self.answers_late.wait()
        self.objects[target] = changed
        self.writes.append((change, marks))
        self._lose()
        return changed

    async def delete(self, target: Target, uid: str, resource_version: str, *, dry_run: bool) -> None:
        found = await self.read(target)
        if (uid, resource_version) != (found.uid, found.resource_version):
            raise Conflict("object-changed", "the object has been modified")
        if dry_run:
            self.dry_runs += 1
            return
        self._check_rights()
        if self.keeps_deleted:
            self.objects[target] = replace(found, is_deleting=True)
        else:
            del self.objects[target]
        self.writes.append(({}, {}))
        self._lose()

    async def create(self, target: Target, manifest: Mapping[str, Any], marks: Mapping[str, str | None], *, dry_run: bool) -> ClusterObject:
        if target in self.objects:
            raise Conflict("object-changed", "the object already exists")
        annotations = merged(manifest["annotations"], marks)
        self._made += not dry_run
        made = ClusterObject(
            uid=f"uid-made-{self._made}",
            resource_version="1",
            generation=1,
            spec=manifest["spec"],
            labels=manifest["labels"],
            annotations=annotations,
            managers=("fairlead-api",),
        )
        if dry_run:
            self.dry_runs += 1
            return made
        self.objects[target] = made
        self.writes.append((manifest, marks))
        self._lose()
        return made

    def _check_rights(self) -> None:
        if self.forbids:
            raise Denied("the Kubernetes API refuses: pools of default are not for fairlead to change")

    def _lose(self) -> None:
        if self.lose_answers:
            self.lose_answers -= 1
            raise ClusterUnavailable("the Kubernetes API does not answer: connection reset")


def _next(target: Target, found: ClusterObject, change: Mapping[str, Any], marks: Mapping[str, str | None]) -> ClusterObject:
    """Return the object after a patch. As in a real API, only a change of the spec makes a new generation."""
    newer = str(int(found.resource_version) + 1)
    if target.kind is TargetKind.INSTANCE:
        return replace(found, annotations=merged(found.annotations, {**marks, **change}), resource_version=newer)
    return replace(
        found,
        spec=merged(found.spec, change),
        annotations=merged(found.annotations, marks),
        generation=found.generation + 1,
        resource_version=newer,
    )


def _place(path: str) -> tuple[str, str, str]:
    """Return namespace, kind and name of the path `/api/v1/namespaces/N/KIND/NAME`; the name is empty in a list's
    path.
    """
    namespace, kind, *name = path.removeprefix("/api/v1/namespaces/").split("/")
    return unquote(namespace), kind, unquote("/".join(name))
