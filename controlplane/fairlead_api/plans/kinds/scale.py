"""Changes the number of instances of a role."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instances import ACCEPTING, MAX_REPLICAS, NOT_COUNTED, InstanceState, Role
from fairlead.pools import parse_spec
from fairlead.routing.contracts.catalogues import PolicyCatalogue, RingUse
from fairlead.routing.knowledge.rings import anchor_count
from fairlead.scaling.specs import ScalingMode
from fairlead_api.plans.changes import Asked, Change, Kind, Spec, checked, replicas_of
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_api.plans.hand_overs import forecast
from fairlead_api.plans.objects import Target, TargetKind
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Question, Tried
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import PlanEffect
from fairlead_client.simulation_jobs import PoolChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleQuestion:
    """Finds the effect of a changed number of instances of a role."""

    role: Role
    before: int
    after: int

    async def effect(self, known: Known) -> PlanEffect:
        return scale_effect(known.use, self.role, self.before, self.after, known.policies)

    def tried(self, present: Present) -> Tried:
        if not self.after:
            raise CannotSimulate("no instance is left to serve anything")
        if not self.before:
            raise CannotSimulate("no instance serves now, so there is nothing to compare with")
        if present.spec is not None and present.parsed().scaling.mode is ScalingMode.SLO:
            raise CannotSimulate("the pool scales automatically (scaling.mode SLO), so the planned number would not stay")
        planned = PoolChange(role=self.role, replicas=self.after, startup_seconds=present.startup_seconds)
        return Tried(as_planned=planned, instances={self.role: self.before})


async def _change(asked: Asked) -> Change:
    """Return the change of the number of instances: a change of the role's InferencePoolRole if that object declares
    the number, otherwise a change of the pool.
    """
    target, found = await asked.its_pool()
    change = Change(target=target, found=found, patch=replicas_patch(asked.request, found.spec))
    role = scaled_by_its_object(asked.request, found.spec)
    if role is None:
        return change
    checked(found.spec, change.patch, asked.policies)
    target = Target.of_role(asked.pool, role)
    return Change(target=target, found=await asked.cluster.read(target), patch={"replicas": asked.request.replicas})


def scale_questions(change: Change, policies: PolicyCatalogue) -> Sequence[Question]:
    """Return a question for each role whose number of instances changes, or for the first role if no number changes."""
    part = change.part
    if change.target.kind is TargetKind.ROLE:
        return [ScaleQuestion(role=Role(part["role"]), before=int(part["replicas"]), after=int(change.patch["replicas"]))]
    after = checked(part, change.patch, policies)
    try:
        before = parse_spec(part)
    except InvalidInput:  # the present spec is refused, and this repairs it
        before = after
    names = [role.name for role in after.roles]
    numbers = {name: (replicas_of(before, name), replicas_of(after, name)) for name in names}
    other = [name for name in names if numbers[name][0] != numbers[name][1]] or names[:1]
    return [ScaleQuestion(role=name, before=numbers[name][0], after=numbers[name][1]) for name in other]


def replicas_patch(request: PlanRequest, spec: Spec) -> dict[str, Any]:
    """Return the merge patch of the pool's spec that sets the requested number of instances. Raises InvalidInput."""
    if request.replicas is None or not 0 <= request.replicas <= MAX_REPLICAS:
        raise InvalidInput("replicas", request.replicas, f"write 0 to {MAX_REPLICAS}")
    roles = spec.get("roles") or [{"name": Role.BOTH.value}]
    place = asked_role(request, roles)
    if roles[place].get("name") == Role.BOTH:
        return {"replicas": request.replicas}
    if roles[place].get("replicas") == request.replicas:
        raise InvalidInput(f"spec.roles[{place}].replicas", request.replicas, "it already has this value; write another")
    return {"roles": [{**one, "replicas": request.replicas} if number == place else one for number, one in enumerate(roles)]}


def asked_role(request: PlanRequest, roles: Sequence[Mapping[str, Any]]) -> int:
    """Return the index of the role that a request names, or of the role `both` if the request names none. Raises
    InvalidInput.
    """
    names = [role.get("name") for role in roles]
    role = Role.BOTH if request.role is None and Role.BOTH in names else request.role
    if role not in names:
        raise InvalidInput("role", request.role, f"write {' or '.join(map(str, names))}")
    return names.index(role)


def scaled_by_its_object(request: PlanRequest, spec: Mapping[str, Any]) -> Role | None:
    """Return the requested role if an InferencePoolRole declares the number of its instances; None if the pool declares
    the number.
    """
    for role in spec.get("roles") or []:
        if role.get("name") == request.role and role.get("replicas") is None:
            return None if request.role is Role.BOTH else request.role
    return None


def _numbers(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("name", "replicas", "minReplicas", "maxReplicas")
    return spec.get("replicas"), [[role.get(name) for name in names] for role in spec.get("roles") or ()]


def scale_effect(pool: PoolUse, role: Role, before: int, after: int, policies: PolicyCatalogue) -> PlanEffect:
    """Return the effect of scaling a role from `before` to `after` instances.

    The instances to remove are chosen in the operator's order: first instances that do not serve yet, then the
    instances with the smallest product of bound sessions and cached tokens. Instances that are added take keys, and
    sessions follow them if the policy places every request by the ring.
    """
    present = [use for use in pool.instances if use.role is role and use.state not in NOT_COUNTED]
    ranked = sorted(present, key=_worth)
    victims = ranked[: max(0, min(len(ranked), before - after))]
    affected = sum(use.bound_sessions for use in victims)
    homeless = after == 0 or len(victims) == len(present)
    keys, following, cached = _taken_by_new(pool, role, max(0, after - before), policies)
    return PlanEffect(
        instances_added=max(0, after - before),
        instances_removed=max(0, before - after),
        victims=[use.id for use in victims],
        key_share_moved=keys,
        sessions_moved=following or (0 if homeless else affected),
        sessions_lost=affected if homeless else 0,
        cache_tokens_lost=cached + sum(use.cache_tokens for use in victims),
        requests_in_flight=sum(use.in_flight for use in victims),
        notes=_not_ready(pool) if after > before else [],
        warnings=[*_warnings(pool, role, before, after, affected), *_following(following, pool.sessions)],
        heavy=(after == 0 and before > 0) or pool.is_heavy(affected),
        hand_over=forecast(pool, victims, replaced=False),
    )


def _taken_by_new(pool: PoolUse, role: Role, added: int, policies: PolicyCatalogue) -> tuple[float, int, int]:
    """Return the share of the keys that `added` new instances of the role take, and the sessions and cached tokens that
    follow these keys. All three are zero unless the policy places every request by the ring.

    The positions of new instances on the ring are unknown, because positions are computed from names and new instances
    have no names yet. Therefore the share of the keys is estimated as the share of the anchors.
    """
    if not added or role is Role.DECODE or policies.entry(pool.facts.routing.policy).ring is not RingUse.EVERY_REQUEST:
        return 0.0, 0, 0
    anchors = pool.facts.anchors_per_instance
    held = {use.id: anchor_count(use.entry(anchors)) for use in pool.instances}
    empty = InstanceUse(id="new", role=role, state=InstanceState.SERVING, bound_sessions=0, cache_tokens=0, in_flight=0)
    new = added * anchor_count(empty.entry(anchors))
    share = new / (new + sum(held.values())) if any(held.values()) else 0.0
    owners = [use for use in pool.instances if held[use.id]]
    return share, round(share * sum(use.bound_sessions for use in owners)), round(share * sum(use.cache_tokens for use in owners))


def _following(sessions: int, of: int) -> list[str]:
    return [f"About {sessions:,} of {of:,} sessions follow their keys to new instances, and lose their cache."] if sessions else []


def _worth(use: InstanceUse) -> tuple[bool, int, int, str]:
    return use.state in ACCEPTING, use.bound_sessions * use.cache_tokens, use.in_flight, use.id


def _is_too_much(pool: PoolUse, role: Role, instances: int) -> bool:
    """Return whether prompt tokens arrive faster than this number of instances of the role can compute them at the
    measured speed.
    """
    if role is Role.DECODE or instances == 0 or pool.miss_tokens_per_second is None or pool.prefill_tokens_per_second is None:
        return False
    return pool.miss_tokens_per_second >= instances * pool.prefill_tokens_per_second


def _warnings(pool: PoolUse, role: Role, before: int, after: int, affected: int) -> list[str]:
    found, total = [], pool.sessions
    if after == 0 and before > 0:
        found.append("Every request will be refused until the pool is scaled up again.")
        if affected:
            found.append(f"{affected:,} of {total:,} sessions are lost with their cache: no instance is left to take them.")
    elif _is_too_much(pool, role, after):
        found.append(
            "Prompt tokens arrive faster than this number of instances computes them at the measured speed; the TTFT target would be missed."
        )
    if affected and after > 0:
        found.append(f"{affected:,} of {total:,} sessions move to other instances and lose their cache there.")
    return found


def _not_ready(pool: PoolUse) -> list[str]:
    waiting = sum(use.state in {InstanceState.PENDING, InstanceState.STARTING} for use in pool.instances)
    return [f"{waiting} {'instance is' if waiting == 1 else 'instances are'} not ready yet."] if waiting else []


KIND = Kind(
    name=PlanKind.SCALE, change=_change, questions=scale_questions, is_part=lambda before, after: _numbers(before) != _numbers(after)
)
