"""Changes the minimum and maximum number of instances of a role, and the number of its spare instances that sleep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.amounts import amount
from fairlead.errors import InvalidInput
from fairlead.instances import MAX_REPLICAS, Role
from fairlead.pools import PoolSpec
from fairlead.role_specs import MAX_ASLEEP
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead_api.plans.changes import Asked, Change, Kind, Spec, SpecQuestion, checked
from fairlead_api.plans.kinds.revert import joined
from fairlead_api.plans.kinds.scale import asked_role, scale_questions
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Question, Tried
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import PlanEffect

_BOUNDS = ("minReplicas", "maxReplicas")
_WARM = "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsQuestion(SpecQuestion):
    """Finds the effect of changed bounds, and of a changed declared number of instances if the bounds change that
    number.
    """

    scaled: Question | None

    async def effect(self, known: Known) -> PlanEffect:
        told = PlanEffect(notes=bounds_in_words(self.after))
        return told if self.scaled is None else joined([await self.scaled.effect(known), told])

    def tried(self, present: Present) -> Tried:
        if self.scaled is None:
            raise CannotSimulate("bounds limit later scaling; they do not change the load")
        return self.scaled.tried(present)


def bounds_in_words(spec: PoolSpec) -> list[str]:
    """Return a sentence about the bounds of each role."""
    alone = len(spec.roles) == 1
    return [
        f"Scaling and schedules keep {'the pool' if alone else role.name.value} between {role.min_replicas} and {amount(role.max_replicas, 'instance')}."
        + (f" Up to {role.asleep} more sleep instead of being deleted." if role.asleep else "")
        for role in spec.roles
    ]


async def _change(asked: Asked) -> Change:
    target, found = await asked.its_pool()
    return Change(target=target, found=found, patch=bounds_patch(asked.request, found.spec))


def bounds_patch(request: PlanRequest, spec: Spec) -> dict[str, Any]:
    """Return the merge patch of the pool's spec. A declared number outside the bounds becomes the nearest number within
    them, because the spec would be refused otherwise. Raises InvalidInput.
    """
    wanted: dict[str, Any] = {
        name: _asleep(value) if name == _WARM else _bound(name, value) for name, value in (request.fields or {}).items()
    }
    roles = [dict(role) for role in spec.get("roles") or [{"name": Role.BOTH.value}]]
    mine = roles[asked_role(request, roles)]
    if _WARM in wanted and (turns := (mine.get(_WARM) or {}).get("turns")) is not None:
        wanted[_WARM] = {**_still_asleep(wanted[_WARM]), "turns": turns}
    mine.update({name: value for name, value in wanted.items() if value is not None})
    for name in [name for name, value in wanted.items() if value is None]:
        mine.pop(name, None)
    least, most = mine.get("minReplicas", 0), mine.get("maxReplicas", MAX_REPLICAS)
    if mine["name"] != Role.BOTH:
        if mine.get("replicas") is not None:
            mine["replicas"] = max(least, min(most, mine["replicas"]))
        return {"roles": roles}
    declared = spec.get("replicas", 1)
    within = max(least, min(most, declared))
    return {"roles": roles} if within == declared else {"replicas": within, "roles": roles}


def _still_asleep(warm: dict[str, Any] | None) -> dict[str, Any]:
    """Return the section `warm` of a role whose instances share devices with another role's instances. Raises
    InvalidInput unless the section lets at least one instance sleep, because only a sleeping instance gives up its
    devices.
    """
    if warm is None or warm["asleep"] < 1:
        remedy = "write at least 1: the role takes turns on its devices (roles[].warm.turns), and gives them up by sleeping"
        raise InvalidInput("warm.asleep", None if warm is None else warm["asleep"], remedy)
    return warm


def _asleep(value: Any) -> dict[str, Any] | None:
    """Return a role's section `warm`, which sets how many instances sleep; None to remove the section. Raises
    InvalidInput.
    """
    if value is None or value == {"asleep": None}:
        return None
    number = value.get("asleep") if isinstance(value, dict) and len(value) == 1 else None
    if isinstance(number, bool) or not isinstance(number, int | float) or number != int(number) or not 0 <= number <= MAX_ASLEEP:
        raise InvalidInput("warm.asleep", number if isinstance(value, dict) else value, f"write a whole number from 0 to {MAX_ASLEEP}")
    return {"asleep": int(number)}


def _bound(name: str, value: Any) -> int | None:
    if name not in _BOUNDS:
        raise InvalidInput(f"fields.{name}", value, f"remove it; a plan of kind bounds takes {', '.join(_BOUNDS)} and {_WARM}")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or not 0 <= value <= MAX_REPLICAS:
        raise InvalidInput(name, value, f"write a whole number from 0 to {MAX_REPLICAS}")
    return int(value)


def _questions(change: Change, policies: PolicyCatalogue) -> Sequence[Question]:
    after = checked(change.part, change.patch, policies)
    moved = _declared(change.part) != _declared(change.after)
    return [BoundsQuestion(after=after, scaled=scale_questions(change, policies)[0] if moved else None)]


def _declared(spec: Spec) -> tuple[Any, ...]:
    return spec.get("replicas"), [role.get("replicas") for role in spec.get("roles") or ()]


KIND = Kind(name=PlanKind.BOUNDS, change=_change, questions=_questions)
"""The kind `bounds`. No part of a difference between two specs belongs to this kind: changes of a role's numbers belong
to the kind `scale`.
"""
