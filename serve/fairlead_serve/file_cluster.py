"""Plays the role of the Kubernetes API for plans, with files in place of objects and with the same preconditions.

A change of the pool is written only into Fairlead's own pool file. A pool file that the user gave is never written; the
pool then counts as owned by that file. Marks on engines, such as a requested drain, are always stored in a separate
file.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from fairlead.errors import InvalidInput
from fairlead.instance_marks import POOL_LABEL
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.plans.kinds.engines import ENGINES, engine_name
from fairlead_api.plans.merge_patches import merged
from fairlead_api.plans.objects import ClusterObject, Target, TargetKind
from fairlead_api.plans.rollouts import StoredRevision
from fairlead_api.pools.fixed_engines import ENGINES_FILE
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_serve.pool_files import NAMESPACE, SECTIONS, PoolFile, digest, read_pool_file
from fairlead_serve.pool_reports import FILE_MANAGER, annotations_of
from fairlead_serve.state_files import Marks, Memory, StateFiles

WRITABLE = SECTIONS | {"engine"}


class FileCluster:
    """Implements `fairlead_api.app.Cluster` with the files of one state directory. A query for pods finds nothing,
    because engines are not pods.
    """

    def __init__(self, files: StateFiles, policies: PolicyCatalogue) -> None:
        self._files = files
        self._policies = policies

    async def read(self, target: Target) -> ClusterObject:
        return self._read(target)

    async def revisions(self, pool: PoolKey) -> Sequence[StoredRevision]:
        return ()

    async def patch(
        self, target: Target, change: Mapping[str, Any], resource_version: str, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterObject:
        with self._files.writing():
            found = self._read(target)
            if found.resource_version != resource_version:
                raise Conflict("object-changed", f"{target} was changed meanwhile; make a new plan")
            if target.kind.is_instance:
                return self._mark(target, change, marks, dry_run)
            if target.kind is TargetKind.ENGINES:
                return self._list(target, change, marks, dry_run)
            return self._write(target, change, marks, dry_run)

    async def delete(self, target: Target, uid: str, resource_version: str, *, dry_run: bool) -> None:
        raise Conflict("engines-are-fixed", f"{target} exists as long as `fairlead serve` runs; stop that process")

    async def create(self, target: Target, manifest: Mapping[str, Any], marks: Mapping[str, str | None], *, dry_run: bool) -> ClusterObject:
        raise Conflict("engines-are-fixed", f"{target} cannot be created: {PlanKind.CREATE.facts.file_refusal}")

    async def ask(self, method: str, path: str, *, query: Any = ()) -> None:
        """Return None: nothing is found, because engines are not pods."""

    async def ask_text(self, path: str, query: Any) -> None:
        """Return None: nothing is found, because engines are not pods."""

    def _list(self, target: Target, change: Mapping[str, Any], marks: Mapping[str, str | None], dry_run: bool) -> ClusterObject:
        memory, file = self._known(target)
        entries = merged(_engines(file), change[ENGINES])
        listed = [{**({} if name == engine_name(str(entry["url"])) else {"name": name}), **entry} for name, entry in entries.items()]
        return self._store(memory, read_pool_file({**file.document, ENGINES: listed}, self._policies), marks, dry_run, self._listed)

    def _write(self, target: Target, change: Mapping[str, Any], marks: Mapping[str, str | None], dry_run: bool) -> ClusterObject:
        memory, file = self._known(target)
        after = read_pool_file(merged(file.document, {name: value for name, value in change.items() if name in WRITABLE}), self._policies)
        if after.pool.engine.type not in {None, memory.engine_type}:
            raise InvalidInput("engine.type", after.pool.engine.type, f"keep {memory.engine_type}; a pool's engine cannot be changed")
        return self._store(memory, after, marks, dry_run, self._pool)

    def _store(
        self, memory: Memory, after: PoolFile, marks: Mapping[str, str | None], dry_run: bool, shown: Callable[..., ClusterObject]
    ) -> ClusterObject:
        """Write the pool's new content into its file, except in a dry run. Return the object that `shown` makes from
        the new content.
        """
        if dry_run:
            return shown(memory, after, self._files.read_marks(), "")
        content = self._files.write_pool(after.document)
        known = self._files.read_marks()
        told = replace(known, pool=_without_nulls({**known.pool, **marks}), written=digest(content))
        self._files.write_marks(told)
        return shown(memory, after, told, content)

    def _mark(self, target: Target, change: Mapping[str, Any], marks: Mapping[str, str | None], dry_run: bool) -> ClusterObject:
        known = self._files.read_marks()
        after = _without_nulls({**known.engines.get(target.name, {}), **change, **marks})
        told = replace(known, engines={name: one for name, one in {**known.engines, target.name: after}.items() if one})
        if not dry_run:
            self._files.write_marks(told)
        return self._engine(target, told)

    def _read(self, target: Target) -> ClusterObject:
        """Return the target (pool, list of engines, or engine) in the form of a Kubernetes object. Raises NotFound."""
        memory, file = self._known(target)
        if target.kind is TargetKind.POOL:
            return self._pool(memory, file, self._files.read_marks(), self._files.content())
        if target.kind is TargetKind.ENGINES:
            return self._listed(memory, file, self._files.read_marks(), self._files.content())
        return self._engine(target, self._files.read_marks())

    def _known(self, target: Target) -> tuple[Memory, PoolFile]:
        """Return the stored memory of the source (the process that reports the pool), and the pool's file. Raises
        NotFound if the target does not exist.
        """
        memory = self._files.read_memory()
        file = self._files.read_pool(self._policies)
        missing = NotFound(target.kind.value, f"{target.namespace}/{target.name}")
        if memory is None or target.namespace != NAMESPACE:
            raise missing
        names = {entry.id for entry in file.pool.engines} if target.kind.is_instance else {memory.name}
        if target.kind is TargetKind.ROLE or target.name not in names:
            raise missing
        return memory, file

    def _pool(self, memory: Memory, file: PoolFile, marks: Marks, content: str) -> ClusterObject:
        spec = file.spec(memory.model, memory.engine_type)
        return ClusterObject(
            uid=memory.uid,
            resource_version=digest(content),
            generation=int(file.spec_digest(memory.model, memory.engine_type)[:12], 16),
            spec=spec,
            labels={},
            annotations=annotations_of(self._files, marks),
            managers=(FILE_MANAGER,),
        )

    def _listed(self, memory: Memory, file: PoolFile, marks: Marks, content: str) -> ClusterObject:
        """Return the list of engines in the form of a Kubernetes object. Its generation changes only with this list, so
        that other changes of the file do not invalidate a plan for the list.
        """
        engines = _engines(file)
        generation = int(digest(yaml.safe_dump(engines))[:12], 16)
        return replace(self._pool(memory, file, marks, content), spec={ENGINES: engines}, generation=generation)

    def _engine(self, target: Target, marks: Marks) -> ClusterObject:
        memory, file = self._known(target)
        entry = next(entry for entry in file.pool.engines if entry.id == target.name)
        own = marks.engines.get(target.name, {})
        return ClusterObject(
            uid=uuid.uuid5(uuid.UUID(memory.uid), f"{entry.id} {entry.address}").hex,
            resource_version=digest(repr(sorted(own.items()))),
            generation=0,
            spec={},
            labels={POOL_LABEL: memory.name},
            annotations={**own, ENGINES_FILE: str(self._files.pool_file)},
            managers=(),
        )


def _engines(file: PoolFile) -> dict[str, Any]:
    """Return the engines of a file in the form that plans use."""
    written = zip(file.pool.engines, file.document[ENGINES], strict=True)
    return {entry.id: {**{key: value for key, value in raw.items() if key != "name"}, "url": entry.url} for entry, raw in written}


def _without_nulls(annotations: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in annotations.items() if value is not None}
