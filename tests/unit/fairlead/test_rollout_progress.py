"""A rollout is watched: paused by people, stopped by failures, reported when late, and judged again after a change."""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.observed import ObservedInstance, PodHealth
from fairlead.reconciling.rollout_progress import Rollout, RolloutTrouble, halts, watch
from fairlead.rollout_specs import RegressionSpec, RolloutSpec
from fairlead_testing.worlds.pool_worlds import answer, instance, wanted

S = InstanceState
START = 1000.0
SPEC = RolloutSpec(regression=RegressionSpec(attainment_drop=10, window_seconds=60))
WANTED = (wanted(2, spec_hash="new"),)
OLD = (instance("a", spec_hash="old"), instance("b", spec_hash="old"))


def measured(attainment: float | None) -> PoolObservations:
    return replace(answer(), slo_attainment=attainment)


def seen(
    before: Rollout | None,
    *more: ObservedInstance,
    after: float = 0.0,
    attainment: float | None = 0.95,
    spec: RolloutSpec = SPEC,
    key: str = "k",
) -> Rollout | None:
    """Return the rollout's progress this long after its start, with two old instances and some `more`."""
    return watch(before, key, spec, WANTED, (*OLD, *more), measured(attainment), START + after)


def going(*more: ObservedInstance, after: float = 0.0, attainment: float | None = 0.95, before: Rollout | None = None) -> Rollout:
    rollout = seen(before, *more, after=after, attainment=attainment)
    assert rollout is not None
    return rollout


def test_there_is_no_rollout_while_all_instances_are_up_to_date() -> None:
    assert watch(None, "k", SPEC, WANTED, (instance("a", spec_hash="new"),), measured(0.9), START) is None
    updated = (instance("a", spec_hash="new"), instance("b", spec_hash="new"))
    assert watch(going(), "k", SPEC, WANTED, updated, measured(0.9), START) is None, "it is finished"


def one(before: Rollout | None, *there: ObservedInstance, replicas: int = 1, after: float = 0.0) -> Rollout | None:
    """Return the rollout of a pool of one instance."""
    return watch(before, "k", SPEC, (wanted(replicas, maximum=1, spec_hash="new"),), there, measured(0.95), START + after)


def test_without_room_for_a_surge_it_goes_on_until_the_successor_serves() -> None:
    drains, gone = instance("a", S.DRAINING, spec_hash="old"), instance("a", S.DRAINING, spec_hash="old", terminating=True)
    begun = one(None, OLD[0])
    assert one(begun, drains) == begun
    assert one(begun, gone) == begun
    assert one(begun) == begun, "the successor is not made yet"
    for state in (S.PENDING, S.STARTING, S.WARMING, S.LOST):
        assert one(begun, instance("n", state, spec_hash="new")) == begun
    assert one(begun, instance("n", spec_hash="new")) is None
    assert one(begun, instance("n", S.STARTING, spec_hash="new"), replicas=0) is None, "no instance is desired"


def test_without_room_for_a_surge_a_successor_that_fails_stops_it_and_one_that_does_not_come_is_late() -> None:
    begun = one(None, OLD[0])
    failing = replace(instance("n", S.STARTING, spec_hash="new"), failures=1)
    stopped = one(one(begun, failing, after=5), failing, after=65)
    assert stopped is not None
    assert stopped.regressed
    late = one(begun, instance("n", S.STARTING, spec_hash="new"), after=700)
    assert late is not None
    assert late.trouble(SPEC, START + 700) == (RolloutTrouble.LATE, "0 instances updated, no further instance for 700 s")


def test_what_drains_since_fewer_are_wanted_does_not_prolong_it() -> None:
    surplus = instance("b", S.DRAINING, spec_hash="old", drained_as_surplus=True)
    assert one(one(None, OLD[0]), instance("n", spec_hash="new"), surplus) is None


def test_it_begins_with_the_attainment_of_that_moment() -> None:
    assert going() == Rollout(key="k", began_at=START, attainment_before=0.95, updated_at=START)


def test_an_attainment_that_stays_down_for_the_window_stops_it() -> None:
    down = going(before=going(), after=10, attainment=0.84)
    assert down.worse_since == START + 10
    assert not halts(down, SPEC)
    stopped = going(before=down, after=70, attainment=0.84)
    assert halts(stopped, SPEC)
    assert stopped.trouble(SPEC, START + 70) == (
        RolloutTrouble.REGRESSED,
        "SLO attainment 84.0 %, 95.0 % when the rollout began; roll back, or change the pool to go on",
    )
    assert going(before=stopped, after=500, attainment=1.0) == stopped, "it does not go on by itself"


def test_an_attainment_that_recovers_in_time_stops_nothing() -> None:
    down = going(before=going(), after=10, attainment=0.5)
    up = going(before=down, after=50, attainment=0.9)
    assert up.worse_since is None
    assert not halts(going(before=up, after=100, attainment=0.5), SPEC)


@pytest.mark.parametrize("attainment", [0.86, None])
def test_a_small_drop_and_an_unknown_attainment_stop_nothing(attainment: float | None) -> None:
    assert going(before=going(), after=500, attainment=attainment).worse_since is None


def test_updated_instances_that_fail_stop_it() -> None:
    lost = instance("n", S.LOST, spec_hash="new", health=PodHealth.RUNNING)
    again = replace(instance("m", S.STARTING, spec_hash="new"), failures=1)
    first = going(lost, before=going(), after=5)
    stopped = going(again, before=first, after=65)
    assert stopped.measured == "1 of 1 updated instances fail (m)"
    assert stopped.regressed


def test_a_lost_node_is_not_the_templates_fault() -> None:
    lost = instance("n", S.LOST, spec_hash="new")
    assert lost.health is PodHealth.UNREACHABLE
    assert going(lost, before=going(), after=500).worse_since is None


def test_paused_it_waits_and_its_clock_too() -> None:
    paused = replace(SPEC, paused=True)
    waiting = seen(going(), after=10_000, spec=paused)
    assert waiting is not None
    assert halts(waiting, paused)
    assert waiting.trouble(paused, START + 10_000) == (RolloutTrouble.PAUSED, "rollout.paused is true")
    assert waiting.trouble(SPEC, START + 10_000) is None, "no deadline has passed"


def test_a_rollout_without_progress_says_so_and_goes_on() -> None:
    late = going(before=going(), after=700)
    assert late.trouble(SPEC, START + 700) == (RolloutTrouble.LATE, "0 instances updated, no further instance for 700 s")
    assert not halts(late, SPEC)
    updated = going(instance("n", spec_hash="new"), before=late, after=701)
    assert updated.trouble(SPEC, START + 701) is None


def test_a_change_of_revision_or_declaration_begins_anew() -> None:
    stopped = replace(going(), regressed=True, measured="worse")
    again = seen(stopped, after=90, attainment=0.7, key="other")
    assert again == Rollout(key="other", began_at=START + 90, attainment_before=0.7, updated_at=START + 90)


def test_a_clock_that_went_back_begins_the_window_again() -> None:
    down = going(before=going(), after=100, attainment=0.5)
    earlier = going(before=down, after=-100, attainment=0.5)
    assert earlier.worse_since == START - 100
    assert not earlier.regressed


def test_what_was_worse_stays_worse_while_figures_are_behind_and_its_window_goes_on() -> None:
    worse = going(before=going(), after=10.0, attainment=0.5)
    behind = replace(answer(), figures_behind_seconds=300.0)
    waiting = watch(worse, "k", SPEC, WANTED, OLD, behind, START + 200)
    assert waiting is not None
    assert (waiting.worse_since, waiting.regressed) == (worse.worse_since, False), "nothing is judged by what is missing"
    assert going(before=waiting, after=210.0, attainment=0.5).regressed
