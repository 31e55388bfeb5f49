"""The SLOs of a made-up pool: versions, attainment of two priority classes, error budgets, and a what-if of other
targets.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from fairlead.latency_cells import cell_of, is_edge
from fairlead_api.slo.budgets import WINDOWS, Counts, Kept, alerts, burn_window, by_version, share_of, total, what_if
from fairlead_api.trees.budgets import TASK_WINDOWS, Rolled, task_burn
from fairlead_client.resources.slo import (
    SloAttainment,
    SloBurn,
    SloClass,
    SloPoint,
    SloTask,
    SloTaskBurn,
    SloTasks,
    SloVersion,
    SloWhatIf,
    TaskShare,
)
from fairlead_testing.fakes.public_data.loads import SLO_TTFT

GOAL = 90.0
CELLS: Mapping[str, Mapping[int, int]] = {
    "default": {cell_of(0.8, 0.03): 800, cell_of(2.6, 0.04): 150, cell_of(7.2, 0.05): 50},
    "batch": {cell_of(3.1, 0.03): 300, cell_of(12.0, None): 100},
}
"""The requests of an hour, by priority class and by the cell of their latencies."""
COUNTS = {
    "default": Counts(judged=1000, within_slo=950, ttft_within_slo=950, tpot_within_slo=1000, tpot_total=1000, failed=3),
    "batch": Counts(judged=400, within_slo=300, ttft_within_slo=300, tpot_within_slo=300, tpot_total=300, refused=37),
}


def versions(now: datetime, pool: str, attainment: float | None) -> list[SloVersion]:
    """Return the SLO versions, newest first. The second version added a priority class."""
    return [
        SloVersion(
            version=version,
            pool=pool,
            ttft_seconds=SLO_TTFT[pool] + (2 - version),
            tpot_seconds=0.1,
            percentile=GOAL,
            active_from=now - timedelta(hours=40 if version == 1 else 6),
            active_until=now - timedelta(hours=6) if version == 1 else None,
            attainment=0.973 if version == 1 else attainment,
            requests=812_004 if version == 1 else 64_311,
            classes=[SloClass(name="batch", priority=-10, share=0.6)] if version == 2 else [],
            task=[SloTask(name="batch", turn_time_seconds=600.0, wall_time_seconds=7200.0, percentile=GOAL, idle_seconds=600.0)]
            if version == 2
            else [],
            revision=version,
            changed_by="ada" if version == 2 else "kubectl-client-side-apply",
        )
        for version in (2, 1)
    ]


def _kept() -> list[Kept]:
    return [Kept(version=2, priority_class=name, counts=counts) for name, counts in COUNTS.items()]


def attainment(now: datetime, pool: str) -> SloAttainment:
    """Return the attainment of an hour in four steps; no request ended in the third step."""
    start = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    points = [
        SloPoint(
            at=start + timedelta(minutes=15 * step),
            priority_class=name,
            requests=counts.judged // 3,
            in_time=counts.within_slo // 3 - 10 * step,
            refused=counts.refused // 3,
            failed=counts.failed // 3,
        )
        for step in (0, 1, 3)
        for name, counts in COUNTS.items()
    ]
    return SloAttainment(
        pool=pool,
        start=start,
        end=start + timedelta(hours=1),
        whole=share_of(None, None, total(_kept())),
        shares=[share_of(one.version, one.priority_class, one.counts) for one in _kept()],
        step_seconds=900,
        points=points,
    )


def tasks(now: datetime, pool: str) -> SloTasks:
    """Return the tasks of a day: of the class default mostly in time, of the class batch often late.

    Under the first SLO version there was no task.
    """
    shares = [_tasks(2, "default", 1000, 950, 3), _tasks(2, "batch", 40, 30, 4), _tasks(1, "batch", 0, 0, 0)]
    return SloTasks(pool=pool, start=now - timedelta(hours=24), end=now, since=None, shares=shares)


def _tasks(version: int, name: str, judged: int, in_time: int, broken_off: int) -> TaskShare:
    return TaskShare(
        version=version,
        priority_class=name,
        turn_time_seconds=600.0,
        wall_time_seconds=7200.0 if name == "batch" else None,
        percentile=GOAL,
        tasks=judged,
        in_time=in_time,
        attainment=in_time / judged if judged else None,
        broken_off=broken_off,
        served_in_time=in_time / (judged + broken_off) if judged else None,
        turn_seconds=412.0 if judged else None,
        wall_seconds=9012.0 if judged else None,
    )


def task_burns(now: datetime, pool: str) -> SloTaskBurn:
    """Return the burn of the task budget, equal in all windows: one class is within its budget, another above it.

    A third class had no task.
    """
    found = [_rolled("default", 1000, 950, 3), _rolled("batch", 40, 30, 4)]
    goals = {(2, name): GOAL for name in ("default", "batch", "silent")}
    return task_burn(pool, now, dict.fromkeys(TASK_WINDOWS, found), goals, 2)


def _rolled(name: str, judged: int, in_time: int, broken_off: int) -> Rolled:
    sums = {"judged": judged, "in_time": in_time, "broken_off": broken_off}
    return Rolled(version=2, priority_class=name, at=None, sums=sums)


def burn(now: datetime, pool: str) -> SloBurn:
    """Return the burn of the error budget, which is equal in all windows."""
    windows = []
    for name in WINDOWS:
        windows.append(burn_window(name, None, _kept(), by_version({2: GOAL})))
        windows += [burn_window(name, one.priority_class, [one], by_version({2: GOAL})) for one in _kept()]
    left = 1 - (windows[0].burn or 0)
    return SloBurn(pool=pool, at=now, version=2, percentile=GOAL, budget_left=left, windows=windows, alerts=alerts(windows, GOAL))


def other(now: datetime, pool: str, ttft_seconds: float, tpot_seconds: float, percentile: float) -> SloWhatIf:
    """Return the attainment of the hour's requests under other targets."""
    whole, classes = what_if(CELLS, COUNTS, ttft_seconds, tpot_seconds, percentile)
    return SloWhatIf(
        pool=pool,
        start=now - timedelta(hours=1),
        end=now,
        ttft_seconds=ttft_seconds,
        tpot_seconds=tpot_seconds,
        percentile=percentile,
        exact=is_edge(ttft_seconds) and is_edge(tpot_seconds),
        whole=whole,
        classes=classes,
    )
