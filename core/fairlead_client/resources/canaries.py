"""Canaries: the steps of rollouts, and how sessions on the new revision compare with all other sessions."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.canaries.verdicts import StepVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryEstimate:
    """The change of one metric (`ttft`, `tpot`, `hits`, `errors`, `tokens`) in the canary.

    With `is_ratio`, `change`, `low` and `high` are relative to the value of the other instances (0.05 = 5 % more);
    otherwise they are differences of shares (0.05 = 5 points more). The bounds are valid whenever they are read; None =
    no larger change is excluded yet. `pairs` is the number of pairs of sessions that were compared. `verdict` is the
    verdict by this metric alone.
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
    """The judgement of a canary's step at the time `at`. `canary_sessions` and `other_sessions` are the sessions that
    counted. `requests` are the requests of both groups, `canary_requests` the requests of the canary; `late_requests`
    were reported too late to count.
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
    """A step of a canary: up to `share` (0-1) of the new sessions went to the new revision. `ended_at` None = the step
    is in force. `looks` are the judgements, newest first: one a minute, and one whenever the verdict changes.
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
