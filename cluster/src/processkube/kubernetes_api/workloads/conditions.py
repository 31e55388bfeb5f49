"""Conditions in the status of a workload. There is one condition of each type."""

from __future__ import annotations

from collections.abc import Iterable

from processkube.kubernetes_api.objects.objects import Object


def condition_in(conditions: Iterable[Object], kind: str) -> Object | None:
    return next((one for one in conditions if one["type"] == kind), None)


def without(conditions: Iterable[Object], kind: str) -> list[Object]:
    return [one for one in conditions if one["type"] != kind]


def with_condition(conditions: list[Object], condition: Object) -> list[Object]:
    """Return the conditions after `condition` has replaced the condition of the same type. If the old condition has the
    same status and the same reason, the conditions do not change.

    The transition time changes only if the status changes.
    """
    before = condition_in(conditions, condition["type"])
    if before is not None and (before["status"], before.get("reason")) == (condition["status"], condition["reason"]):
        return conditions
    if before is not None and before["status"] == condition["status"]:
        condition = {**condition, "lastTransitionTime": before["lastTransitionTime"]}
    return [*without(conditions, condition["type"]), condition]
