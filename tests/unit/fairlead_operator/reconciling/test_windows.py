"""Schedules in the operator: the values in force depend only on the present time, on a fake cluster in virtual time."""

from datetime import UTC, datetime
from typing import Any

from fairlead.pool_states import SchedulesInForce
from fairlead_testing.worlds.operator_stages import SETTINGS, VirtualStage

DAY = 86_400.0
ROLES = [{"name": "both", "minReplicas": 6}]


def instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def schedule(*starts: float, **fields: Any) -> dict[str, Any]:
    """Return a schedule that opens at these instants, and otherwise once in a leap year."""
    return {
        "name": "peak",
        "cron": "0 0 29 2 *",
        "duration": "5m",
        "runAt": [instant(start) for start in starts],
        "roles": [{"name": "both", "minReplicas": 4}],
        "slo": {"ttft": "2s"},
        "earlyRejection": {"mode": "Load"},
        **fields,
    }


async def staged(*schedules: dict[str, Any], ahead: float = 600) -> tuple[VirtualStage, float]:
    """Return a settled pool of two instances, and an instant `ahead` of now."""
    stage = VirtualStage()
    start = float(int(stage.now + ahead))
    stage.apply(replicas=2, scaling={"schedules": [one | {"runAt": [instant(start)]} for one in schedules]})
    await stage.settle()
    return stage, start


def told(stage: VirtualStage) -> SchedulesInForce:
    found = stage.api.states[-1].schedules
    assert found is not None
    return found


async def test_a_window_scales_the_pool_changes_what_tables_carry_and_takes_both_back() -> None:
    stage, start = await staged(schedule())
    assert len(stage.pods()) == 2
    assert stage.pool()["status"]["schedules"] == [{"name": "peak", "next": instant(start)}]
    stage.now = start
    await stage.settle()
    assert len(stage.pods()) == 4
    assert (told(stage).slo.ttft_seconds, told(stage).early_rejection.mode) == (2.0, "Load")
    [line] = stage.pool()["status"]["schedules"]
    assert (line["opened"], line["closes"]) == (instant(start), instant(start + 300))
    [role] = stage.pool()["status"]["roles"]
    assert role["lastScale"]["reason"] == "schedule peak bounds it to 4 to 64"
    assert stage.pool()["spec"]["replicas"] == 2, "what a person declared stays"
    stage.now = start + 300
    await stage.settle()
    for _ in range(10):
        stage.now += 1
        await stage.round()
    assert len(stage.pods()) == 2
    assert (told(stage).windows, told(stage).slo.ttft_seconds, told(stage).early_rejection.mode) == ((), 5.0, "Disabled")
    events = {event.reason: event for event in stage.api.events if event.reason.startswith("Window")}
    assert events["WindowOpened"].message == f"The window of schedule peak is open from {instant(start)} until {instant(start + 300)}"
    assert events["WindowClosed"].message == f"The window of schedule peak is closed: its end was {instant(start + 300)}"
    assert [stage.reasons().count(reason) for reason in ("WindowOpened", "WindowClosed")] == [1, 1]


async def test_the_status_has_the_slo_in_force_and_shares_only_while_they_are_known() -> None:
    stage, start = await staged(schedule())
    assert stage.pool()["status"]["slo"] == {"ttft": "5s", "tpot": "100ms", "percentile": 90.0}
    stage.api.slo_attainment, stage.now = 0.75, start
    await stage.settle()
    assert stage.pool()["status"]["slo"] == {"ttft": "2s", "tpot": "100ms", "percentile": 90.0, "attainment": 0.75}
    stage.api.up, stage.now = False, start + 300
    for _ in range(25):
        stage.now += 1
        await stage.round()
    assert stage.condition("SLOMet")["reason"] == "ControlPlaneUnreachable"
    assert stage.pool()["status"]["slo"] == {"ttft": "5s", "tpot": "100ms", "percentile": 90.0}, "as SLOMet: Attainment is not known"


async def test_shares_are_kept_for_two_minutes_without_an_answer_unless_other_targets_come_in_force() -> None:
    """A busy control API sometimes answers too late while requests flow."""
    stage, start = await staged(schedule())
    stage.api.slo_attainment, stage.now = 0.75, start

    async def away(seconds: int) -> tuple[str, float | None]:
        stage.api.up = False
        for _ in range(seconds):
            stage.now += 1
            await stage.round()
        return stage.condition("SLOMet")["reason"], stage.pool()["status"]["slo"].get("attainment")

    await stage.settle()
    assert await away(100) == ("TargetMissed", 0.75)
    assert stage.condition("SLOMet")["message"].endswith("; the control API has not answered since")
    assert stage.condition("ControlPlaneReachable")["status"] == "False"
    assert await away(30) == ("ControlPlaneUnreachable", None)
    stage.api.up, stage.now = True, start + 270
    await stage.settle()
    assert await away(25) == ("TargetMissed", 0.75)
    assert await away(10) == ("ControlPlaneUnreachable", None), "the window closed, and nobody judged by the targets now in force"


async def test_the_operator_wakes_at_the_next_change_at_the_latest() -> None:
    stage, start = await staged(schedule())
    stage.now = start - 3
    due = await stage.round()
    assert due is not None
    assert due <= 3
    stage.now = start - 10 * SETTINGS.pace.settled
    assert await stage.round() == SETTINGS.pace.settled


async def test_an_operator_that_was_away_at_the_start_does_what_is_in_force_now() -> None:
    stage, start = await staged(schedule())
    stage.restart()
    stage.now = start + 100
    await stage.settle()
    assert len(stage.pods()) == 4
    stage.restart()
    await stage.settle()
    assert stage.reasons().count("WindowOpened") == 1


async def test_an_operator_that_was_away_for_the_whole_window_does_nothing() -> None:
    stage, start = await staged(schedule())
    stage.now = start + DAY
    await stage.settle()
    assert len(stage.pods()) == 2
    assert "WindowOpened" not in stage.reasons()


async def test_a_clock_that_jumps_back_and_forth_ends_where_it_would_have_been() -> None:
    stage, start = await staged(schedule())
    for now in (start + 10, start - 100, start + 20, start + DAY, start + 30):
        stage.now = now
        await stage.settle()
    assert len(stage.pods()) == 4
    assert told(stage).slo.ttft_seconds == 2.0


async def test_a_pause_takes_back_what_the_window_set() -> None:
    stage, start = await staged(schedule())
    stage.now = start
    await stage.settle()
    stage.apply(replicas=2, scaling={"schedules": [schedule(start, paused=True)]})
    await stage.settle()
    assert told(stage).slo.ttft_seconds == 5.0
    closed = [event.message for event in stage.api.events if event.reason == "WindowClosed"]
    assert closed == ["The window of schedule peak is closed: the schedule was changed, skipped, paused or suspended, or the clock was set"]


async def test_a_refused_edit_leaves_the_window_of_the_last_good_spec_open() -> None:
    stage, start = await staged(schedule())
    stage.apply(replicas=2, scaling={"schedules": [schedule(start, timeZone="Europe/Belin")]})
    await stage.settle()
    assert "spec.scaling.schedules[0].timeZone" in stage.condition("Ready")["message"]
    assert "Europe/Berlin" in stage.condition("Ready")["message"]
    stage.now = start
    await stage.settle()
    assert len(stage.pods()) == 4


async def test_a_schedule_that_decides_nothing_is_told_with_who_does() -> None:
    one, other = schedule(name="one", roles=[], earlyRejection=None), schedule(name="other", roles=[], earlyRejection=None)
    stage, start = await staged(one, other)
    stage.now = start
    await stage.round()
    assert told(stage).overruled == {"other": "one"}


async def test_a_rollout_keeps_the_fewest_instances_that_an_open_window_allows() -> None:
    stage, start = await staged(schedule(duration="1h"))
    stage.now = start
    while stage.condition("Ready")["message"] != "4 of 4 instances serve":
        await stage.settle()
    window = [schedule(start, duration="1h")]
    former = {pod["metadata"]["name"] for pod in stage.pods()}
    stage.apply(
        replicas=2,
        engine={"prefillTokensPerSecond": 2000},
        rollout={"maxSurge": 1, "maxUnavailable": 1},
        scaling={"schedules": window},
    )
    serving = []
    for _ in range(120):
        stage.pods_become_ready()
        stage.now += 1
        await stage.round()
        serving.append(stage.pool()["status"]["serving"])
    assert not former & {pod["metadata"]["name"] for pod in stage.pods()}
    assert min(serving) == 4, "the role's own minimum would allow three"


async def test_the_surge_of_a_rollout_may_go_above_a_windows_maximum() -> None:
    stage, start = await staged(schedule(roles=[{"name": "both", "maxReplicas": 2}]))
    stage.now = start
    await stage.settle()
    schedules = stage.pool()["spec"]["scaling"]
    stage.apply(replicas=5, engine={"prefillTokensPerSecond": 2000}, scaling=schedules)
    pods = []
    for _ in range(4):
        stage.pods_become_ready()
        stage.now += 1
        await stage.round()
        pods.append(len(stage.pods()))
    assert max(pods) == 3, "two by the window, one of the surge"
    assert stage.pool()["status"]["desired"] == 2


async def test_windows_that_follow_each_other_without_a_gap_are_one_for_people() -> None:
    """Windows of two minutes start each minute, so that each begins before the one before it ends."""
    stage = VirtualStage()
    stage.apply(replicas=1, scaling={"schedules": [schedule(cron="* * * * *", duration="2m")]})
    for _ in range(20):
        stage.pods_become_ready()
        stage.now += 30
        await stage.round()
    assert stage.reasons().count("WindowOpened") == 1
    assert "WindowClosed" not in stage.reasons()


async def test_of_two_windows_at_one_second_the_one_that_ends_comes_first_in_the_history() -> None:
    stage = VirtualStage()
    start = float(int(stage.now + 600))
    two = [schedule(start), schedule(start + 300, name="other", roles=[{"name": "both", "minReplicas": 3}])]
    stage.apply(replicas=1, scaling={"schedules": two})
    for moment in (stage.now, start, start + 300):
        stage.now = moment
        await stage.settle()
    windows = sorted((event.at, event.reason) for event in stage.api.events if event.reason.startswith("Window"))
    assert [reason for _, reason in windows] == ["WindowOpened", "WindowClosed", "WindowOpened"]
    assert len({at for at, _ in windows}) == 3


async def test_demand_outside_of_the_forecast_suspends_the_schedules_that_follow_it_until_it_is_back() -> None:
    stage, start = await staged(schedule(duration="4h"), schedule(duration="4h", name="forecast-peak", followsForecast=True, roles=ROLES))
    stage.now = start
    await stage.settle()
    assert len(stage.pods()) == 6, "the larger bounds count"
    assert stage.condition("ForecastHolds")["status"] == "True"
    stage.api.departed = "demand is work for 9 instances, outside of the forecast's 1 to 2"
    await stage.settle()
    assert stage.condition("ForecastHolds")["status"] == "False"
    assert "work for 9 instances" in stage.condition("ForecastHolds")["message"]
    [role] = stage.pool()["status"]["roles"]
    assert role["desired"] == 4, "the schedule that a person wrote is in force"
    assert told(stage).overruled["forecast-peak"].startswith("scaling without the forecast")
    stage.api.departed = ""
    await stage.settle()
    assert stage.pool()["status"]["roles"][0]["desired"] == 6


async def test_without_an_answer_a_suspension_stays_as_it_is() -> None:
    stage, start = await staged(schedule(duration="4h", followsForecast=True))
    stage.now = start
    stage.api.departed = "demand is work for 9 instances, outside of the forecast's 1 to 2"
    await stage.settle()
    assert stage.pool()["status"]["roles"][0]["desired"] == 2
    stage.api.up = False
    await stage.settle()
    assert stage.pool()["status"]["roles"][0]["desired"] == 2
    assert stage.condition("ForecastHolds")["status"] == "False"


async def test_a_pool_without_such_schedules_has_no_condition_of_a_forecast() -> None:
    stage, _ = await staged(schedule())
    assert "ForecastHolds" not in {one["type"] for one in stage.pool()["status"]["conditions"]}
