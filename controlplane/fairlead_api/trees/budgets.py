"""Computes figures, attainment and error budgets of finished tasks from their sums. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fairlead_api.slo.budgets import PERIOD, Counts, Goals, Kept, burn_window
from fairlead_client.resources.slo import SloTaskBurn, TaskBudget, TaskBurnWindow

TASK_WINDOWS = ("6h", "1d", "3d", PERIOD)
"""Windows of `slo.budgets.WINDOWS` over which burn rates of tasks are read; tasks are rolled up by the hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled:
    """Sums over finished tasks of one class and one version of the objectives, by column of `TASK_SUMS`. In a series,
    the tasks ended in the step of time that begins at `at`.
    """

    version: int
    priority_class: str
    at: datetime | None
    sums: Mapping[str, int]

    @property
    def kept(self) -> Kept:
        """The tasks as counts by outcome; tasks that broke off count as failed."""
        counts = Counts(judged=self.sums["judged"], within_slo=self.sums["in_time"], failed=self.sums["broken_off"])
        return Kept(version=self.version, priority_class=self.priority_class, counts=counts, at=self.at)


def goals_of(percentiles: Mapping[tuple[int, str], float]) -> Goals:
    """Return the goals of tasks, from the percentiles by version and class."""
    return lambda kept: percentiles.get((kept.version, kept.priority_class))


def _mean(name: str, of: str = "tasks", unit: float = 1.0) -> Callable[[Mapping[str, int]], float | None]:
    return lambda sums: sums[name] / unit / sums[of] if sums[of] else None


TASK_FIGURES: Mapping[str, Callable[[Mapping[str, int]], float | None]] = {
    "tasks": lambda sums: float(sums["tasks"]),
    "task_attainment": _mean("in_time", "judged"),
    "task_turns": _mean("turns"),
    "task_queue_time": _mean("queued_microseconds", unit=1e6),
    "task_model_time": _mean("model_microseconds", unit=1e6),
    "task_tool_time": _mean("tool_microseconds", "tool_tasks", 1e6),
    "task_hit_rate": _mean("cached_tokens", "prompt_tokens"),
    "task_moves": _mean("moves"),
    "task_refusals": _mean("refusals"),
}
"""Functions that compute the metrics of finished tasks (`SERIES_METRICS`) from sums of the tasks. A function returns
None if no task has the figure.
"""


def added(parts: Iterable[Rolled]) -> dict[str, int]:
    """Return the sums over all parts together; without parts, an empty mapping."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, value in part.sums.items():
            sums[name] = sums.get(name, 0) + value
    return sums


def task_burn(
    pool: str, at: datetime, windows: Mapping[str, Sequence[Rolled]], percentiles: Mapping[tuple[int, str], float], version: int
) -> SloTaskBurn:
    """Return the burn rates of the error budgets of tasks. `windows` has the tasks of each window; a window is missing
    if tasks are not kept for its whole length. `version` is the version of the objectives in force.
    """
    goals = goals_of(percentiles)
    kept = {name: [one.kept for one in rolled if goals(one.kept) is not None] for name, rolled in windows.items()}
    now = {name: goal for (number, name), goal in percentiles.items() if number == version}
    classes = sorted({*now, *(one.priority_class for each in kept.values() for one in each)})
    found = [_window(name, each, of_window, goals) for name, of_window in kept.items() for each in classes]
    left = {one.priority_class: 1 - one.burn for one in found if one.window == PERIOD and one.burn is not None}
    budgets = [TaskBudget(priority_class=name, percentile=now.get(name), budget_left=left.get(name)) for name in classes]
    return SloTaskBurn(pool=pool, at=at, budgets=budgets, windows=found)


def _window(name: str, priority_class: str, kept: Sequence[Kept], goals: Goals) -> TaskBurnWindow:
    burnt = burn_window(name, priority_class, (one for one in kept if one.priority_class == priority_class), goals)
    return TaskBurnWindow(
        window=name,
        seconds=burnt.seconds,
        priority_class=priority_class,
        tasks=burnt.requests,
        late=burnt.late,
        allowed=burnt.allowed,
        burn=burnt.burn,
        broken_off=burnt.failed,
        burn_of_all=burnt.burn_of_all,
    )
