"""Schedules over HTTP and in Postgres: lists, bounds at an instant, and the outcome of each start."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.pool_states import PoolState, SchedulesInForce
from fairlead.pools import parse_spec
from fairlead.schedules.in_force import in_force
from fairlead.schedules.runs import RunOutcome, RunReason
from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_state, an_instance

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)


def at(hour: float) -> datetime:
    return MONDAY + timedelta(hours=hour)


def schedule(name: str, cron: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "cron": cron, "duration": "2h", "slo": {"ttft": "2s"}, **fields}


def state(number: int, instant: datetime, *schedules: dict[str, Any], uid: str = "u1") -> PoolState:
    """Return the operator's state at an instant for a pool with these schedules."""
    document = {**SPEC, "scaling": {"schedules": list(schedules)}}
    spec = parse_spec(document)
    found = in_force(spec.scaling.schedules, instant)
    overruled = {one.name: " and ".join(found.overruling(one)) for one in spec.scaling.schedules if found.is_open(one.name)}
    told = SchedulesInForce(
        at=instant,
        windows=found.windows,
        slo=found.slo(spec.slo),
        early_rejection=found.early_rejection(spec.early_rejection),
        overruled={name: by for name, by in overruled.items() if by},
    )
    made = a_state(an_instance("a"), version=number, generation=number, spec=document)
    return PoolState(**{name: getattr(made, name) for name in PoolState.__slots__} | {"schedules": told})


async def runs(api: ApiInstance, **filters: str) -> list[tuple[str, float, RunOutcome, RunReason | None]]:
    found = (await api.viewer.schedule_runs(filters)).items
    return [(run.schedule, (run.start - MONDAY).total_seconds() / 3600, run.outcome, run.reason) for run in found]


async def test_a_window_changes_the_table_and_takes_it_back(api: ApiInstance) -> None:
    day = schedule("day", "0 8 * * *", earlyRejection={"mode": "Load"})
    for number, hour, ttft, mode in ((1, 7, 5.0, "Disabled"), (2, 8, 2.0, "Load"), (3, 10, 5.0, "Disabled")):
        await api.pool_operator.put_pool_state(CHAT, state(number, at(hour), day))
        table = (await api.router.tables())[CHAT]
        assert (table.version, table.slo.ttft_seconds, table.early_rejection.mode) == (number, ttft, mode)
    assert [version.ttft_seconds for version in (await api.viewer.slo_versions(CHAT)).items] == [5.0, 2.0, 5.0]


async def test_a_deleted_pool_leaves_no_window_open(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, state(1, at(8), schedule("day", "0 8 * * *")))
    assert await runs(api) == [("day", 8, RunOutcome.OPEN, None)]
    await api.pool_operator.delete_pool(CHAT)
    assert await runs(api) == [("day", 8, RunOutcome.CLOSED, RunReason.REMOVED)]


async def test_a_refused_spec_does_not_keep_a_window_open(api: ApiInstance) -> None:
    day = schedule("day", "0 8 * * *")
    await api.pool_operator.put_pool_state(CHAT, state(1, at(8), day))
    after = state(2, at(10), day)
    refused = PoolState(**{name: getattr(after, name) for name in PoolState.__slots__} | {"spec": {"model": 1}, "problem": "spec.model"})
    await api.pool_operator.put_pool_state(CHAT, refused)
    assert (await api.router.tables())[CHAT].slo.ttft_seconds == 5.0
    assert await runs(api) == [("day", 8, RunOutcome.CLOSED, RunReason.ENDED)]


async def test_while_a_spec_is_refused_the_schedules_in_force_are_listed(api: ApiInstance) -> None:
    day, late = schedule("day", "0 8 * * *"), schedule("late", "0 9 * * *")
    await api.pool_operator.put_pool_state(CHAT, state(1, at(0), day))
    after = state(2, at(1), late)
    refused = PoolState(**{name: getattr(after, name) for name in PoolState.__slots__} | {"problem": "routing.policy: unknown"})
    await api.pool_operator.put_pool_state(CHAT, refused)
    assert [one.name for one in (await api.viewer.schedules({})).items] == ["day"]
    assert (await api.viewer.schedule(CHAT, "day")).schedule.name == "day"
    assert (await api.viewer.bounds(CHAT, at="2026-11-23T08:30:00Z")).deciding == {"slo": ["day"]}


async def test_a_long_list_of_schedules_is_read_page_by_page(api: ApiInstance) -> None:
    code = PoolKey(namespace="default", name="code")
    some = [schedule(name, "0 8 * * *") for name in ("c", "a", "b")]
    for number, (pool, uid) in enumerate(((CHAT, "uid-1"), (code, "uid-2")), 1):
        made = state(number, at(0), *some)
        await api.pool_operator.put_pool_state(
            pool, PoolState(**{name: getattr(made, name) for name in PoolState.__slots__} | {"uid": uid})
        )
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = await api.viewer.schedules({"limit": "2", **({"cursor": cursor} if cursor else {})})
        found += [(one.pool, one.name) for one in page.items]
        cursor, pages = page.next_cursor, pages + 1
        assert page.total == 6
    assert found == [(f"default/{pool}", name) for pool in ("chat", "code") for name in ("a", "b", "c")]
    assert pages == 3


async def test_each_start_is_recorded_once_with_what_became_of_it(api: ApiInstance) -> None:
    day, other = schedule("day", "0 8 * * *"), schedule("other", "0 8 * * *", slo={"ttft": "3s"})
    await api.pool_operator.put_pool_state(CHAT, state(1, at(7), day))
    for number in (2, 3):
        await api.pool_operator.put_pool_state(CHAT, state(number, at(8), day, other))
    overruled = ("other", 8.0, RunOutcome.SKIPPED, RunReason.OVERRULED)
    assert sorted(await runs(api)) == [("day", 8, RunOutcome.OPEN, None), overruled]
    [run] = (await api.viewer.schedule_runs({"schedule": "other"})).items
    assert run.overruled_by == "day"
    await api.pool_operator.put_pool_state(CHAT, state(4, at(10), day))
    assert sorted(await runs(api)) == [("day", 8, RunOutcome.CLOSED, RunReason.ENDED), overruled]


@pytest.mark.parametrize(
    ("edited", "reason"),
    [
        ({"paused": True}, RunReason.PAUSED),
        ({"skip": ["2026-11-23T08:00:00Z"]}, RunReason.SKIP),
        ({"duration": "1m"}, RunReason.CHANGED),
        (None, RunReason.REMOVED),
    ],
)
async def test_a_window_that_closes_early_says_why(api: ApiInstance, edited: dict[str, Any] | None, reason: RunReason) -> None:
    day = schedule("day", "0 8 * * *")
    await api.pool_operator.put_pool_state(CHAT, state(1, at(8), day))
    await api.pool_operator.put_pool_state(CHAT, state(2, at(9), *([] if edited is None else [day | edited])))
    assert await runs(api) == [("day", 8, RunOutcome.CLOSED, reason)]


async def test_starts_without_a_window_are_recorded_with_the_reason(api: ApiInstance) -> None:
    hourly = schedule("hourly", "0 * * * *", duration="5m")
    await api.pool_operator.put_pool_state(CHAT, state(1, at(7.5), hourly))
    await api.pool_operator.put_pool_state(CHAT, state(2, at(8.5), hourly | {"paused": True}))
    await api.pool_operator.put_pool_state(CHAT, state(3, at(9.5), hourly | {"skip": ["2026-11-23T09:00:00Z"]}))
    await api.pool_operator.put_pool_state(CHAT, state(4, at(11.5), hourly))
    assert await runs(api) == [
        ("hourly", 11, RunOutcome.SKIPPED, RunReason.MISSED),
        ("hourly", 10, RunOutcome.SKIPPED, RunReason.MISSED),
        ("hourly", 9, RunOutcome.SKIPPED, RunReason.SKIP),
        ("hourly", 8, RunOutcome.SKIPPED, RunReason.PAUSED),
    ]
    assert await runs(api, outcome="open") == []


async def test_a_schedule_made_or_changed_while_no_state_came_has_skipped_no_start(api: ApiInstance) -> None:
    kept, moved = schedule("kept", "0 * * * *", duration="5m"), schedule("moved", "30 * * * *", duration="5m")
    await api.pool_operator.put_pool_state(CHAT, state(1, at(7.75), kept, moved))
    late, elsewhere = schedule("late", "10 * * * *", duration="5m"), schedule("moved", "30 * * * *", duration="5m", timeZone="Asia/Kolkata")
    await api.pool_operator.put_pool_state(CHAT, state(2, at(9.75), kept, elsewhere, late))
    told = [("kept", hour, RunOutcome.SKIPPED, RunReason.MISSED) for hour in (9.0, 8.0)]
    assert await runs(api) == told
    await api.pool_operator.put_pool_state(CHAT, state(3, at(10.25), kept, elsewhere, late))
    assert {run[0] for run in await runs(api)} == {"kept", "moved", "late"}, "from then on they are watched"


async def test_a_clock_that_went_back_opens_the_same_run_again(api: ApiInstance) -> None:
    day = schedule("day", "0 8 * * *")
    for number, hour in enumerate((8, 11, 9), 1):
        await api.pool_operator.put_pool_state(CHAT, state(number, at(hour), day))
    [run] = (await api.viewer.schedule_runs()).items
    assert (run.outcome, run.opened_at, run.closed_at) == (RunOutcome.OPEN, at(8), None)


async def test_schedules_are_listed_with_their_next_starts_and_asked_at_any_instant(api: ApiInstance) -> None:
    day = schedule("day", "0 8 * * 1-5", timeZone="Europe/Berlin", roles=[{"name": "both", "minReplicas": 2}])
    late = schedule("late", "0 9 * * *", timeZone="Europe/Berlin")
    await api.pool_operator.put_pool_state(CHAT, state(1, at(0), day, late))
    listed = (await api.viewer.schedules({"pool": str(CHAT)})).items
    assert [(one.name, one.cron_words, one.time_zone) for one in listed] == [
        ("day", "at 08:00, Monday to Friday", "Europe/Berlin"),
        ("late", "at 09:00, every day", "Europe/Berlin"),
    ]
    assert len(listed[0].next_starts) == 10
    detail = await api.viewer.schedule(CHAT, "day", start="2026-11-23T00:00:00Z")
    assert len([window for window in detail.windows if window.schedule == "day"]) == 5
    assert [(one.schedule, one.other, one.decided_by) for one in detail.conflicts] == [("day", "late", "late")] * 5
    summer = await api.viewer.bounds(CHAT, at="2027-07-01T06:30:00Z")
    assert (summer.roles[0].min_replicas, summer.roles[0].replicas, summer.roles[0].schedule) == (2, 2, "day")
    assert (summer.ttft_seconds, summer.deciding) == (2.0, {"both": ["day"], "slo": ["day"]})
    winter = await api.viewer.bounds(CHAT, at="2027-01-04T06:30:00Z")
    assert (winter.windows, winter.ttft_seconds, winter.next_change) == ([], 5.0, datetime(2027, 1, 4, 7, tzinfo=UTC))
    for path in (api.viewer.schedule(CHAT, "none"), api.viewer.bounds(CHAT, at="someday")):
        with pytest.raises(ApiProblem):
            await path
