"""A Kubernetes API for plans, in memory: generations, resource versions, dry runs, refusals, and
the accidents of real ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.services.errors import ClusterUnavailable, Conflict, NotFound
from fairlead_api.services.plans.plans import ClusterPool


@dataclass(kw_only=True)
class FakeClusterGateway:
    """Implements ClusterGateway. `status_moves` patches are answered 409 because a status update came between;
    `lose_answers` makes the next real patch happen without its answer arriving.
    """

    pools: dict[PoolKey, ClusterPool] = field(default_factory=dict)
    most: int = 64
    status_moves: int = 0
    lose_answers: int = 0
    writes: list[tuple[int, Mapping[str, str | None]]] = field(default_factory=list)
    dry_runs: int = 0

    def add(self, pool: PoolKey, replicas: int, **changes: Any) -> None:
        values: dict[str, Any] = {"labels": {}, "annotations": {}, "managers": ("kubectl-client-side-apply",), "uid": "uid-1", **changes}
        self.pools[pool] = ClusterPool(resource_version="10", generation=1, spec={"model": "tiny", "replicas": replicas}, **values)

    def edit(self, pool: PoolKey, replicas: int) -> None:
        """Somebody else changes the spec."""
        self.pools[pool] = _next(self.pools[pool], replicas, {})

    async def read(self, pool: PoolKey) -> ClusterPool:
        if pool not in self.pools:
            raise NotFound("InferencePool", str(pool))
        return self.pools[pool]

    async def scale(
        self, pool: PoolKey, replicas: int, resource_version: str, annotations: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterPool:
        found = await self.read(pool)
        if not dry_run and self.status_moves:
            self.status_moves -= 1
            found = self.pools[pool] = replace(found, resource_version=str(int(found.resource_version) + 1))
        if resource_version != found.resource_version:
            raise Conflict("object-changed", "the object has been modified")
        if replicas > self.most:
            raise InvalidInput("replicas", replicas, f"replicas must not be greater than roles[].maxReplicas ({self.most})")
        changed = _next(found, replicas, annotations)
        if dry_run:
            self.dry_runs += 1
            return changed
        self.pools[pool] = changed
        self.writes.append((replicas, annotations))
        if self.lose_answers:
            self.lose_answers -= 1
            raise ClusterUnavailable("the Kubernetes API does not answer: connection reset")
        return changed


def _next(found: ClusterPool, replicas: int, annotations: Mapping[str, str | None]) -> ClusterPool:
    marks = {name: value for name, value in {**found.annotations, **annotations}.items() if value is not None}
    return replace(
        found,
        spec={**found.spec, "replicas": replicas},
        annotations=marks,
        generation=found.generation + 1,
        resource_version=str(int(found.resource_version) + 1),
    )
