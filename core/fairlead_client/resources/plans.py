"""Plans: changes that are previewed, applied and undone."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest

PROPOSER = "fairlead"
"""The author of plans that are proposals."""


class PlanState(StrEnum):
    """The state of a plan. An open plan can be applied; a plan in any other state is closed permanently."""

    OPEN = "open"
    APPLIED = "applied"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverForecast:
    """The share of their caches that sessions of removed instances are expected to keep, and its cost. The fields are
    the kept share (0-1) of the pool's hits in the next five minutes, the extra seconds that the change takes to keep
    the caches, and the extra work as a share of the pool's computation in these five minutes. If the figures are
    unknown, they are None and `unknown` is the reason.
    """

    hits_kept: float | None = None
    seconds_longer: float | None = None
    more_work: float | None = None
    unknown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverResult:
    """The result of keeping the caches of sessions whose instances were removed, with the forecast `expected`.

    The counts are up to `until`: ten minutes after the plan was applied, or now; None before it is applied.
    `sessions_moved` counts sessions that moved after their instance left, and `sessions_handed_over` the moved sessions
    whose prompt was brought to another instance before their next turn. `tokens_moved` were transferred,
    `tokens_computed_ahead` computed in advance, and `tokens_lost` computed again in sessions' next turns. `hits_kept`
    is the kept share (0-1) of the tokens that could have been hit, None if there were no such tokens.
    """

    plan: str
    expected: HandOverForecast | None
    until: datetime | None = None
    sessions_moved: int = 0
    sessions_handed_over: int = 0
    tokens_moved: int = 0
    tokens_computed_ahead: int = 0
    tokens_lost: int = 0
    hits_kept: float | None = None
    attainment_before: float | None = None
    """Share (0-1) of requests in time in the ten minutes before the plan was applied; None if no request was judged."""
    attainment_after: float | None = None
    """Share (0-1) of requests in time from the plan's application to `until`; None if no request was judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The origin of a proposed plan: the sentence of the advice, and the change that the advice recommends. The plan
    waits for a person to apply it, and is superseded when the advice is withdrawn or recommends another change.
    """

    because: str
    request: PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEffect:
    """The expected effect of applying a plan, estimated from present sessions and traffic.

    Sessions of a removed instance move to other instances, or are lost (`sessions_lost`) if no instance is left.
    `warnings` name losses for users, caches or targets, `notes` other consequences of the change.
    `predicted_attainment` is the share of requests whose TTFT and TPOT would be in time, `predicted_refusals` the share
    that would be refused early, both as `prediction_basis` says; None if there is no traffic or the change does not
    affect it.
    """

    instances_added: int = 0
    instances_removed: int = 0
    victims: list[str] = field(default_factory=list)
    sessions_moved: int = 0
    cache_tokens_lost: int = 0
    requests_in_flight: int = 0
    """Requests in flight at the instances that are removed; they finish there."""
    key_share_moved: float = 0.0
    """Share (0-1) of the keys on the hash ring that change their owner, as the mean over both rings."""
    predicted_attainment: float | None = None
    predicted_refusals: float | None = None
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    heavy: bool = False
    """Whether the change leaves no instance to serve, or moves more than 10 % of sessions; applying it then needs the
    pool's name and a reason.
    """
    sessions_lost: int = 0
    prediction_basis: str | None = None
    for_admins: bool = False
    """Whether the plan changes a schedule that sets SLO, early rejection or the ratio, before or after the change.
    Applying it needs an admin, like any change of these settings.
    """
    hand_over: HandOverForecast | None = None
    """The part of the removed instances' caches that is kept; None if the plan removes no instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A previewed change of `target`, an object such as `InferencePool default/chat` or `Pod default/chat-bk2xz4`.

    It can be applied until `expires_at`, unless somebody changes the object in the meantime.
    """

    id: str
    pool: str
    kind: PlanKind
    target: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    state: PlanState
    diff: list[dict[str, Any]]
    effect: PlanEffect
    owner: str | None
    patch: str
    """The change as a kubectl-ready merge patch (YAML), to commit if a GitOps tool owns the object."""
    applied_at: datetime | None = None
    applied_by: str | None = None
    undo_until: datetime | None = None
    undo_of: str | None = None
    proposal: Proposal | None = None
    """The origin of a proposed plan; None for a plan that a person made."""


def needed_role(plan: Plan) -> AccessRole:
    """Return the role that a person needs to apply or undo a plan, or to plan it again."""
    return AccessRole.ADMIN if plan.effect.for_admins else plan.kind.facts.role


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """The confirmation of a plan to apply. For a heavy plan `confirm` must equal the pool's name and `reason` must be
    given.
    """

    confirm: str | None = None
    reason: str | None = None
