"""Plans: a change previewed, applied, undone."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class PlanKind(StrEnum):
    """What a plan changes."""

    SCALE = "scale"


class PlanState(StrEnum):
    """What became of a plan: an open one can be applied; the others are closed for good."""

    OPEN = "open"
    APPLIED = "applied"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEffect:
    """What applying would do, estimated from what is bound and flowing now.

    Sessions of a removed instance move to others, or are lost (`sessions_lost`) where none is left to take them.
    `predicted_attainment` is the share of requests whose TTFT would be in time, as `prediction_basis` says; both None
    where nothing flows, and then nothing is promised.
    """

    instances_added: int
    instances_removed: int
    victims: list[str]
    sessions_moved: int
    cache_tokens_lost: int
    predicted_attainment: float | None
    warnings: list[str]
    heavy: bool
    sessions_lost: int = 0
    prediction_basis: str | None = None
    """Heavy plans (to zero, or moving more than 10 % of sessions) want the pool's name and a reason to be applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A previewed change. It can be applied until `expires_at` if the object did not change."""

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
    """`confirm` must equal the pool's name and `reason` be given for heavy plans."""

    confirm: str | None = None
    reason: str | None = None
