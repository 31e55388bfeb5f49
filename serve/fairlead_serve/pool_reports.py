"""The state of a served pool as it is reported to the control API: conditions, instances and annotations. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.conditions.facts import ConditionType, PoolFacts, SpecProblem, SpecRefusal, Trouble
from fairlead.conditions.pool_conditions import merge_conditions, pool_conditions
from fairlead.instance_marks import CORDONED_ANNOTATION, DRAIN_ANNOTATION
from fairlead.instances import InstanceState
from fairlead.pool_states import PoolObservations, PoolState
from fairlead.reconciling.actions import DrainReason
from fairlead.reconciling.observed import DesiredRole
from fairlead.tables import MIGRATIONS_PAUSED
from fairlead_api.infra.object_marks import FIELD_MANAGER, OWNER
from fairlead_api.pools.fixed_engines import ENGINES_FILE
from fairlead_operator.times import format_second
from fairlead_serve.engine_states import Health, WantedEngine
from fairlead_serve.pool_files import PoolFile
from fairlead_serve.state_files import Marks, Memory, StateFiles

FILE_MANAGER = "file"
"""The name reported as the author of the spec if a person changed it last, in the file. After a change by a plan, the
author is FIELD_MANAGER.
"""
_OF_SCALING = frozenset({ConditionType.SCALING_ACTIVE, ConditionType.SCALING_LIMITED})
"""Conditions that do not apply to engines that Fairlead does not create."""


def annotations_of(files: StateFiles, marks: Marks) -> dict[str, str]:
    """Return the pool's annotations: the annotations of the last applied plan, and the path of the pool's file. If the
    user wrote this file, an annotation also names the file as the pool's owner.
    """
    place = str(files.pool_file)
    owner = {} if files.is_ours else {OWNER: f"File {place}"}
    return {**marks.pool, ENGINES_FILE: place, **owner}


def pool_state(
    files: StateFiles,
    file: PoolFile,
    marks: Marks,
    memory: Memory,
    shares: Mapping[str, float],
    *,
    content_digest: str,
    problem: str | None,
) -> PoolState:
    """Return the pool's whole current state."""
    wanted = Counter(one.role for one in wanted_engines(file, marks) if one.drained is None)
    return PoolState(
        uid=memory.uid,
        generation=memory.generation,
        resource_version=str(memory.version),
        spec=file.spec(memory.model, memory.engine_type),
        annotations=annotations_of(files, marks),
        changed_by=FIELD_MANAGER if marks.written == content_digest else FILE_MANAGER,
        problem=problem,
        conditions=memory.conditions,
        desired={role.value: wanted[role] for role in sorted(file.pool.roles)},
        instances=tuple(engine.report(shares.get(engine.name, 1.0)) for engine in memory.engines),
    )


def wanted_engines(file: PoolFile, marks: Marks) -> tuple[WantedEngine, ...]:
    """Return the engines of the file, with the marks that people set on pages."""
    found = []
    for entry in file.pool.engines:
        mark = marks.engines.get(entry.id, {})
        found.append(
            WantedEngine(
                name=entry.id,
                address=entry.address,
                weight=entry.weight,
                role=entry.role,
                cordoned=mark.get(CORDONED_ANNOTATION) == "true",
                drained=DrainReason.REQUESTED if mark.get(DRAIN_ANNOTATION) == "true" else "DrainedByFile" if entry.drain else None,
            )
        )
    return tuple(found)


def conditions(
    memory: Memory,
    file: PoolFile,
    wanted: Sequence[WantedEngine],
    health: Mapping[str, Health],
    observations: PoolObservations | None,
    *,
    problem: str | None,
    api_problem: str | None,
    now: float,
) -> tuple[dict[str, Any], ...]:
    """Return the pool's conditions, by the same rules and with the same messages as for a pool of pods."""
    numbers = Counter(one.role for one in wanted if one.drained is None)
    cordoned = {one.name for one in wanted if one.cordoned}
    roles = tuple(
        DesiredRole(
            role=role,
            replicas=numbers[role],
            min_replicas=0,
            max_replicas=numbers[role],
            spec_hash="",
            drain_timeout_seconds=file.pool.drain.timeout_seconds,
        )
        for role in sorted(file.pool.roles)
    )
    facts = PoolFacts(
        problem=None if problem is None else SpecProblem(reason=SpecRefusal.INVALID_SPEC, message=problem),
        desired=roles,
        instances=tuple(engine.observed(health.get(engine.name, Health(ready=True)), engine.name in cordoned) for engine in memory.engines),
        observations=observations,
        api_problem=api_problem,
        slo_percentile=file.pool.slo.percentile,
        task_targets=file.pool.slo.task,
        troubles=tuple(
            Trouble(instance=engine.name, reason=found.reason, message=found.words)
            for engine in memory.engines
            if engine.state in {InstanceState.STARTING, InstanceState.LOST} and (found := health.get(engine.name)) and found.words
        ),
        apply_problem=None,
        migrations_paused=file.pool.routing.migrations == MIGRATIONS_PAUSED,
    )
    told = [one for one in pool_conditions(facts) if one.type not in _OF_SCALING]
    return merge_conditions(memory.conditions, told, memory.generation, format_second(now))
