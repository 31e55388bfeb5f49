"""Replaces the list of a pool's priority classes."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PriorityClass
from fairlead_api.plans.changes import Asked, Change, Kind, Spec, SpecQuestion, checked
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Question, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect

FIELD = "priorityClasses"


class ClassesQuestion(SpecQuestion):
    """Finds the effect of changed priority classes."""

    async def effect(self, known: Known) -> PlanEffect:
        return classes_effect(known.use.facts.priority_classes, self.after.priority_classes)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("recorded requests do not say which class they asked for")


def classes_effect(before: Sequence[PriorityClass], after: Sequence[PriorityClass]) -> PlanEffect:
    """Return the effect of changed priority classes: the new order of the classes, and the treatment of requests that
    name a removed class.
    """
    order = ", ".join(one.name for one in sorted(after, key=lambda one: -one.priority))
    gone = [one.name for one in before if one.name not in {other.name for other in after}]
    return PlanEffect(
        notes=[f"Waiting requests are sent in the order {order}." if after else "All requests are alike."],
        warnings=[f"Requests and keys that name {', '.join(gone)} belong to the class default from then on."] if gone else [],
    )


async def _change(asked: Asked) -> Change:
    target, found = await asked.its_pool()
    return Change(target=target, found=found, patch=classes_patch(asked.request.fields or {}))


def classes_patch(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that replaces the list of priority classes. Raises InvalidInput."""
    for name, value in fields.items():
        if name != FIELD:
            raise InvalidInput(f"fields.{name}", value, f"remove it; a plan of kind classes takes {FIELD}")
    return {FIELD: fields.get(FIELD)}


def _questions(change: Change, policies: PolicyCatalogue) -> Sequence[Question]:
    return [ClassesQuestion(after=checked(change.part, change.patch, policies))]


def _is_part(before: Spec, after: Spec) -> bool:
    return (before.get(FIELD) or []) != (after.get(FIELD) or [])


KIND = Kind(name=PlanKind.CLASSES, change=_change, questions=_questions, is_part=_is_part)
