"""The effect of a change, by its kind: this module reads the evidence, its neighbours compute the effect from it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instance_marks import CORDONED_ANNOTATION, WEIGHT_ANNOTATION
from fairlead.instances import Role, weight_of
from fairlead.pools import PoolSpec, TableFacts, parse_spec
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound
from fairlead_api.plans.capacity_effects import (
    Rollback,
    ratio_effect,
    rollback_effect,
    rollback_of,
    rollout_effect,
    scale_effect,
    scaling_effect,
)
from fairlead_api.plans.changes import checked, replicas_of
from fairlead_api.plans.deletions import deletion_effect
from fairlead_api.plans.engine_changes import ENGINES, engines_effect
from fairlead_api.plans.evidence import EvidenceReader, PoolUse, Replay
from fairlead_api.plans.instance_effects import cordon_effect, drain_effect, session_effect, uncordon_effect, undrain_effect
from fairlead_api.plans.merge_patches import merged
from fairlead_api.plans.objects import Target, TargetKind
from fairlead_api.plans.reverting import joined, kinds_in
from fairlead_api.plans.routing_effects import (
    limit_seconds,
    migrations_effect,
    policy_effect,
    rejection_effect,
    ring_effect,
    slo_effect,
    weight_effect,
)
from fairlead_api.plans.schedule_changes import schedule_effect
from fairlead_api.pools.fixed_engines import is_ended_elsewhere
from fairlead_client.resources.plans import PlanEffect, PlanKind

_NO_STATUS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecQuestion:
    """Asks for the effect of another spec of the pool."""

    kind: PlanKind
    after: PoolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleQuestion:
    """What would another number of instances of a role do?"""

    role: Role
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceQuestion:
    """What would setting or removing a mark on one instance do?"""

    mark: str
    is_set: bool
    instance: str
    replaced: bool = True
    """Whether another instance takes the place of one that is drained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackQuestion:
    """Asks what other templates would replace."""

    rollback: Rollback


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesQuestion:
    """What would adding engines (an entry by name) or removing them (None) do?"""

    change: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightQuestion:
    """What would another weight of one instance do? `stays`: it is written where it outlives the instance."""

    instance: str
    before: float
    after: float
    stays: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertQuestion:
    """What would a former revision of the whole spec do? The questions of its parts."""

    parts: tuple["Question", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuestion:
    """What would moving a session to another home, or releasing it, do?"""

    source: str | None
    target: str | None
    context_tokens: int


Question = (
    SpecQuestion | ScaleQuestion | InstanceQuestion | RollbackQuestion | EnginesQuestion | WeightQuestion | SessionQuestion | RevertQuestion
)


def question_of(
    kind: PlanKind,
    target: Target,
    part: Mapping[str, Any],
    change: Mapping[str, Any],
    policies: PolicyCatalogue,
    status: Mapping[str, Any] = _NO_STATUS,
) -> Question:
    """The question that a change asks of an object with this status.

    Raises InvalidInput for a spec that the operator would refuse.
    """
    if target.kind.is_instance:
        [(mark, value)] = change.items()
        if mark == WEIGHT_ANNOTATION:
            return WeightQuestion(instance=target.name, before=weight_of(part.get(WEIGHT_ANNOTATION)), after=weight_of(value))
        replaced = target.kind is not TargetKind.ENGINE and not is_ended_elsewhere(part)
        return InstanceQuestion(mark=mark, is_set=value is not None, instance=target.name, replaced=replaced)
    if target.kind is TargetKind.SESSION:
        return SessionQuestion(source=part.get("instance"), target=change["instance"], context_tokens=int(status["contextTokens"]))
    if kind is PlanKind.WEIGHT:
        [(name, entry)] = change[ENGINES].items()
        return WeightQuestion(instance=name, before=part[ENGINES][name].get("weight") or 1.0, after=entry["weight"] or 1.0, stays=True)
    if target.kind is TargetKind.ENGINES:
        return EnginesQuestion(change=change[ENGINES])
    if target.kind is TargetKind.ROLE:
        return ScaleQuestion(role=Role(part["role"]), before=int(part["replicas"]), after=int(change["replicas"]))
    after = checked(part, change, policies)
    if kind is PlanKind.REVERT:
        kinds = list(kinds_in(part, merged(part, change)))
        return RevertQuestion(parts=tuple(one for kind in kinds for one in _of_spec(kind, target, part, change, after, status)))
    return _of_spec(kind, target, part, change, after, status)[0]


def _of_spec(
    kind: PlanKind, target: Target, part: Mapping[str, Any], change: Mapping[str, Any], after: PoolSpec, status: Mapping[str, Any]
) -> list[Question]:
    """What a kind of change of a pool's spec asks; for numbers, one question for each role whose number changes."""
    if kind is PlanKind.ROLLBACK:
        return [RollbackQuestion(rollback=rollback_of(target.name, part, merged(part, change), status))]
    if kind is not PlanKind.SCALE:
        return [SpecQuestion(kind=kind, after=after)]
    try:
        before = parse_spec(part)
    except InvalidInput:  # the present spec is refused, and this repairs it
        before = after
    names = [role.name for role in after.roles]
    numbers = {name: (replicas_of(before, name), replicas_of(after, name)) for name in names}
    other = [name for name in names if numbers[name][0] != numbers[name][1]] or names[:1]
    return [ScaleQuestion(role=name, before=numbers[name][0], after=numbers[name][1]) for name in other]


class Effects:
    """Estimates effects from the evidence and the policies that this process knows."""

    def __init__(self, evidence: EvidenceReader, policies: PolicyCatalogue) -> None:
        self._evidence = evidence
        self._policies = policies

    async def of(self, question: Question, pool: PoolKey, now: datetime) -> PlanEffect:
        """Raises NotFound for a pool whose spec was never usable, and for an instance that is not there."""
        if isinstance(question, RevertQuestion):
            return joined([await self.of(part, pool, now) for part in question.parts])
        use = await self._evidence.use(pool, now)
        if isinstance(question, InstanceQuestion):
            return self._marked(use, question)
        if isinstance(question, SessionQuestion):
            return session_effect(use, question.source, question.target, question.context_tokens)
        if isinstance(question, WeightQuestion):
            return weight_effect(use, question.instance, question.before, question.after, self._policies, stays=question.stays)
        if isinstance(question, EnginesQuestion):
            return engines_effect(use, question.change, self._policies)
        if isinstance(question, RollbackQuestion):
            return rollback_effect(use, question.rollback)
        if isinstance(question, ScaleQuestion):
            return scale_effect(use, question.role, question.before, question.after)
        facts = question.after.facts()
        match question.kind:
            case PlanKind.POLICY:
                return policy_effect(use, facts, self._policies)
            case PlanKind.RING:
                return ring_effect(use, facts, self._policies)
            case PlanKind.MIGRATIONS:
                return migrations_effect(use, facts, self._policies)
            case PlanKind.SLO:
                latencies = await self._evidence.latencies(pool, now)
                return slo_effect(use, facts.slo, latencies, await self._refused(pool, facts, now))
            case PlanKind.SCALING:
                return scaling_effect(question.after)
            case PlanKind.RATIO:
                return ratio_effect(question.after)
            case PlanKind.ROLLOUT:
                return rollout_effect(use, question.after.rollout)
            case PlanKind.SCHEDULE:
                return await asyncio.to_thread(schedule_effect, question.after, now)  # a week has up to 10,080 starts of each
        return rejection_effect(facts.early_rejection, await self._refused(pool, facts, now))

    async def of_deletion(self, pool: PoolKey, spec: Mapping[str, Any], now: datetime) -> PlanEffect:
        """The effect of deleting the pool, even if its spec was never usable."""
        try:
            return deletion_effect(await self._evidence.use(pool, now), spec)
        except NotFound:
            return deletion_effect(None, spec)

    def _marked(self, use: PoolUse, question: InstanceQuestion) -> PlanEffect:
        if question.mark == CORDONED_ANNOTATION:
            return (cordon_effect if question.is_set else uncordon_effect)(use, question.instance, self._policies)
        return (drain_effect if question.is_set else undrain_effect)(use, question.instance, replaced=question.replaced)

    async def _refused(self, pool: PoolKey, facts: TableFacts, now: datetime) -> Replay | None:
        limit = limit_seconds(facts)
        return None if limit is None else await self._evidence.over_limit(pool, limit, now)
