"""The rules of a canary's judge and its verdicts. Code that does not judge can import this module without loading
numpy.
"""

from dataclasses import dataclass
from enum import StrEnum


class StepVerdict(StrEnum):
    """The decision about a canary's step, made from all metrics or from one metric."""

    GO = "go"
    WAIT = "wait"
    BACK = "back"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRules:
    """The limits by which a step of a canary is judged.

    A canary is rolled back when it is certain to be worse by more than `stop_above`. It goes on to its next step when
    it is certain to be worse by less than `go_below`. Both limits are shares (0.02 = 2 % of a latency, 2 points of a
    share). `false_stops` is the probability, over all metrics, that an equally good revision is rolled back. Cache hits
    are judged once `warming_seconds` have passed.
    """

    stop_above: float = 0.02
    go_below: float = 0.1
    false_stops: float = 0.01
    warming_seconds: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimate of one metric: the canary's value minus the other arm's value. The difference is relative to the
    other arm's value if `is_ratio`, else in points (of a share; 0.01 = 1 point). A bound is None if the data do not
    exclude any larger change yet.
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
    """The verdict about a step of a canary, with its evidence. The counts include only sessions that could be compared.
    `late_requests` is the number of requests that were reported too late to be included.
    """

    verdict: StepVerdict
    reason: str
    requests: int
    canary_requests: int
    canary_sessions: int
    other_sessions: int
    estimates: tuple[Estimate, ...]
    late_requests: int = 0
