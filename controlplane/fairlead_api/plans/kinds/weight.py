"""Changes the weight of one instance, and thereby its share of the keys on the hash ring."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairlead.errors import InvalidInput
from fairlead.instance_marks import WEIGHT_ANNOTATION
from fairlead.instances import ACCEPTING, LEAST_WEIGHT, MOST_WEIGHT, Role, weight_of
from fairlead.percentages import percentage
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.knowledge.rings import key_shares
from fairlead_api.plans.changes import Asked, Change, Kind
from fairlead_api.plans.evidence import PoolUse
from fairlead_api.plans.kinds.engines import ENGINES, weighed_engine
from fairlead_api.plans.kinds.ring import rearranged
from fairlead_api.plans.objects import Target, TargetKind
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Question, Tried
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import PlanEffect

[_WEIGHT] = PlanKind.WEIGHT.facts.inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightQuestion:
    """Finds the effect of a changed weight of one instance. `stays` is True if the new weight remains when the instance
    is replaced, because it is stored outside the instance.
    """

    instance: str
    before: float
    after: float
    stays: bool = False

    async def effect(self, known: Known) -> PlanEffect:
        return weight_effect(known.use, self.instance, self.before, self.after, known.policies, stays=self.stays)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("the share of keys that move is computed from the ring itself")


async def _change(asked: Asked) -> Change:
    """Return the change of the instance's weight: a change of its pod, or of the list of engines if a file defines the
    instance.
    """
    target, found = await asked.its_instance()
    weight = wanted_weight(asked.request)
    if target.kind is not TargetKind.ENGINE:
        text = None if weight is None else f"{weight!r}".removesuffix(".0")
        return Change(target=target, found=found, patch={WEIGHT_ANNOTATION: text})
    listed = Target.of_engines(asked.pool)
    return Change(target=listed, found=await asked.cluster.read(listed), patch=weighed_engine(target.name, weight))


def _questions(change: Change, _policies: PolicyCatalogue) -> Sequence[Question]:
    part, patch = change.part, change.patch
    if change.target.kind.is_instance:
        before, after = weight_of(part.get(WEIGHT_ANNOTATION)), weight_of(patch[WEIGHT_ANNOTATION])
        return [WeightQuestion(instance=change.target.name, before=before, after=after)]
    [(name, entry)] = patch[ENGINES].items()
    return [WeightQuestion(instance=name, before=part[ENGINES][name].get("weight") or 1.0, after=entry["weight"] or 1.0, stays=True)]


def wanted_weight(request: PlanRequest) -> float | None:
    """Return the weight that a request of kind `weight` gives; None means no explicit weight. Raises InvalidInput."""
    fields = request.fields or {}
    for name, value in fields.items():
        if name != "weight":
            raise InvalidInput(f"fields.{name}", value, "remove it; a plan of the kind weight has the field weight alone")
    weight = fields.get("weight")
    if weight is None and "weight" in fields:
        return None
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise InvalidInput("fields.weight", weight, _WEIGHT.remedy)
    return float(weight)


def weight_effect(pool: PoolUse, instance: str, before: float, after: float, policies: PolicyCatalogue, *, stays: bool) -> PlanEffect:
    """Return the effect of a changed weight of one instance on the ring. An instance that is warming gets the same
    fraction of the new weight as it has of the present weight.

    `stays` is True if the weight is stored in a place that outlives the instance. Raises NotFound; InvalidInput for an
    instance that never has keys.
    """
    one = pool.instance(instance)
    if one.role is Role.DECODE:
        raise InvalidInput("instance", instance, "name an instance that computes prompts: a decode instance has no keys")
    anchors = pool.facts.anchors_per_instance
    new = [
        use.entry(anchors) if use is not one else replace(use, weight=use.weight * after / before).entry(anchors) for use in pool.instances
    ]
    notes = [] if stays else ["The weight belongs to the pod: its successor has the weight in the pool's template, or 1 if that has none."]
    if one.state not in ACCEPTING:
        return PlanEffect(
            notes=[f"{instance} is {one.state} and has no keys now; the weight takes effect when it takes requests again.", *notes]
        )
    shares = [key_shares(entries)[instance] for entries in ([use.entry(anchors) for use in pool.instances], new)]
    effect = rearranged(pool, new, policies.entry(pool.facts.routing.policy))
    words = f"Share of keys of {instance}: {percentage(shares[0])} now, {percentage(shares[1])} with this plan."
    return replace(effect, notes=[words, *effect.notes, *notes])


KIND = Kind(name=PlanKind.WEIGHT, change=_change, questions=_questions)
