"""Objectives over HTTP and in Postgres: versions, requests within each by class, error budgets, and other targets."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from fairlead.latency_cells import cell_of
from fairlead.reports.objectives import SloSample
from fairlead_api.slo.budgets import WINDOWS
from fairlead_client.problems import ApiProblem
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_report, a_state, an_instance

CLASSES = [{"name": "high", "priority": 10}, {"name": "low", "priority": -10, "share": 0.5}]


def a_sample(at: datetime, priority_class: str, version: int | None, **changes: Any) -> SloSample:
    """Return a sample of ten requests, two with a TTFT of 6 s and the others with 1 s."""
    cells = {cell_of(1.0, 0.05): 8, cell_of(6.0, 0.05): 2}
    values: dict[str, Any] = {
        "judged": 10,
        "within_slo": 8,
        "ttft_within_slo": 8,
        "tpot_within_slo": 10,
        "tpot_total": 10,
        "cells": tuple(cells),
        "counts": tuple(cells.values()),
    }
    second = int(at.timestamp())
    return SloSample(pool=CHAT, second=second, priority_class=priority_class, slo_version=version, **{**values, **changes})


async def objectives(api: ApiInstance, number: int, **spec: Any) -> None:
    state = a_state(an_instance("a"), version=number, generation=number, spec={**SPEC, **spec})
    await api.pool_operator.put_pool_state(CHAT, state)


async def test_versions_tell_their_classes_and_who_made_them_and_the_table_which_is_in_force(api: ApiInstance) -> None:
    await objectives(api, 1)
    await objectives(api, 2, priorityClasses=CLASSES)
    await objectives(api, 3, priorityClasses=CLASSES, model="other")
    await objectives(api, 4, priorityClasses=CLASSES, slo={"percentile": 99})
    newest, second, first = (await api.viewer.slo_versions(CHAT)).items
    assert [(one.version, one.revision, one.percentile) for one in (newest, second, first)] == [(3, 4, 99.0), (2, 2, 90.0), (1, 1, 90.0)]
    assert [(one.name, one.priority, one.share) for one in newest.classes] == [("high", 10, 1.0), ("low", -10, 0.5)]
    assert (first.classes, first.changed_by, first.active_until) == ([], "kubectl", second.active_from)
    assert (await api.router.tables())[CHAT].slo_version == 3


async def test_attainment_is_told_by_version_and_class_over_minutes_and_hours(api: ApiInstance) -> None:
    await objectives(api, 1, priorityClasses=CLASSES)
    await objectives(api, 2, priorityClasses=CLASSES, slo={"percentile": 99})
    api.clock.skip(300)
    now = api.clock()
    long_ago, just_now = now - timedelta(hours=30), now - timedelta(minutes=2)
    samples = (a_sample(long_ago, "low", 1), a_sample(just_now, "low", 2), a_sample(just_now, "high", 2, within_slo=10, refused=10))
    await api.router.post_report(a_report("r1", at=now.timestamp(), slo_samples=samples))
    await api.router.post_report(a_report("r1", at=now.timestamp(), slo_samples=samples))
    unreported = a_sample(just_now, "low", None)  # of a router whose table does not tell its version
    await api.router.post_report(a_report("r2", "router-1", at=now.timestamp(), slo_samples=(unreported,)))
    await api.app.state.upkeep.roll_up(now)
    day = await api.viewer.slo_attainment(CHAT)
    assert [(one.version, one.priority_class, one.requests, one.attainment) for one in day.shares] == [
        (2, "high", 10, 1.0),
        (2, "low", 20, 0.8),
    ]
    assert (day.shares[0].served_in_time, day.whole.requests, day.step_seconds) == (0.5, 30, 3600)
    both = await api.viewer.slo_attainment(CHAT, start="now-3d")
    assert [(one.version, one.priority_class, one.requests) for one in both.shares] == [(2, "high", 10), (2, "low", 20), (1, "low", 10)]
    hour = await api.viewer.slo_attainment(CHAT, start="now-1h", priority_class="low", version=2)
    assert (hour.whole.requests, hour.step_seconds, [(one.priority_class, one.in_time) for one in hour.points]) == (20, 60, [("low", 16)])
    assert (await api.viewer.slo_attainment(CHAT, start="now-3d", end="now-2d")).whole.attainment is None
    assert [(one.version, one.attainment) for one in (await api.viewer.slo_versions(CHAT)).items] == [(2, 26 / 30), (1, None)]
    with pytest.raises(ApiProblem, match="past"):
        await api.viewer.slo_attainment(CHAT, start="2199-01-01T00:00:00Z", end="2199-01-02T00:00:00Z")


async def test_the_error_budget_burns_by_what_each_version_allowed(api: ApiInstance) -> None:
    await objectives(api, 1, priorityClasses=CLASSES)
    now = api.clock()
    await api.router.post_report(a_report("r1", slo_samples=(a_sample(now - timedelta(minutes=1), "low", 1),)))
    await api.app.state.upkeep.roll_up(now)
    found = await api.viewer.slo_burn(CHAT)
    by_window = {one.window: one for one in found.windows if one.priority_class is None}
    assert {name: (one.requests, one.late) for name, one in by_window.items()} == dict.fromkeys(WINDOWS, (10, 2))
    assert [one.burn for one in by_window.values()] == pytest.approx([2.0] * len(WINDOWS))
    assert (found.version, found.percentile) == (1, 90.0)
    assert found.budget_left == pytest.approx(-1.0)
    assert {one.name: one.burning for one in found.alerts} == {"fast": False, "slow": False, "lasting": True}


async def test_other_targets_are_answered_from_the_latencies_that_were(api: ApiInstance) -> None:
    await objectives(api, 1, priorityClasses=CLASSES)
    now = api.clock()
    samples = [a_sample(now - timedelta(hours=hours), name, 1) for hours in (1, 14, 20) for name in ("high", "low")]
    await api.router.post_report(a_report("r1", slo_samples=tuple(samples)))
    await api.app.state.upkeep.roll_up(now)
    laxer = await api.viewer.slo_what_if(CHAT, ttft="7s", percentile=99.5)
    assert (laxer.exact, laxer.whole.requests, laxer.whole.in_time_least, laxer.whole.met, laxer.tpot_seconds) == (True, 60, 60, True, 0.1)
    assert [(one.priority_class, one.requests, one.attainment) for one in laxer.classes] == [("high", 30, 0.8), ("low", 30, 0.8)]
    stricter = await api.viewer.slo_what_if(CHAT, tpot="40ms", priority_class="low", start="now-6h")
    assert (stricter.whole.requests, stricter.whole.in_time_most, stricter.whole.met) == (10, 0, False)
    unsure = await api.viewer.slo_what_if(CHAT, ttft="6.1s")
    assert (unsure.exact, unsure.whole.in_time_least, unsure.whole.in_time_most, unsure.whole.met) == (False, 48, 60, None)
    wrongs: list[tuple[dict[str, Any], str]] = [({"ttft": "5"}, "ttft"), ({"tpot": "2h"}, "tpot"), ({"percentile": 0.5}, "percentile")]
    for wrong, field in wrongs:
        with pytest.raises(ApiProblem, match=field):
            await api.viewer.slo_what_if(CHAT, **wrong)
