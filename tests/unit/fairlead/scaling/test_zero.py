"""Scaling to zero and from zero in virtual time: what causes it, what forbids it, and that no request is lost."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead import capabilities
from fairlead.instances import Role
from fairlead.scaling.bounds import DeclaredRole, RoleBounds
from fairlead.scaling.decisions import sentence
from fairlead.scaling.memory import ScalingMemory
from fairlead.scaling.recommendations import Cause, Verdict
from fairlead.scaling.signals import PoolDemand
from fairlead.scaling.sizing import Capacity
from fairlead.scaling.specs import RatioSpec, ScalingMode, ScalingSpec, ZeroSpec
from fairlead.scaling.targets import Declared, ScalingOutcome, step
from fairlead.tables import SloFacts
from fairlead_testing.examples import examples

SPEC = ScalingSpec(mode=ScalingMode.SLO, zero=ZeroSpec(idle_after_seconds=600.0))
NOW = 1_000_000.0


def declared(*roles: tuple[Role, int], spec: ScalingSpec = SPEC, windows: tuple[RoleBounds, ...] = (), may_sleep: bool = True) -> Declared:
    return Declared(
        roles=tuple(
            DeclaredRole(role=role, replicas=number, min_replicas=0 if role is Role.BOTH else 1, max_replicas=8) for role, number in roles
        ),
        scaling=spec,
        ratio=RatioSpec(),
        slo=SloFacts(),
        capacity=Capacity(prefill_speed=capabilities.declared(1000.0), kv_cache_tokens=1_000_000),
        windows=windows,
        may_sleep=may_sleep,
    )


def demand(**changes: Any) -> PoolDemand:
    return replace(PoolDemand(held_requests=0, held_prompt_tokens=0, in_flight=0, idle_seconds=601.0), **changes)


def numbers(outcome: ScalingOutcome) -> list[int]:
    return [target.replicas for target in outcome.targets]


ALLOWS_ZERO = tuple(RoleBounds(role=role, min_replicas=0, max_replicas=2, schedule="night") for role in (Role.PREFILL, Role.DECODE))
ONE = declared((Role.BOTH, 3))
PAIR = declared((Role.PREFILL, 2), (Role.DECODE, 3))
HELD = demand(held_requests=20, held_prompt_tokens=70_000, idle_seconds=0.0)


@pytest.mark.parametrize("pool", [ONE, PAIR])
def test_a_pool_without_requests_goes_to_zero_as_a_whole_and_the_first_request_brings_it_back(pool: Declared) -> None:
    memory, outcome = step(ScalingMemory(), pool, None, NOW, demand())
    assert set(numbers(outcome)) == {0}
    assert {(one.cause, one.verdict, one.replicas) for one in outcome.recommendations} == {(Cause.IDLE, Verdict.APPLIED, 0)}
    memory, outcome = step(memory, pool, None, NOW + 3600, demand(idle_seconds=4200.0))
    assert (set(numbers(outcome)), outcome.recommendations) == ({0}, ())
    memory, outcome = step(memory, pool, None, NOW + 3601, HELD)
    assert numbers(outcome) == ([3] if pool is ONE else [3, 1]), "70 s of prompts within 30 s need three instances"
    assert {one.cause for one in outcome.recommendations} == {Cause.HELD}
    _, outcome = step(memory, pool, None, NOW + 3602, HELD)
    assert numbers(outcome) == ([3] if pool is ONE else [3, 1]), "while they start nothing more is added"


@pytest.mark.parametrize(
    "seen", [None, demand(idle_seconds=None), demand(idle_seconds=599.0), demand(in_flight=1), demand(held_requests=1), HELD]
)
def test_nothing_goes_to_zero_while_a_request_may_be_under_way_or_that_is_not_known(seen: PoolDemand | None) -> None:
    assert numbers(step(ScalingMemory(), ONE, None, NOW, seen)[1]) == [3]


def test_nothing_goes_to_zero_that_declares_a_least_number_or_whose_window_does() -> None:
    assert numbers(step(ScalingMemory(), replace(ONE, may_sleep=False), None, NOW, demand())[1]) == [3]
    window = RoleBounds(role=Role.BOTH, min_replicas=2, schedule="day")
    assert numbers(step(ScalingMemory(), replace(ONE, windows=(window,)), None, NOW, demand())[1]) == [3]


def test_a_window_with_a_least_number_brings_a_pool_back_without_a_request() -> None:
    memory, _ = step(ScalingMemory(), ONE, None, NOW, demand())
    window = RoleBounds(role=Role.BOTH, min_replicas=2, schedule="day")
    assert numbers(step(memory, replace(ONE, windows=(window,)), None, NOW + 60, demand())[1]) == [2]


def test_a_window_of_zero_holds_a_pool_at_zero_whatever_is_held() -> None:
    night = replace(ONE, windows=(RoleBounds(role=Role.BOTH, min_replicas=0, max_replicas=0, schedule="night"),))
    memory, outcome = step(ScalingMemory(), night, None, NOW, HELD)
    assert numbers(outcome) == [0]
    assert numbers(step(memory, ONE, None, NOW + 60, HELD)[1]) == [3]


def test_a_number_declared_anew_wakes_the_pool() -> None:
    memory, _ = step(ScalingMemory(), PAIR, None, NOW, demand())
    again = declared((Role.PREFILL, 4), (Role.DECODE, 3))
    assert min(numbers(step(memory, again, None, NOW + 1, demand(idle_seconds=10.0))[1])) >= 1


def test_a_pool_declared_with_zero_instances_waits_for_its_first_request() -> None:
    pool = declared((Role.BOTH, 0))
    memory, outcome = step(ScalingMemory(), pool, None, NOW, demand(idle_seconds=1.0))
    assert numbers(outcome) == [0]
    assert numbers(step(memory, pool, None, NOW + 1, demand(held_requests=1, held_prompt_tokens=10))[1]) == [1]


def test_mode_advise_tells_once_what_it_would_do_and_does_nothing() -> None:
    pool = replace(ONE, scaling=replace(SPEC, mode=ScalingMode.ADVISE))
    memory, outcome = step(ScalingMemory(), pool, None, NOW, demand())
    (advised,) = outcome.recommendations
    assert (numbers(outcome), advised.verdict, advised.replicas) == ([3], Verdict.ADVISED, 0)
    assert step(memory, pool, None, NOW + 15, demand(idle_seconds=616.0))[1].recommendations == ()


def test_the_row_says_why() -> None:
    memory, outcome = step(ScalingMemory(), ONE, None, NOW, demand(idle_seconds=612.4))
    assert sentence(outcome.recommendations[0]) == "no router has had a request for 612 s"
    _, outcome = step(memory, ONE, None, NOW + 1, HELD)
    assert sentence(outcome.recommendations[0]) == (
        "20 requests with 70000 prompt tokens wait for an instance, which prefills 1000 tokens/s (declared, not measured yet)"
    )
    seen = capabilities.Figure(value=2000.0, source=capabilities.Source.MEASURED, samples=41, age_seconds=3700.0)
    _, outcome = step(memory, replace(ONE, capacity=replace(ONE.capacity, prefill_speed=seen)), None, NOW + 1, HELD)
    assert numbers(outcome) == [2], "70,000 tokens within 30 s at the speed that was measured before the pool went to zero"
    assert sentence(outcome.recommendations[0]).endswith("which prefills 2000 tokens/s (measured, 41 prefills, 62 min ago)")


STARTS = capabilities.Figure(value=60.0, source=capabilities.Source.MEASURED, samples=5, age_seconds=120.0)


def woken(pool: Declared, held: int) -> ScalingMemory:
    memory, _ = step(ScalingMemory(), pool, None, NOW, demand())
    return step(memory, pool, None, NOW + 1, demand(held_requests=1, held_prompt_tokens=held))[0]


@pytest.mark.parametrize("pool", [ONE, PAIR])
def test_what_comes_while_the_first_instance_starts_wants_more_by_the_start_time_that_was_measured(pool: Declared) -> None:
    known = replace(pool, capacity=replace(pool.capacity, start_seconds=STARTS))
    memory = woken(known, 1_000)
    seen = demand(held_requests=30, held_prompt_tokens=16_000)  # 15 s later: 1,000 tokens/s, so 61,000 after 60 s
    after, outcome = step(memory, known, None, NOW + 16, seen)
    assert numbers(outcome)[0] == 3
    assert [(one.role, one.cause, one.replicas) for one in outcome.recommendations] == [(pool.roles[0].role, Cause.HELD, 3)]
    assert sentence(outcome.recommendations[0]) == (
        "30 requests with 16000 prompt tokens wait for an instance, and 61000 once one has started, after 60 s "
        "(measured, 5 starts, 2 min ago), which prefills 1000 tokens/s (declared, not measured yet)"
    )
    assert numbers(step(after, known, None, NOW + 17, seen)[1])[0] == 3
    assert numbers(step(memory, pool, None, NOW + 16, seen)[1])[0] == 1, "how long a start takes is not known"
    declared_start = capabilities.declared(60.0)
    guessed = replace(pool, capacity=replace(pool.capacity, start_seconds=declared_start))
    assert numbers(step(memory, guessed, None, NOW + 16, seen)[1])[0] == 1, "nobody saw it"


@pytest.mark.parametrize(
    ("held", "seen", "after"),
    [
        (16_000, demand(held_requests=30, held_prompt_tokens=16_000), 15.0),  # nothing more came
        (1_000, demand(held_requests=30, held_prompt_tokens=16_000, in_flight=3), 15.0),  # one serves
        (1_000, demand(held_requests=30, held_prompt_tokens=16_000), 61.0),  # no start takes so long: something else is wrong
    ],
)
def test_nothing_more_is_wanted_once_nothing_more_comes_or_an_instance_should_serve(held: int, seen: PoolDemand, after: float) -> None:
    known = replace(ONE, capacity=replace(ONE.capacity, start_seconds=STARTS))
    assert numbers(step(woken(known, held), known, None, NOW + 1 + after, seen)[1]) == [1]


def test_mode_fixed_goes_nowhere() -> None:
    pool = replace(ONE, scaling=replace(SPEC, mode=ScalingMode.FIXED))
    assert numbers(step(ScalingMemory(), pool, None, NOW, demand())[1]) == [3]


@examples(300)
@given(
    st.booleans(),
    st.lists(
        st.tuples(
            st.floats(0.0, 900.0),
            st.one_of(
                st.none(),
                st.builds(
                    PoolDemand,
                    held_requests=st.sampled_from([0, 0, 3]),
                    held_prompt_tokens=st.integers(0, 500_000),
                    in_flight=st.sampled_from([0, 0, 2]),
                    idle_seconds=st.one_of(st.none(), st.floats(0.0, 2000.0)),
                ),
            ),
            st.booleans(),
        ),
        max_size=25,
    ),
)
def test_roles_go_together_and_only_idleness_that_is_known_takes_the_last_instance(
    split: bool, rounds: list[tuple[float, PoolDemand | None, bool]]
) -> None:
    pool, memory, now, before = (PAIR if split else ONE), ScalingMemory(), NOW, [1]
    for seconds, seen, restarted in rounds:
        now += seconds
        after, outcome = step(memory, pool, None, now, seen)
        found = numbers(outcome)
        assert len({number == 0 for number in found}) == 1, "never one role alone"
        if found[0] == 0 and before[0] > 0:
            assert seen is not None
            assert seen.idle_seconds is not None
            assert (seen.held_requests, seen.in_flight, seen.idle_seconds >= 600.0) == (0, 0, True)
        if found[0] > 0 and before[0] == 0:
            assert seen is not None
            assert seen.held_requests
        if seen is not None and seen.held_requests:
            assert min(found) >= 1, "what is held is never left without an instance to come"
        if not restarted:  # an operator that dies before it writes the status decides the same again
            memory, before = after, found
        assert step(after, pool, None, now, seen)[1].targets == outcome.targets


def test_a_window_that_allows_zero_leaves_a_divided_pool_asleep() -> None:
    memory, _ = step(ScalingMemory(), PAIR, None, NOW, demand())
    for later in (60.0, 2000.0):
        memory, outcome = step(memory, replace(PAIR, windows=ALLOWS_ZERO), None, NOW + later, demand(idle_seconds=7200.0))
        assert set(numbers(outcome)) == {0}
    wanted = tuple(replace(window, min_replicas=1) for window in ALLOWS_ZERO)
    assert set(numbers(step(memory, replace(PAIR, windows=wanted), None, NOW + 2060, demand(idle_seconds=7200.0))[1])) == {1}
