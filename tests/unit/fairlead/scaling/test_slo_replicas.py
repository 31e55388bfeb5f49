"""Mode SLO: the number of instances that a role needs, and the steps to it."""

import itertools
from dataclasses import replace
from random import Random

import pytest

from fairlead.capabilities import declared
from fairlead.instances import Role
from fairlead.scaling.bounds import RoleBounds
from fairlead.scaling.decisions import sentence
from fairlead.scaling.recommendations import Cause, Hold, Verdict
from fairlead.scaling.signals import DecodeStep
from fairlead.scaling.sizing import Capacity, need
from fairlead.scaling.specs import ScaleDownSpec, ScaleUpSpec, ScalingMode, ScalingSpec
from fairlead.scaling.targets import Declared, TargetReason
from fairlead.tables import SloFacts
from fairlead_testing.builders.scaling import Rounds, declared_pool, declared_role, pool_signals, role_signals

SLO = ScalingSpec(mode=ScalingMode.SLO)
CAPACITY = Capacity(prefill_speed=declared(1000.0), kv_cache_tokens=1_000_000)


def slo_pool(scaling: ScalingSpec = SLO, replicas: int = 4) -> Declared:
    return declared_pool(declared_role(replicas=replicas), scaling=scaling)


def test_prompts_need_instances_by_uncached_tokens_and_measured_throughput() -> None:
    arriving = role_signals(prompt_tokens_per_second=10_000, cached_share=0.6, prefill_tokens_per_second=500.0)
    needed = need(arriving, SloFacts(), CAPACITY, SLO)
    assert needed.for_prompts == pytest.approx(10_000 * 0.4 / 500 / 0.8)
    assert needed.cause is Cause.PROMPTS


def test_nothing_is_scaled_by_a_declared_throughput() -> None:
    arriving = role_signals(prompt_tokens_per_second=4000, prefill_tokens_per_second=None)
    assert need(arriving, SloFacts(), CAPACITY, SLO).for_prompts is None


def test_a_queue_beyond_the_slo_needs_instances_that_work_it_off_in_time() -> None:
    late = role_signals(prompt_tokens_per_second=800, prefill_load=6.8)  # 6 SLOs of 5 s on 4 instances in 30 s
    needed = need(late, SloFacts(), CAPACITY, SLO)
    assert needed.for_queue == pytest.approx(4.0) and needed.instances == pytest.approx(5.0)
    assert needed.cause is Cause.QUEUE


def test_outputs_need_instances_by_the_largest_batch_within_the_slo() -> None:
    needed = need(role_signals(Role.DECODE, output_tokens_per_second=6000), SloFacts(), CAPACITY, SLO)
    assert needed.for_outputs == pytest.approx(4.0) and needed.for_prompts is None


def test_outputs_need_more_instances_where_memory_limits_the_batch() -> None:
    small = Capacity(prefill_speed=declared(1000.0), kv_cache_tokens=75_000)  # 60 contexts of 1,000 at 80 %: 50 ms a step
    needed = need(role_signals(Role.DECODE, output_tokens_per_second=6000), SloFacts(), small, SLO)
    assert needed.for_outputs == pytest.approx(5.0)


def test_without_a_model_of_decoding_the_need_is_in_proportion_to_the_load() -> None:
    needed = need(role_signals(Role.DECODE, decode_step=None, decode_load=1.2), SloFacts(), CAPACITY, SLO)
    assert needed.for_slow_outputs == pytest.approx(6.0) and needed.cause is Cause.SLOW_OUTPUTS


def test_a_target_that_no_number_of_instances_can_meet_asks_for_none() -> None:
    slow = DecodeStep(fixed_seconds=0.2, seconds_per_request=0.0005, seconds_per_context_token=0.0)
    needed = need(role_signals(Role.DECODE, decode_step=slow, decode_load=2.0, output_tokens_per_second=100), SloFacts(), CAPACITY, SLO)
    assert needed.instances is None


def test_a_role_for_which_nothing_arrives_shrinks_though_nothing_can_be_measured() -> None:
    unknown = {"cached_share": None, "decode_step": None, "decode_context_tokens": None, "decode_load": None, "prefill_load": None}
    for role in Role:
        rounds = Rounds(declared_pool(declared_role(role), scaling=SLO))
        rounds.rounds(pool_signals(role_signals(role, **unknown)), 1200)
        assert rounds.replicas(role) == 1


def test_a_role_grows_when_the_need_has_lasted_for_the_window() -> None:
    rounds = Rounds(slo_pool())
    busy = pool_signals(role_signals(prompt_tokens_per_second=4800))
    assert rounds.rounds(busy, 30).of(Role.BOTH).replicas == 4
    assert rounds.rounds(busy, 30).of(Role.BOTH).replicas == 6
    assert rounds.history() == [4, 6]
    assert rounds.outcomes[-1].of(Role.BOTH).reason is TargetReason.SLO
    held, applied = (one for outcome in rounds.outcomes for one in outcome.recommendations)
    assert (held.verdict, held.hold, held.recommended, held.replicas) == (Verdict.HELD, Hold.STABILIZING, 6, 4)
    assert (applied.verdict, applied.hold, applied.recommended, applied.replicas) == (Verdict.APPLIED, None, 6, 6)
    assert applied.need is not None and applied.need.instances == pytest.approx(6.0)


def test_a_short_burst_starts_nothing() -> None:
    rounds = Rounds(slo_pool())
    for _ in range(20):
        rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=9000)), 20)
        rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=3200)), 15)
    assert rounds.history() == [4]


def test_a_role_shrinks_to_the_highest_need_of_the_window() -> None:
    rounds = Rounds(slo_pool(replicas=10))
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=6400)), 60)
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=800)), 280)
    assert rounds.replicas() >= 8
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=800)), 1000)
    assert rounds.history() == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]


def test_growing_is_limited_to_the_larger_of_instances_and_percent_in_a_period() -> None:
    rules = ScaleUpSpec(stabilization_window_seconds=0.0, instances=1, percent=50, period_seconds=60.0)
    rounds = Rounds(slo_pool(ScalingSpec(mode=ScalingMode.SLO, scale_up=rules)))
    flood = pool_signals(role_signals(prompt_tokens_per_second=80_000))
    sizes = [rounds.rounds(flood, 60).of(Role.BOTH).replicas for _ in range(4)]
    assert sizes == [6, 9, 14, 16]
    holds = [one.hold for outcome in rounds.outcomes for one in outcome.recommendations if one.verdict is Verdict.APPLIED]
    assert holds == [Hold.STEP_LIMIT, Hold.STEP_LIMIT, Hold.STEP_LIMIT, Hold.AT_BOUND]


def test_a_direction_with_no_steps_allowed_is_closed() -> None:
    rules = ScaleDownSpec(stabilization_window_seconds=0.0, instances=0, percent=0)
    rounds = Rounds(slo_pool(ScalingSpec(mode=ScalingMode.SLO, scale_down=rules)))
    rounds.rounds(pool_signals(role_signals()), 3600, after=15)
    assert rounds.history() == [4]


def test_a_cooldown_keeps_steps_apart() -> None:
    rules = ScaleDownSpec(stabilization_window_seconds=0.0, instances=2, period_seconds=1.0, cooldown_seconds=120.0)
    rounds = Rounds(slo_pool(ScalingSpec(mode=ScalingMode.SLO, scale_down=rules), replicas=8))
    steps: list[float] = []
    for _ in range(200):
        before = rounds.replicas() if rounds.outcomes else 8
        rounds.round(pool_signals(role_signals()))
        steps += [rounds.now] if rounds.replicas() != before else []
    assert rounds.replicas() == 1 and len(steps) == 4
    assert all(later - earlier >= 120 for earlier, later in itertools.pairwise(steps))


def test_fewer_instances_wait_until_requests_meet_the_slo() -> None:
    rounds = Rounds(slo_pool())
    missing = pool_signals(role_signals(ttft_attainment=0.85))
    rounds.rounds(missing, 1200)
    assert rounds.history() == [4]
    assert [one.hold for outcome in rounds.outcomes for one in outcome.recommendations] == [Hold.SLO_MISSED]
    rounds.rounds(pool_signals(role_signals(ttft_attainment=0.95)), 1200)
    assert rounds.replicas() == 1


@pytest.mark.parametrize(("finished", "running", "shrinks"), [(1, 60, False), (19, 20, False), (19, 19, True), (20, 60, True)])
def test_no_instance_is_removed_by_the_few_short_answers_that_ended_while_long_ones_run(finished: int, running: int, shrinks: bool) -> None:
    rounds = Rounds(slo_pool())
    begun = role_signals(prompt_tokens_per_second=100, output_tokens_per_second=50, decode_load=0.7)
    rounds.rounds(pool_signals(replace(begun, finished_requests=finished, in_flight=running)), 900)
    assert (rounds.replicas() < 4) == shrinks


def test_a_need_within_the_tolerance_changes_nothing() -> None:
    rounds = Rounds(slo_pool(replicas=10))
    for rate in (7300.0, 8700.0) * 60:
        rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=rate)), 15)
    assert rounds.history() == [10] and not rounds.memory.roles[0].told


def test_a_changed_declaration_begins_anew() -> None:
    rounds = Rounds(slo_pool())
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=4800)), 120)
    rounds.pool = slo_pool(replicas=12)
    assert rounds.round(None).of(Role.BOTH).replicas == 12
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=4800)), 290)
    assert rounds.replicas() == 12


def test_after_a_pause_the_windows_begin_anew() -> None:
    rounds = Rounds(slo_pool())
    rounds.rounds(pool_signals(role_signals()), 295)
    rounds.round(pool_signals(role_signals()), after=7200)
    assert rounds.replicas() == 4
    rounds.rounds(pool_signals(role_signals()), 290)
    assert rounds.replicas() == 4


def test_advise_tells_what_slo_would_do_and_keeps_the_declared_number() -> None:
    rounds = Rounds(slo_pool(ScalingSpec(mode=ScalingMode.ADVISE)))
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=4800)), 300)
    assert rounds.history() == [4] and rounds.outcomes[-1].of(Role.BOTH).reason is TargetReason.DECLARED
    told = [one for outcome in rounds.outcomes for one in outcome.recommendations]
    assert [(one.verdict, one.replicas) for one in told] == [(Verdict.ADVISED, 6)]


def told_of(rounds: Rounds, since: int = 0) -> list[tuple[int, int, Hold | None]]:
    return [(one.recommended, one.replicas, one.hold) for outcome in rounds.outcomes[since:] for one in outcome.recommendations]


def test_advice_that_no_longer_holds_is_taken_back_once() -> None:
    rounds = Rounds(slo_pool(ScalingSpec(mode=ScalingMode.ADVISE)))
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=4800)), 300)
    before = len(rounds.outcomes)
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=3200)), 270)
    assert told_of(rounds, before) == [], "mode SLO would keep the instances for its stabilization window, too"
    outcome = rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=3200)), 300)
    assert told_of(rounds, before) == [(4, 4, None)] and outcome.targets[0].replicas == 4
    (taken_back,) = [one for seen in rounds.outcomes[before:] for one in seen.recommendations]
    assert sentence(taken_back).endswith("; the present 4 are recommended again; advised only")


def test_a_recommendation_that_only_a_bound_forbade_is_taken_back_too() -> None:
    bounded = declared_pool(declared_role(replicas=4, most=4), scaling=SLO)
    rounds = Rounds(bounded)
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=4800)), 60)
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=3200)), 60)
    assert told_of(rounds) == [(6, 4, Hold.AT_BOUND), (4, 4, None)]


def test_what_was_held_back_for_a_while_is_not_taken_back() -> None:
    rounds = Rounds(slo_pool())
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=1600)), 60)
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=3200)), 60)
    assert told_of(rounds) == [(2, 4, Hold.STABILIZING)]


def test_advice_that_stands_is_told_again_every_half_hour() -> None:
    rounds = Rounds(slo_pool(ScalingSpec(mode=ScalingMode.ADVISE)))
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=4800)), 3 * 3600)
    assert told_of(rounds) == [(6, 6, None)] * 6


@pytest.mark.parametrize("needed", [3.9, 4.5, 6.0, 8.5, 12.0])
@pytest.mark.parametrize("spread", [0.05, 0.1, 0.2])
def test_work_that_varies_changes_advice_as_seldom_as_it_changes_the_number_in_mode_slo(needed: float, spread: float) -> None:
    """Each change of advice causes a row, another proposed plan, and a notice."""
    changes = {}
    for mode in (ScalingMode.SLO, ScalingMode.ADVISE):
        rounds, works = Rounds(slo_pool(ScalingSpec(mode=mode))), Random(1)
        for _ in range(4 * 240):
            rounds.round(pool_signals(role_signals(prompt_tokens_per_second=works.gauss(needed, spread * needed) * 800)), 15)
        shown = [one for outcome in rounds.outcomes for one in outcome.recommendations if one.verdict is not Verdict.HELD]
        numbers = [one.replicas for one in shown]
        changes[mode] = sum(one != other for one, other in itertools.pairwise(numbers))
    assert changes[ScalingMode.ADVISE] <= changes[ScalingMode.SLO] + 6


def test_few_requests_that_run_for_long_keep_no_more_instances_than_they_are() -> None:
    """While most requests still run, finished ones say little, but one answer does not need ten instances."""
    rounds = Rounds(declared_pool(declared_role(replicas=10), scaling=SLO))
    signals = role_signals(prompt_tokens_per_second=10, finished_requests=0, in_flight=2, serving=10)
    rounds.rounds(pool_signals(signals), 3 * 3600, after=15)
    assert rounds.replicas() == 2
    rounds.rounds(pool_signals(replace(signals, in_flight=12)), 3600, after=15)
    assert rounds.replicas() == 2


def test_advice_is_taken_back_also_where_another_number_was_declared_meanwhile() -> None:
    """Its row stays until another is recorded. It would apply again when the first number is declared again."""
    rounds = Rounds(slo_pool(ScalingSpec(mode=ScalingMode.ADVISE)))
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=4800)), 300)
    before = len(rounds.outcomes)
    rounds.pool = replace(rounds.pool, roles=(declared_role(replicas=5),))
    rounds.round(None)
    rounds.pool = replace(rounds.pool, roles=(declared_role(replicas=4),))
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=3200)), 300)
    assert told_of(rounds, before) == [(4, 4, None)]


def test_a_window_of_a_schedule_bounds_what_the_slo_needs() -> None:
    rounds = Rounds(slo_pool())
    idle = pool_signals(role_signals())
    rounds.pool = declared_pool(scaling=SLO, windows=(RoleBounds(role=Role.BOTH, min_replicas=8, schedule="office"),))
    rounds.rounds(idle, 900)
    target = rounds.outcomes[-1].of(Role.BOTH)
    assert (target.replicas, target.reason, target.schedule, target.wanted) == (8, TargetReason.SCHEDULE, "office", 1)
    rounds.pool = slo_pool()
    rounds.rounds(idle, 900)
    assert rounds.replicas() == 1
