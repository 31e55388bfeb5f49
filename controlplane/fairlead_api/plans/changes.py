"""Kinds of plans. Each kind turns a request into a change, and supplies the objects that find the change's effect
(`plans.questions`).

Each kind is a module of `plans/kinds`. This module has the shared parts of the kinds that change a section of the
pool's spec, a mark on an instance, or a session's binding.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instance_marks import POOL_LABEL
from fairlead.instances import Role
from fairlead.pools import PoolSpec, parse_spec
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound
from fairlead_api.plans.merge_patches import merged, replacing
from fairlead_api.plans.objects import ClusterObject, ObjectReader, Target, TargetKind
from fairlead_api.plans.questions import Question
from fairlead_api.pools.fixed_engines import check_possible, engines_file, is_ended_elsewhere
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest

Spec = Mapping[str, Any]
"""A pool's spec in the form in which a manifest contains it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A merge patch for the part of an object that plans may change, and the object before the change (`found`)."""

    target: Target
    found: ClusterObject
    patch: dict[str, Any]

    @property
    def part(self) -> Mapping[str, Any]:
        """The part of the object that plans may change, before the change."""
        return self.found.part(self.target.kind)

    @property
    def after(self) -> dict[str, Any]:
        """The part of the object that plans may change, after the change."""
        return merged(self.part, self.patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request to change a pool, together with the functions that read the objects that the change concerns. `spec_of`
    takes a revision's number and returns the pool's spec of that revision.
    """

    pool: PoolKey
    request: PlanRequest
    cluster: ObjectReader
    spec_of: Callable[[PoolKey, int], Awaitable[Spec]]
    policies: PolicyCatalogue
    now: datetime

    async def its_pool(self) -> tuple[Target, ClusterObject]:
        """Return the pool. Raises Conflict (engines-are-fixed, engines-are-pods) if this kind of plan is impossible for
        the pool.
        """
        target = Target.of_pool(self.pool)
        found = await self.cluster.read(target)
        check_possible(self.request.kind, found.spec, found.annotations)
        return target, found

    async def its_instance(self) -> tuple[Target, ClusterObject]:
        """Return the instance that the request names. Raises NotFound if it does not belong to the pool."""
        name = self.request.instance or ""
        target = Target.of_instance(self.pool, name)
        found = await self.cluster.read(target)
        if found.labels.get(POOL_LABEL) != self.pool.name:
            raise NotFound("instance", name)
        return target if engines_file(found.annotations) is None else replace(target, kind=TargetKind.ENGINE), found


def _never(_before: Spec, _after: Spec) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of plan. `name.facts` has the facts about the kind that clients know too.

    `change` turns a request into a change; it raises InvalidInput, NotFound and Conflict. `questions` returns objects
    that find the change's effect: one for the whole change, or one for each role whose number of instances changes. It
    raises InvalidInput for a spec that the operator would refuse.

    `is_part` returns whether the difference between two specs of a pool has a part that a plan of this kind could make.
    `is_for_admins` returns whether that part needs an admin, even if the kind's role is lower.
    """

    name: PlanKind
    change: Callable[[Asked], Awaitable[Change]]
    questions: Callable[[Change, PolicyCatalogue], Sequence[Question]]
    is_part: Callable[[Spec, Spec], bool] = _never
    is_for_admins: Callable[[Spec, Spec], bool] = _never

    @property
    def may_need_admin(self) -> bool:
        """Whether some changes of this kind need an admin while other changes of this kind do not."""
        return self.is_for_admins is not _never


def check_shape(request: PlanRequest) -> None:
    """Raises InvalidInput if the request has fields that its kind does not use, or lacks fields that its kind needs."""
    facts = request.kind.facts
    allowed = {*facts.takes, *(["simulation"] if facts.advised else [])}
    for name in ("replicas", "role", "instance", "fields", "revision", "session", "simulation"):
        value = getattr(request, name)
        if value is not None and name not in allowed:
            raise InvalidInput(name, value, f"remove it; a plan of kind {request.kind} takes {' and '.join(facts.takes) or 'nothing'}")
    for name in facts.takes[: facts.needs]:
        value = getattr(request, name)
        if not value and (name != "replicas" or value is None):
            remedy = (
                f"write at least one of {', '.join(facts.fields)}"
                if facts.section
                else facts.remedies.get(name, f"write it; a plan of kind {request.kind} needs it")
            )
            raise InvalidInput(name, value, remedy)


def checked(spec: Spec, patch: Mapping[str, Any], policies: PolicyCatalogue) -> PoolSpec:
    """Return the whole spec after the patch, with its defaults.

    Raises InvalidInput, which names the field of the spec. This includes faults that only the operator would notice,
    because the Kubernetes API does not know policies and their parameters.
    """
    after = parse_spec(merged(spec, patch))
    policies.check(after.routing, [role.name for role in after.roles])
    return after


def replicas_of(spec: PoolSpec, role: Role | None) -> int:
    """Return the desired number of instances of a role; with None, of the pool's only role."""
    found = next((one for one in spec.roles if one.name is role), spec.roles[0])
    if found.name is Role.BOTH:
        return spec.replicas
    return found.least if found.replicas is None else found.replicas


def section_patch(request: PlanRequest, spec: Spec) -> dict[str, Any]:
    """Return the merge patch of the pool's spec that changes the requested fields of the kind's section. Raises
    InvalidInput.
    """
    facts, wanted = request.kind.facts, dict(request.fields or {})
    for name, value in wanted.items():
        if name not in facts.fields:
            place = f"spec.{facts.section}.{name}"
            raise InvalidInput(place, value, f"remove it; a plan of kind {request.kind} changes {', '.join(facts.fields)}")
    parameters = wanted.get("parameters")
    if isinstance(parameters, Mapping):
        wanted["parameters"] = replacing((spec.get(facts.section) or {}).get("parameters") or {}, parameters)
    return {facts.section: wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecQuestion:
    """Finds the effect of a changed spec of the pool."""

    after: PoolSpec


def section_kind(name: PlanKind, question: Callable[[PoolSpec], Question]) -> Kind:
    """Return a kind of plan that changes fields of one section of the pool's spec."""
    facts = name.facts

    async def change(asked: Asked) -> Change:
        target, found = await asked.its_pool()
        return Change(target=target, found=found, patch=section_patch(asked.request, found.spec))

    def differs(before: Spec, after: Spec) -> bool:
        old, new = before.get(facts.section) or {}, after.get(facts.section) or {}
        return any(old.get(one) != new.get(one) for one in facts.fields)

    return Kind(
        name=name,
        change=change,
        questions=lambda change, policies: [question(checked(change.part, change.patch, policies))],
        is_part=differs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkQuestion:
    """Finds the effect of setting or removing a mark on one instance."""

    is_set: bool
    instance: str
    replaced: bool = True
    """Whether a new instance replaces an instance that is drained."""


def mark_kind(name: PlanKind, mark: str, question: Callable[..., Question], *, sets: bool) -> Kind:
    """Return a kind of plan that sets an annotation (`mark`) of an instance's pod, or removes it. `question` is a
    subclass of MarkQuestion.
    """

    async def change(asked: Asked) -> Change:
        target, found = await asked.its_instance()
        return Change(target=target, found=found, patch={mark: "true" if sets else None})

    def questions(change: Change, _policies: PolicyCatalogue) -> Sequence[Question]:
        replaced = change.target.kind is not TargetKind.ENGINE and not is_ended_elsewhere(change.part)
        return [question(is_set=change.patch[mark] is not None, instance=change.target.name, replaced=replaced)]

    return Kind(name=name, change=change, questions=questions)
