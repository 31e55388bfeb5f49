"""A pool's readiness in one condition. Pure."""

from collections.abc import Sequence

from fairlead_client.resources.pools import PoolCondition


def ready_condition(conditions: Sequence[PoolCondition], problem: str | None) -> PoolCondition:
    """The pool's Ready condition; if it has none, a condition that says why."""
    for condition in conditions:
        if condition.type == "Ready":
            return condition
    if problem is not None:
        return PoolCondition(type="Ready", status="False", reason="InvalidSpec", message=problem)
    return PoolCondition(type="Ready", status="Unknown", reason="NotReported", message="The operator has not reported conditions yet.")
