"""The rules of a judge of canaries and its verdicts, for those who do not judge: this loads no numpy."""

from dataclasses import dataclass
from enum import StrEnum


class StepVerdict(StrEnum):
    """What to do with a step, or what one metric says of it."""

    GO = "go"
    WAIT = "wait"
    BACK = "back"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRules:
    """By what a step is judged.

    A canary that is certainly worse by more than `stop_above` goes back, one that is certainly worse by less than
    `go_below` goes on: shares (0.02 = 2 % of a latency, 2 points of a share). `false_stops` is the chance that a
    revision that is as good goes back, over all metrics. Hits are judged once `warming_seconds` have passed.
    """

    stop_above: float = 0.02
    go_below: float = 0.1
    false_stops: float = 0.01
    warming_seconds: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One metric: its change in the canary, as a share of the others' value where `is_ratio`, else in points (shares,
    0.01 = 1 point). Positive = more. Bounds are None where nothing excludes larger changes.
    """

    metric: str
    is_ratio: bool
    pairs: int
    change: float
    low: float | None
    high: float | None
    verdict: StepVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict about a step, and what it rests on. Sessions are those that counted; `late_requests` did not, as they
    were reported too late.
    """

    verdict: StepVerdict
    reason: str
    requests: int
    canary_requests: int
    canary_sessions: int
    other_sessions: int
    estimates: tuple[Estimate, ...]
    late_requests: int = 0
