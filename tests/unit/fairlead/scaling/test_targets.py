"""The pipeline as a whole, over random histories: bounds, cooldowns, clocks, restarts, missing signals."""

import json
from dataclasses import asdict, replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import Role
from fairlead.scaling.bounds import RoleBounds
from fairlead.scaling.memory import ScalingMemory
from fairlead.scaling.signals import PoolSignals
from fairlead.scaling.specs import RatioMode, RatioSpec, ScalingMode, ScalingSpec
from fairlead.scaling.targets import Declared, TargetReason, step
from fairlead_testing.builders.scaling import Rounds, declared_pool, declared_role, pool_signals, role_signals
from fairlead_testing.examples import examples

LOADS = st.one_of(st.none(), st.floats(0, 5))
RATES = st.floats(0, 20_000)


@st.composite
def signals(draw: st.DrawFn) -> PoolSignals | None:
    roles = [
        role_signals(
            role,
            serving=draw(st.integers(0, 16)),
            prompt_tokens_per_second=draw(RATES),
            cached_share=draw(st.one_of(st.none(), st.floats(0, 1))),
            output_tokens_per_second=draw(RATES),
            prefill_load=draw(LOADS),
            decode_load=draw(LOADS),
            ttft_attainment=draw(st.one_of(st.none(), st.floats(0, 1))),
        )
        for role in draw(st.sampled_from([(Role.PREFILL, Role.DECODE), (Role.PREFILL,), ()]))
    ]
    return draw(st.one_of(st.none(), st.just(pool_signals(*roles, age_seconds=draw(st.sampled_from([1.0, 1e4]))))))


@st.composite
def pools(draw: st.DrawFn) -> Declared:
    roles = []
    windows = []
    for role in (Role.PREFILL, Role.DECODE):
        least, most = draw(st.integers(1, 5)), draw(st.integers(5, 16))
        roles.append(declared_role(role, draw(st.integers(least, most)), least, most))
        if draw(st.booleans()):
            low = draw(st.integers(0, 20))
            windows.append(RoleBounds(role=role, min_replicas=low, max_replicas=low + draw(st.integers(0, 9)), schedule="night"))
    return declared_pool(
        *roles,
        scaling=ScalingSpec(mode=draw(st.sampled_from(ScalingMode))),
        ratio=RatioSpec(mode=draw(st.sampled_from(RatioMode))),
        windows=tuple(windows),
    )


@given(pools(), st.lists(st.tuples(signals(), st.sampled_from([1.0, 5.0, 30.0, 120.0, 9000.0, -5.0, -7200.0])), max_size=30))
@examples(100)
def test_whatever_happens_the_numbers_are_within_their_bounds(pool: Declared, history: list[tuple[PoolSignals | None, float]]) -> None:
    rounds = Rounds(pool)
    for seen, after in history:
        outcome = rounds.round(seen, after)
        for target, role in zip(outcome.targets, pool.roles, strict=True):
            assert role.min_replicas <= target.bounds.lower <= target.replicas <= target.bounds.upper <= role.max_replicas
            assert target.replicas >= 1
        again, repeated = step(rounds.memory, pool, seen, rounds.now)
        assert again == rounds.memory and repeated.targets == outcome.targets and not repeated.recommendations


@given(pools(), st.lists(st.tuples(signals(), st.sampled_from([5.0, 30.0, 120.0])), min_size=10, max_size=40))
@examples(60)
def test_at_most_one_instance_moves_in_a_cooldown(pool: Declared, history: list[tuple[PoolSignals | None, float]]) -> None:
    rounds = Rounds(replace(pool, ratio=RatioSpec(mode=RatioMode.AUTO), scaling=ScalingSpec()))
    shift, moves = 0, [float("-inf")]
    for seen, after in history:
        rounds.round(seen, after)
        changed = rounds.memory.ratio.shift - shift
        shift = rounds.memory.ratio.shift
        if changed:
            assert abs(changed) == 1 and rounds.now - moves[-1] >= pool.ratio.cooldown_seconds
            moves.append(rounds.now)


@given(pools(), signals())
@examples(60)
def test_constant_signals_never_turn_a_number_back(pool: Declared, seen: PoolSignals | None) -> None:
    rounds = Rounds(pool)
    rounds.rounds(seen, 3600, after=30)
    for role in (Role.PREFILL, Role.DECODE):
        sizes = rounds.history(role)
        assert sizes in (sorted(sizes), sorted(sizes, reverse=True))
    assert len({(outcome.of(Role.PREFILL).replicas, outcome.of(Role.DECODE).replicas) for outcome in rounds.outcomes[-10:]}) == 1


@given(pools(), st.lists(st.tuples(signals(), st.sampled_from([5.0, 30.0, 120.0])), max_size=20))
@examples(60)
def test_without_signals_nothing_changes(pool: Declared, history: list[tuple[PoolSignals | None, float]]) -> None:
    rounds = Rounds(pool)
    for seen, after in history:
        rounds.round(seen, after)
    before = rounds.round(None)
    remembered = rounds.memory
    after_all = rounds.rounds(None, 3600, after=60)
    assert after_all.targets == before.targets and rounds.memory == remembered
    assert not after_all.recommendations and not after_all.measured


@given(pools(), st.lists(st.tuples(signals(), st.sampled_from([5.0, 30.0, 120.0, -600.0])), max_size=20))
@examples(60)
def test_the_memory_goes_through_json_unchanged(pool: Declared, history: list[tuple[PoolSignals | None, float]]) -> None:
    rounds = Rounds(pool)
    for seen, after in history:
        rounds.round(seen, after)
        assert msgspec.convert(json.loads(json.dumps(asdict(rounds.memory))), ScalingMemory) == rounds.memory


@given(st.sampled_from([-86_400.0, -3600.0, -60.0, 60.0, 3600.0, 86_400.0]))
def test_a_clock_that_jumps_costs_at_most_a_window_and_a_cooldown(jump: float) -> None:
    pool = declared_pool(scaling=ScalingSpec(mode=ScalingMode.SLO))
    rounds = Rounds(pool)
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=6400)), 120)
    assert rounds.replicas() == 8
    rounds.round(pool_signals(role_signals(prompt_tokens_per_second=6400)), after=jump)
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=6400)), 120)
    assert rounds.history() == [4, 8]
    rounds.rounds(pool_signals(role_signals(prompt_tokens_per_second=9600)), 120)
    assert rounds.history() == [4, 8, 12]


def test_fixed_numbers_are_the_declared_ones_in_their_bounds_and_need_no_memory() -> None:
    rounds = Rounds(declared_pool(windows=(RoleBounds(role=Role.BOTH, max_replicas=2, schedule="night"),)))
    target = rounds.round(pool_signals(role_signals(prompt_tokens_per_second=9000))).of(Role.BOTH)
    assert (target.replicas, target.reason, target.schedule, target.wanted) == (2, TargetReason.SCHEDULE, "night", 4)
    rounds.pool = declared_pool(declared_role(replicas=20))
    target = rounds.round(None).of(Role.BOTH)
    assert (target.replicas, target.reason, target.schedule) == (16, TargetReason.ROLE_BOUNDS, None)
    assert rounds.memory == ScalingMemory()


def test_a_window_cannot_go_beyond_the_roles_own_bounds() -> None:
    pool = declared_pool(windows=(RoleBounds(role=Role.BOTH, min_replicas=40, max_replicas=50, schedule="rush"),))
    assert Rounds(pool).round(None).of(Role.BOTH).replicas == 16


def test_a_pool_at_rest_is_written_only_when_something_is_compared() -> None:
    rounds = Rounds(declared_pool(scaling=ScalingSpec(mode=ScalingMode.SLO)))
    busy = pool_signals(role_signals(prompt_tokens_per_second=3200))
    rounds.round(busy)
    before = rounds.memory
    rounds.rounds(busy, 10, after=2)
    assert rounds.memory == before
    rounds.round(busy, after=15)
    assert rounds.memory != before
    assert len(json.dumps(asdict(rounds.memory))) < 1000
