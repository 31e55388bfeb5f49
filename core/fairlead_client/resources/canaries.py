"""Canaries: the steps of rollouts, and what their sessions say of the new revision."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.canaries.verdicts import StepVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryEstimate:
    """How one metric (`ttft`, `tpot`, `hits`, `errors`, `tokens`) changed in the canary.

    `change`, `low` and `high` are shares of the others' value (0.05 = 5 % more) where `is_ratio`, else differences of
    shares (0.05 = 5 points more). The bounds are right whenever they are read; None = nothing excludes larger changes.
    `pairs` of sessions were compared. `verdict` is what the metric alone says.
    """

    metric: str
    is_ratio: bool
    pairs: int
    change: float
    low: float | None
    high: float | None
    verdict: StepVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryLook:
    """What the judge said of a step at a time. Sessions are those that counted; requests are those of both arms, and
    `late_requests` further ones that were reported too late to count.
    """

    at: datetime
    verdict: StepVerdict
    reason: str
    requests: int
    canary_requests: int
    canary_sessions: int
    other_sessions: int
    estimates: list[CanaryEstimate]
    late_requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryStep:
    """A step of a canary: up to `share` (0-1) of the new sessions went to the new revision. `ended_at` None = it is in
    force. `looks` are the newest first; the judge says something once a minute, and whenever its verdict changes.
    """

    step: str
    share: float
    began_at: datetime
    ended_at: datetime | None
    hits_judged_at: datetime
    looks: list[CanaryLook]


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """The steps of a pool's canaries, newest first."""

    pool: str
    steps: list[CanaryStep]
