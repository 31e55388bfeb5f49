"""Service level objectives of pools: their versions, their attainment, and the error budget left.

Requests are *judged* when they have finished and their first token was seen: in time if TTFT and TPOT were below the
targets in force. A request whose client left is judged by the part that the client received, and counts as late if the
target had passed without a first token. Refused and failed requests are counted separately.
"""

from dataclasses import dataclass, field
from datetime import datetime

from fairlead.tables import meets


@dataclass(frozen=True, slots=True, kw_only=True)
class SloClass:
    """A priority class that the pool declared."""

    name: str
    priority: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SloTask:
    """A target of whole tasks of a priority class, as in `spec.slo.task`.

    At least `percentile` per cent of the tasks must be in time: their turns may take at most `turn_time_seconds`
    together, and at most `wall_time_seconds` may pass from the first turn to the last. A time that is None does not
    apply. A task is over `idle_seconds` after its last turn.
    """

    name: str
    turn_time_seconds: float | None
    wall_time_seconds: float | None
    percentile: float
    idle_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SloVersion:
    """One version of a pool's objectives; only its end may change.

    `revision` is the revision of the pool's spec that was in force when this version began, and `changed_by` the author
    of that revision (both None for versions recorded without them); a window of a schedule changes the objectives
    within one revision.
    """

    version: int
    pool: str
    ttft_seconds: float
    tpot_seconds: float
    percentile: float
    active_from: datetime
    active_until: datetime | None
    attainment: float | None
    requests: int
    classes: list[SloClass] = field(default_factory=list)
    revision: int | None = None
    changed_by: str | None = None
    task: list[SloTask] = field(default_factory=list)
    """The targets of whole tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloShare:
    """The requests of one version of the objectives and one priority class; None = of all versions, or of all classes.

    `attainment` is the share of the judged `requests` that was in time. `ttft_attainment` and `tpot_attainment` are the
    same share for a single target. `served_in_time` is the share in time of all requests: judged, refused and failed.
    Shares are None if there are no requests.
    """

    version: int | None
    priority_class: str | None
    requests: int
    in_time: int
    attainment: float | None
    ttft_attainment: float | None
    tpot_attainment: float | None
    refused: int
    failed: int
    served_in_time: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SloPoint:
    """Requests of one priority class in one step of time."""

    at: datetime
    priority_class: str
    requests: int
    in_time: int
    refused: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SloAttainment:
    """The attainment of a pool's objectives from `start` to `end`, the requested range in whole minutes or hours.

    `whole` is the total, `shares` has each version and class separately, the newest version first; `points` are the
    steps in which requests ended.
    """

    pool: str
    start: datetime
    end: datetime
    whole: SloShare
    shares: list[SloShare]
    step_seconds: int
    points: list[SloPoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnWindow:
    """The part of the error budget that the requests of the last `seconds` used, for one priority class or, if None,
    for all classes.

    Each version of the objectives allows a share of its requests to be late: 100 % minus its percentile. `allowed` is
    the number of requests that may be late, summed over the versions, and `late` the number of late requests. `burn` is
    late ÷ allowed: at 1 a budget lasts exactly its period. In `burn_of_all`, refused and failed requests also count as
    late. None without requests, or without a budget (percentile 100).
    """

    window: str
    seconds: int
    priority_class: str | None
    requests: int
    late: int
    allowed: float
    burn: float | None
    refused: int
    failed: int
    burn_of_all: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnAlert:
    """Whether the budget burns faster than `threshold` over both a long and a short window; None without requests."""

    name: str
    long: str
    short: str
    threshold: float
    burning: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SloBurn:
    """The burn rate of a pool's error budget now. `budget_left` is the remaining share of the last 30 days' budget: 1
    if no request was late, below 0 if more requests were late than allowed; None without requests, or if less than 30
    days are kept. Windows longer than the retention are left out.
    """

    pool: str
    at: datetime
    version: int | None
    percentile: float
    budget_left: float | None
    windows: list[BurnWindow]
    alerts: list[BurnAlert]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfShare:
    """Recorded requests of one priority class (of all classes if None) under other targets.

    Between `in_time_least` and `in_time_most` of `requests` had a TTFT and a TPOT below the targets; the two numbers
    are equal if the number is exact. `attainment` is the requests' attainment under the targets that applied. `met`
    says whether the percentile would have been reached; None if the number is not exact enough, or there are no
    requests.
    """

    priority_class: str | None
    requests: int
    in_time_least: int
    in_time_most: int
    attainment_least: float | None
    attainment_most: float | None
    attainment: float | None
    refused: int
    failed: int
    met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SloWhatIf:
    """The number of recorded requests that would have met other targets, judged by their recorded latencies. It ignores
    that routers would have queued and refused differently under other targets.

    `exact` says that both targets are steps of the recorded latencies, so that lower and upper bound are equal.
    """

    pool: str
    start: datetime
    end: datetime
    ttft_seconds: float
    tpot_seconds: float
    percentile: float
    exact: bool
    whole: WhatIfShare
    classes: list[WhatIfShare]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShare:
    """The tasks of one priority class that were judged by one version of its target.

    `tasks` is the number of tasks that were over in the range and whose last turn got a response. `in_time` of them met
    each time of the target, and `attainment` is `in_time` as a share of `tasks`. The last turn of `broken_off` further
    tasks was refused or failed; `served_in_time` is the share in time of all tasks, these included. `turn_seconds` and
    `wall_seconds` are the times that `percentile` per cent of the judged tasks did not exceed. Shares and times are
    None without tasks.
    """

    version: int
    priority_class: str
    turn_time_seconds: float | None
    wall_time_seconds: float | None
    percentile: float
    tasks: int
    in_time: int
    attainment: float | None
    broken_off: int
    served_in_time: float | None
    turn_seconds: float | None
    wall_seconds: float | None

    @property
    def met(self) -> bool | None:
        """Whether the share of tasks in time reached the target's percentile; None without tasks."""
        return None if self.attainment is None else meets(self.attainment, self.percentile)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBurnWindow:
    """The part of the error budget of one priority class that was used by the tasks that ended in the last `seconds`,
    in whole hours.

    Each version of the target allows a share of its tasks to be late: 100 % minus its percentile. `tasks` is the number
    of judged tasks, `allowed` the number that may be late, `late` the number that were late. `burn` is late ÷ allowed:
    at 1 a budget lasts exactly its period. In `burn_of_all`, tasks that broke off also count as late. None without
    tasks, or without a budget (percentile 100).
    """

    window: str
    seconds: int
    priority_class: str
    tasks: int
    late: int
    allowed: float
    burn: float | None
    broken_off: int
    burn_of_all: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBudget:
    """The error budget of the tasks of one priority class. `percentile` is the goal in force, None if the class has no
    target now. `budget_left` is the remaining share of the last 30 days' budget: 1 if no task was late, below 0 if more
    tasks were late than allowed; None without tasks, or if less than 30 days are kept.
    """

    priority_class: str
    percentile: float | None
    budget_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SloTaskBurn:
    """The burn rates of the error budgets of a pool's task targets. Each class that has a target, or had tasks with a
    target, has a budget and one row for each window. Windows longer than the retention are left out.
    """

    pool: str
    at: datetime
    budgets: list[TaskBudget]
    windows: list[TaskBurnWindow]


@dataclass(frozen=True, slots=True, kw_only=True)
class SloTasks:
    """The attainment of a pool's targets of whole tasks, for tasks that ended from `start` to `end`: each version of
    the objectives and each class, the newest version first.

    If there are very many tasks, only the newest are judged; `since` is then the time at which the oldest of them ended
    its last turn, else None.
    """

    pool: str
    start: datetime
    end: datetime
    since: datetime | None
    shares: list[TaskShare]
