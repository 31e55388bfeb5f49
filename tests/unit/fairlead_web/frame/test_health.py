"""The health of a pool, judged by its own objective."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fairlead_client.resources.pools import PoolCondition
from fairlead_testing.fakes.public_data.loads import CHAT, CODE
from fairlead_testing.fakes.public_data.world import World
from fairlead_web.frame.health import condition_level, health_of, pain

WORLD = World(now=datetime(2026, 11, 21, 10, 0, tzinfo=UTC))
QUIET = replace(WORLD.pool(CHAT), rejections_per_second=0.0, draining=0)


@pytest.mark.parametrize(
    ("percentile", "attainment", "level"),
    [(90.0, 0.9, "good"), (90.0, 0.89, "bad"), (99.0, 0.95, "bad"), (50.0, 0.6, "good"), (99.0, None, "good")],
)
def test_a_pool_is_held_against_its_own_percentile(percentile: float, attainment: float | None, level: str) -> None:
    pool = replace(QUIET, slo_percentile=percentile, attainment=attainment)
    assert health_of(pool).level == level


@pytest.mark.parametrize(("both", "level"), [(0.9, "good"), (0.012, "bad")])
def test_first_tokens_in_time_do_not_make_up_for_slow_answers(both: float, level: str) -> None:
    assert health_of(replace(QUIET, slo_percentile=90.0, attainment=0.996, slo_attainment=both)).level == level


def test_a_ready_pool_out_of_its_slo_says_both() -> None:
    assert health_of(replace(QUIET, attainment=0.0)).words == "ready, out of SLO"


@pytest.mark.parametrize(
    ("served", "refused", "level"), [(4.8, 5.2, "bad"), (None, 1.0, "bad"), (0.0, 1.0, "bad"), (9.9, 0.1, "warn"), (10.0, 0.0, "good")]
)
def test_a_ready_pool_that_refuses_requests_is_not_green_and_says_so(served: float | None, refused: float, level: str) -> None:
    health = health_of(replace(QUIET, slo_percentile=95.0, attainment=1.0, requests_per_second=served, rejections_per_second=refused))
    assert (health.level, health.words) == (level, "ready, refuses requests" if refused else "ready")


def test_a_pool_does_not_get_better_for_want_of_figures() -> None:
    unknown = replace(QUIET, attainment=None, slo_attainment=None, requests_per_second=None, figures_behind_seconds=700.0)
    assert (health_of(unknown).level, health_of(unknown).words) == ("warn", "ready, figures behind")
    assert pain(unknown) < pain(QUIET)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("No instance is desired until a request arrives", "asleep, wakes with the next request"),
        ("No instance is desired", "at zero, as declared"),
    ],
)
def test_a_pool_at_zero_says_whether_a_request_wakes_it(message: str, words: str) -> None:
    pool = replace(QUIET, desired=0, serving=0, ready_reason="ScaledToZero", ready_message=message)
    assert (health_of(pool).level, health_of(pool).words) == ("good", words)


def test_a_scale_up_is_a_notice_and_a_lost_instance_an_alarm() -> None:
    starting = replace(QUIET, ready=False, ready_reason="InstancesStarting", serving=4, desired=6)
    assert (health_of(starting).level, health_of(starting).words) == ("warn", "starting, 4 of 6 serve")
    lost = replace(QUIET, ready=False, ready_reason="InstancesLost")
    assert health_of(lost).level == "bad"


@pytest.mark.parametrize(("serving", "words"), [(3, "starting, 3 of 4 serve"), (4, "not ready yet"), (5, "not ready yet")])
def test_a_pool_whose_instances_all_serve_is_not_said_to_start_them(serving: int, words: str) -> None:
    pool = replace(QUIET, ready=False, ready_reason="InstancesStarting", serving=serving, desired=4)
    assert (health_of(pool).level, health_of(pool).words) == ("warn", words)


def test_what_hurts_most_comes_first() -> None:
    down = replace(QUIET, name="down", ready=False, ready_reason="InstancesLost")
    worse = replace(QUIET, name="worse", attainment=0.1)
    late = replace(QUIET, name="late", attainment=0.8)
    refusing = replace(QUIET, name="refusing", rejections_per_second=1.0)
    starting = replace(QUIET, name="starting", ready=False, ready_reason="InstancesStarting")
    well = replace(QUIET, name="a-well")
    mixed = [well, starting, refusing, late, worse, down]
    assert [pool.name for pool in sorted(mixed, key=pain)] == ["down", "worse", "late", "refusing", "starting", "a-well"]


@pytest.mark.parametrize(
    ("kind", "status", "reason", "level"),
    [
        ("SLOMet", "Unknown", "NoTraffic", "plain"),
        ("Ready", "False", "InstancesStarting", "warn"),
        ("Ready", "False", "InstancesLost", "bad"),
        ("Degraded", "True", "InstancesLost", "bad"),
        ("Degraded", "False", "AsExpected", "good"),
        ("Progressing", "True", "Draining", "warn"),
        ("Progressing", "False", "Settled", "good"),
        ("Progressing", "False", "RolloutPaused", "warn"),
        ("SLOMet", "False", "TargetMissed", "bad"),
        ("ScalingActive", "True", "ValidSignalsFound", "good"),
        ("ScalingActive", "False", "ScalingDisabled", "plain"),
        ("ScalingActive", "False", "NoSignals", "warn"),
        ("ScalingLimited", "False", "DesiredWithinRange", "good"),
        ("ScalingLimited", "True", "TooManyReplicas", "warn"),
    ],
)
def test_a_conditions_mark_alarms_only_when_something_is_wrong(kind: str, status: str, reason: str, level: str) -> None:
    assert condition_level(PoolCondition(type=kind, status=status, reason=reason, message="")) == level


def test_the_fake_pools_differ_in_health() -> None:
    assert [health_of(WORLD.pool(name)).level for name in (CHAT, CODE)] == ["warn", "bad"]
