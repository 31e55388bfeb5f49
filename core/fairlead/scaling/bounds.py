"""Minimum and maximum numbers of instances, and the source of each bound."""

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.instances import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleBounds:
    """Bounds that a schedule's open window sets for a role; None = the window does not set that bound. `schedule` is
    the schedule's name.
    """

    role: Role
    min_replicas: int | None = None
    max_replicas: int | None = None
    schedule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRole:
    """The number of instances and the bounds that the pool, or its InferencePoolRole, declares for a role."""

    role: Role
    replicas: int
    min_replicas: int
    max_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsInForce:
    """The bounds of a role now. `lower_by` and `upper_by` name the schedule that set that bound; None = the role's own
    bound.
    """

    lower: int
    upper: int
    lower_by: str | None = None
    upper_by: str | None = None

    def clamp(self, replicas: int) -> int:
        """Return the number of instances within the bounds that is nearest to `replicas`."""
        return min(max(replicas, self.lower), self.upper)

    def set_by(self, replicas: int) -> str | None:
        """Return the schedule whose bound excludes `replicas`; None if the role's own bound excludes it, or if
        `replicas` is within the bounds.
        """
        return self.lower_by if replicas < self.lower else self.upper_by if replicas > self.upper else None


def bounds_in_force(role: DeclaredRole, windows: Iterable[RoleBounds]) -> BoundsInForce:
    """Return the role's own bounds, narrowed by the last of `windows` that has bounds for the role.

    A window can only narrow the bounds: it cannot go below the role's minimum or above its maximum.
    """
    found = BoundsInForce(lower=role.min_replicas, upper=role.max_replicas)
    for window in windows:
        if window.role is not role.role:
            continue
        lower, upper = window.min_replicas, window.max_replicas
        found = BoundsInForce(
            lower=role.min_replicas if lower is None else min(max(lower, role.min_replicas), role.max_replicas),
            upper=role.max_replicas if upper is None else min(max(upper, role.min_replicas), role.max_replicas),
            lower_by=window.schedule if lower else None,  # one that allows zero asks for no instance
            upper_by=None if upper is None else window.schedule,
        )
    return found
