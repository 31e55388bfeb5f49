"""Computes attainment, the use of error budgets, and the attainment under other targets, from counts of requests. Pure.

The windows and thresholds of the alerts are from Google's SRE workbook ("Alerting on SLOs", its sixth method) for a
budget of 30 days: 2 % of the budget within an hour, 5 % within six hours, 10 % within three days. A goal limits the
burn rate: for a goal of 90 % it is at most 10, so it would never reach a threshold of 14.4. Therefore the threshold of
an alert is at most 80 % (fast alerts) or 40 % (slow alerts) of the highest burn rate that the goal allows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime

from fairlead.latency_cells import added, in_time
from fairlead.tables import meets
from fairlead_client.resources.slo import BurnAlert, BurnWindow, SloShare, WhatIfShare

WINDOWS: Mapping[str, int] = {"5m": 300, "30m": 1800, "1h": 3600, "6h": 21_600, "1d": 86_400, "3d": 259_200, "30d": 2_592_000}
"""Lengths of the windows of burn rates in seconds, by name, ascending."""

PERIOD = "30d"
"""The period of an error budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A rule for alerts about an error budget. An alert fires if the burn rate over both windows, `long` and `short`,
    exceeds `threshold`, or the share `part` of the highest possible burn rate if that is less.
    """

    name: str
    long: str
    short: str
    threshold: float
    part: float


ALERTS = (
    Alert(name="fast", long="1h", short="5m", threshold=14.4, part=0.8),
    Alert(name="slow", long="6h", short="30m", threshold=6.0, part=0.4),
    Alert(name="lasting", long="3d", short="6h", threshold=1.0, part=0.1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of requests that ended, by outcome."""

    judged: int = 0
    within_slo: int = 0
    ttft_within_slo: int = 0
    tpot_within_slo: int = 0
    tpot_total: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The counts for one SLO version and one priority class. In a series, they cover the step of time that begins at
    `at`.
    """

    version: int
    priority_class: str
    counts: Counts
    at: datetime | None = None


def total(kept: Iterable[Kept]) -> Counts:
    """Return the sum of all counts."""
    found = list(kept)
    return Counts(**{one.name: sum(getattr(each.counts, one.name) for each in found) for one in fields(Counts)})


def share_of(version: int | None, priority_class: str | None, counts: Counts) -> SloShare:
    """Return the attainment and the other shares that follow from the counts."""
    return SloShare(
        version=version,
        priority_class=priority_class,
        requests=counts.judged,
        in_time=counts.within_slo,
        attainment=_share(counts.within_slo, counts.judged),
        ttft_attainment=_share(counts.ttft_within_slo, counts.judged),
        tpot_attainment=_share(counts.tpot_within_slo, counts.tpot_total),
        refused=counts.refused,
        failed=counts.failed,
        served_in_time=_share(counts.within_slo, counts.judged + counts.refused + counts.failed),
    )


Goals = Callable[[Kept], float | None]
"""A function that returns the target percentile by which counted requests are judged; None if it is not known."""


def by_version(percentiles: Mapping[int, float]) -> Goals:
    """Return a function that gives the target percentile of counts, if the percentile depends only on the version of
    the objectives.
    """
    return lambda kept: percentiles.get(kept.version)


def burn_of(kept: Iterable[Kept], goals: Goals) -> float | None:
    """Return the burn rate: the number of late requests divided by the number that the error budget allows. None if it
    allows no late request.
    """
    known = list(_with_goals(kept, goals))
    allowed = sum(one.counts.judged * budget_share(goal) for one, goal in known)
    return _share(sum(one.counts.judged - one.counts.within_slo for one, _ in known), allowed)


def _with_goals(kept: Iterable[Kept], goals: Goals) -> Iterator[tuple[Kept, float]]:
    for one in kept:
        goal = goals(one)
        if goal is not None:
            yield one, goal


def burn_window(window: str, priority_class: str | None, kept: Iterable[Kept], goals: Goals) -> BurnWindow:
    """Return the use of the error budget by the requests of one window: the burn rate, and the counts from which it is
    computed. Requests without a goal are left out.
    """
    known = list(_with_goals(kept, goals))
    counts = total(one for one, _ in known)
    late = counts.judged - counts.within_slo
    lost = counts.refused + counts.failed
    allowed = sum(one.counts.judged * budget_share(goal) for one, goal in known)
    allowed_of_all = sum((one.counts.judged + one.counts.refused + one.counts.failed) * budget_share(goal) for one, goal in known)
    return BurnWindow(
        window=window,
        seconds=WINDOWS[window],
        priority_class=priority_class,
        requests=counts.judged,
        late=late,
        allowed=allowed,
        burn=_share(late, allowed),
        refused=counts.refused,
        failed=counts.failed,
        burn_of_all=_share(late + lost, allowed_of_all),
    )


def budget_share(percentile: float) -> float:
    """Return the share of requests that may miss the objectives, for a target percentile."""
    return 1 - percentile / 100


def alerts(windows: Iterable[BurnWindow], percentile: float) -> list[BurnAlert]:
    """Return the alerts that follow from the burn rates of all classes and windows, for a pool whose present target is
    `percentile`.
    """
    burns = {one.window: one.burn for one in windows if one.priority_class is None}
    fastest = 1 / budget_share(percentile) if percentile < 100 else None
    found = []
    for alert in ALERTS:
        threshold = alert.threshold if fastest is None else max(1.0, min(alert.threshold, alert.part * fastest))
        long, short = burns.get(alert.long), burns.get(alert.short)
        burning = None if long is None else long > threshold and short is not None and short > threshold
        found.append(BurnAlert(name=alert.name, long=alert.long, short=alert.short, threshold=threshold, burning=burning))
    return found


def what_if(
    cells: Mapping[str, Mapping[int, int]], counts: Mapping[str, Counts], ttft_seconds: float, tpot_seconds: float, percentile: float
) -> tuple[WhatIfShare, list[WhatIfShare]]:
    """Return the share of requests that would have met other targets, for all classes together and for each class.
    `cells` are numbers of requests by latency cell, `counts` are counts by outcome, both by priority class.
    """
    names = sorted({*cells, *counts})
    each = [_against(name, cells.get(name, {}), counts.get(name, Counts()), ttft_seconds, tpot_seconds, percentile) for name in names]
    everything = total(Kept(version=0, priority_class=name, counts=counts[name]) for name in counts)
    return _against(None, added(cells.values()), everything, ttft_seconds, tpot_seconds, percentile), each


def _against(
    priority_class: str | None, cells: Mapping[int, int], counts: Counts, ttft_seconds: float, tpot_seconds: float, percentile: float
) -> WhatIfShare:
    found = in_time(cells, ttft_seconds, tpot_seconds)
    least, most = _share(found.least, found.requests), _share(found.most, found.requests)
    met: bool | None = None
    if least is not None and most is not None:
        met = True if meets(least, percentile) else None if meets(most, percentile) else False
    return WhatIfShare(
        priority_class=priority_class,
        requests=found.requests,
        in_time_least=found.least,
        in_time_most=found.most,
        attainment_least=least,
        attainment_most=most,
        attainment=_share(counts.within_slo, counts.judged),
        refused=counts.refused,
        failed=counts.failed,
        met=met,
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 1e-12 else None
