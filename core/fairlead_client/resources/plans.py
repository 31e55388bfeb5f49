"""Plans: a change is previewed, applied and undone."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class PlanKind(StrEnum):
    """The kind of change that a plan makes."""

    SCALE = "scale"


class PlanState(StrEnum):
    """The fate of a plan: an open one can be applied; the others are closed for good."""

    OPEN = "open"
    APPLIED = "applied"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEffect:
    """The expected effect of applying, estimated from present sessions and traffic.

    Sessions of a removed instance move to others, or are lost (`sessions_lost`) where no instance is left to take
    them. `predicted_attainment` is the share of requests whose TTFT would be in time, as `prediction_basis` says; both
    are None where there is no traffic, and then nothing is promised.
    """

    instances_added: int
    instances_removed: int
    victims: list[str]
    sessions_moved: int
    cache_tokens_lost: int
    predicted_attainment: float | None
    warnings: list[str]
    heavy: bool
    """Scales to zero or moves more than 10 % of sessions; applying it then needs the pool's name and a reason."""
    sessions_lost: int = 0
    prediction_basis: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A previewed change. It can be applied until `expires_at`, unless the object changed meanwhile."""

    id: str
    pool: str
    kind: PlanKind
    created_at: datetime
    created_by: str
    expires_at: datetime
    state: PlanState
    diff: list[dict[str, Any]]
    effect: PlanEffect
    owner: str | None
    patch: str
    """The change as a kubectl-ready merge patch (YAML), to copy when GitOps owns the object."""
    applied_at: datetime | None = None
    applied_by: str | None = None
    undo_until: datetime | None = None
    undo_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePlanRequest:
    kind: PlanKind
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """For a heavy plan `confirm` must equal the pool's name and `reason` must be given."""

    confirm: str | None = None
    reason: str | None = None
