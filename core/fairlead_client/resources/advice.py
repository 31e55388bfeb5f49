"""Advice: the pools' present problems, their causes, and the plans that would help; and trends of
pools over a range.
"""

from dataclasses import dataclass
from datetime import datetime

from fairlead.advice.findings import Cause, EvidenceKind, HarmUnit, Level
from fairlead_client.resources.figures import RangeFigures
from fairlead_client.resources.plan_kinds import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceEvidence:
    """The page that shows the figures of a finding, and the time range to look at. `metric` is a heatmap metric."""

    kind: EvidenceKind
    start: datetime
    end: datetime
    instance: str | None = None
    metric: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One finding. `subject` distinguishes findings with the same cause in one pool: an instance, a role or a reason.

    `harm` is in `unit`, where possible in requests per second that miss the objectives. `plan` is the body of a request
    for a plan that would help, None if no plan would help; `plan_words` names the plan's change: `7 replicas`.
    """

    pool: str
    cause: Cause
    subject: str
    level: Level
    harm: float
    unit: HarmUnit
    sentence: str
    evidence: AdviceEvidence
    plan: PlanRequest | None = None
    plan_words: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceReport:
    """Findings, ordered by harm: by level, then by unit in the order of `HarmUnit`, then by harm.

    Rates are over the last `window_seconds`. `pools` were examined; `complete` is false if there are more pools than
    one response covers.
    """

    at: datetime
    window_seconds: float
    pools: int
    complete: bool
    items: list[Advice]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTrend:
    """A pool's results step by step, oldest first; for all pools together, `pool` is empty.

    `judged` counts finished requests, and `in_time` the judged requests that met both TTFT and TPOT; `refused` and
    `failed` requests are counted separately. `ttft_seconds` is the TTFT at the SLO's percentile (for all pools
    together, at the 95th), rounded to the two digits that the histogram resolves; None in a step without requests.
    `instance_hours` are the hours that its instances existed in the range, whether they served or not. `figures` are
    over the whole range; for all pools together, they include pools that no longer exist.
    """

    pool: str
    judged: list[int]
    in_time: list[int]
    refused: list[int]
    failed: list[int]
    ttft_seconds: list[float | None]
    instance_hours: float
    figures: RangeFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """The results of all pools over a range, in steps of `step_seconds`; the last step may be incomplete."""

    start: datetime
    end: datetime
    step_seconds: int
    fleet: PoolTrend
    pools: list[PoolTrend]
