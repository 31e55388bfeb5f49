"""Conditions in the status of a workload: a list with one condition of each type."""

from __future__ import annotations

from collections.abc import Iterable

from processkube.kubernetes_api.objects.objects import Object


def condition_in(conditions: Iterable[Object], kind: str) -> Object | None:
    return next((one for one in conditions if one["type"] == kind), None)


def without(conditions: Iterable[Object], kind: str) -> list[Object]:
    return [one for one in conditions if one["type"] != kind]


def with_condition(conditions: list[Object], condition: Object) -> list[Object]:
    """Return the conditions with this one in place of the condition of its type; unchanged when status and reason are
    the same.

    The time of the transition changes with the status only.
    """
    before = condition_in(conditions, condition["type"])
    if before is not None and (before["status"], before.get("reason")) == (condition["status"], condition["reason"]):
        return conditions
    if before is not None and before["status"] == condition["status"]:
        condition = {**condition, "lastTransitionTime": before["lastTransitionTime"]}
    return [*without(conditions, condition["type"]), condition]
