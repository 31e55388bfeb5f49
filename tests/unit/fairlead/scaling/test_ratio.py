"""The ratio of prefill to decode instances: moved one at a time, held in bounds, never back and forth."""

from dataclasses import replace

import pytest

from fairlead.instances import Role
from fairlead.scaling.decisions import sentence
from fairlead.scaling.recommendations import Cause, Controller, Hold, Verdict
from fairlead.scaling.signals import PoolSignals
from fairlead.scaling.specs import RatioMode, RatioSpec, ScalingMode, ScalingSpec
from fairlead.scaling.targets import Declared, TargetReason
from fairlead_testing.builders.scaling import Rounds, declared_pool, declared_role, pool_signals, role_signals

AUTO = RatioSpec(mode=RatioMode.AUTO)


def split_pool(prefill: int = 4, decode: int = 4, ratio: RatioSpec = AUTO, scaling: ScalingSpec | None = None, least: int = 1) -> Declared:
    roles = (declared_role(Role.PREFILL, prefill, least), declared_role(Role.DECODE, decode, least))
    return declared_pool(*roles, ratio=ratio, scaling=scaling)


def loads(prefill: float | None, decode: float | None, prompts: float = 0.0, outputs: float = 0.0) -> PoolSignals:
    """Return the signals of both roles. Without rates of arrival only the loads decide."""
    known = 0.0 if prompts or outputs else None
    return pool_signals(
        role_signals(Role.PREFILL, prefill_load=prefill, prompt_tokens_per_second=prompts or 1.0, cached_share=known),
        role_signals(
            Role.DECODE, decode_load=decode, output_tokens_per_second=outputs or 1.0, **({} if known == 0.0 else {"decode_step": None})
        ),
    )


def numbers(rounds: Rounds) -> tuple[int, int]:
    return rounds.replicas(Role.PREFILL), rounds.replicas(Role.DECODE)


def test_one_instance_moves_after_three_periods_out_of_balance() -> None:
    rounds = Rounds(split_pool())
    rounds.rounds(loads(1.5, 0.2), 60)
    assert numbers(rounds) == (4, 4)
    rounds.rounds(loads(1.5, 0.2), 30)
    assert numbers(rounds) == (5, 3)
    target = rounds.outcomes[-1].of(Role.PREFILL)
    assert (target.reason, target.declared, target.wanted) == (TargetReason.RATIO, 4, 5)
    (told,) = (one for outcome in rounds.outcomes for one in outcome.recommendations)
    assert (told.controller, told.role, told.verdict, told.cause) == (Controller.RATIO, Role.PREFILL, Verdict.APPLIED, Cause.LOADS_APART)
    assert told.imbalance is not None and (told.imbalance.donor, told.imbalance.donor_replicas) == (Role.DECODE, 4)
    assert told.imbalance.prefill_load == pytest.approx(1.5) and told.imbalance.comparisons == 3


def test_the_next_move_waits_for_the_cooldown() -> None:
    rounds = Rounds(split_pool())
    rounds.rounds(loads(3.0, 0.1), 90)
    rounds.rounds(loads(3.0, 0.1), 90)
    assert numbers(rounds) == (5, 3)
    rounds.rounds(loads(3.0, 0.1), 35)
    assert numbers(rounds) == (6, 2)


def test_no_more_is_given_until_what_was_given_serves() -> None:
    spec = replace(AUTO, cooldown_seconds=30.0)
    rounds, others = Rounds(split_pool(ratio=spec)), Rounds(split_pool(ratio=spec))
    for one in (rounds, others):
        one.rounds(loads(3.0, 0.1), 90)
    rounds.coming = {Role.PREFILL: 1}
    for one in (rounds, others):
        one.rounds(loads(3.0, 0.1), 300)
    assert (numbers(rounds), numbers(others)) == ((5, 3), (7, 1))
    rounds.coming = {}
    rounds.rounds(loads(3.0, 0.1), 60)
    assert numbers(rounds) == (5, 3), "what was compared while it came says nothing of what it can do"
    rounds.rounds(loads(3.0, 0.1), 30)
    assert numbers(rounds) == (6, 2)


def test_an_instance_that_the_donor_lacks_holds_no_move_up() -> None:
    rounds = Rounds(split_pool())
    rounds.coming = {Role.DECODE: 2}
    rounds.rounds(loads(3.0, 0.1), 90)
    assert numbers(rounds) == (5, 3)


def test_work_that_too_few_requests_told_of_moves_nothing() -> None:
    """The first answers of a pool are short and its caches are empty, so that 19 answers say little about later
    work.
    """
    refusing = replace(split_pool(prefill=8, decode=4), refuses_late=True)
    seen = overload(9.1, 4.9)
    for finished, expected in ((19, (8, 4)), (20, (7, 5)), (None, (7, 5))):
        told = replace(seen, roles=tuple(replace(role, finished_requests=finished) for role in seen.roles))
        rounds = Rounds(refusing)
        rounds.rounds(told, 90)
        assert numbers(rounds) == expected


def test_decode_receives_as_prefill_does() -> None:
    rounds = Rounds(split_pool())
    rounds.rounds(loads(0.1, 1.4), 95)
    assert numbers(rounds) == (3, 5)


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [(0.8, 0.55), (1.5, 0.75), (0.45, 0.0)],
    ids=["within the band", "a donor near its SLO", "a receiver far from its SLO"],
)
def test_loads_that_call_for_no_move(prefill: float, decode: float) -> None:
    rounds = Rounds(split_pool())
    rounds.rounds(loads(prefill, decode), 3600)
    assert numbers(rounds) == (4, 4)


def test_the_last_instance_of_a_role_is_not_given_away() -> None:
    rounds = Rounds(split_pool(prefill=7, decode=1, least=0))
    rounds.rounds(loads(5.0, 0.1), 3600)
    assert numbers(rounds) == (7, 1)
    assert {one.hold for outcome in rounds.outcomes for one in outcome.recommendations} == {Hold.AT_BOUND}


def test_a_move_that_only_swaps_the_roles_in_need_is_not_made() -> None:
    """8 instances have work for 4.2 + 3.5. With 5 + 3, decode would be busier than prefill is with 4 + 4."""
    rounds = Rounds(split_pool())
    rounds.rounds(loads(2.0, 0.6, prompts=4200, outputs=3.5 * 1600), 3600)
    assert numbers(rounds) == (4, 4)
    assert [one.hold for outcome in rounds.outcomes for one in outcome.recommendations] == [Hold.NOT_WORTH_IT]


def overload(prefill: float, decode: float) -> PoolSignals:
    """Return signals with balanced loads, and with the arriving work of both roles in instances.

    The prompts vary as Mooncake's do.
    """
    lengths = {"requests_per_second": 18.0, "prompt_variation": 1.31}
    return pool_signals(
        role_signals(Role.PREFILL, prefill_load=0.75, prompt_tokens_per_second=1000 * prefill, **lengths),
        role_signals(Role.DECODE, decode_load=0.3, output_tokens_per_second=1556 * decode, **lengths),  # 140 requests in 90 ms
    )


def test_of_two_overloaded_roles_decode_gets_the_instance() -> None:
    """With Mooncake's conversations at 18/s, 8 + 4 instances refuse one request in five, 7 + 5 only the few longest
    prompts.
    """
    refusing = replace(split_pool(prefill=8, decode=4), refuses_late=True)
    rounds = Rounds(refusing)
    rounds.rounds(overload(9.1, 4.9), 60)
    assert numbers(rounds) == (8, 4)
    rounds.rounds(overload(9.1, 4.9), 3600)
    assert numbers(rounds) == (7, 5)
    (told,) = (one for outcome in rounds.outcomes for one in outcome.recommendations)
    assert (told.cause, told.verdict, told.imbalance and told.imbalance.comparisons) == (Cause.WORK_EXCEEDS, Verdict.APPLIED, 3)
    assert sentence(told) == (
        "more work arrives than the instances can do, and by a model 95.9 % instead of 81.6 % of the requests could be served after a move: "
        "one prefill instance should become decode, for 3 comparisons in a row"
    )


def test_an_overload_that_refuses_nothing_by_length_moves_nothing() -> None:
    rounds = Rounds(split_pool(prefill=8, decode=4))
    rounds.rounds(overload(9.1, 4.9), 3600)
    assert numbers(rounds) == (8, 4)


def test_overloads_that_swing_move_nothing() -> None:
    rounds = Rounds(replace(split_pool(), refuses_late=True))
    for _ in range(60):
        rounds.rounds(overload(6.5, 1.0), 60)
        rounds.rounds(overload(1.0, 6.5), 60)
    assert numbers(rounds) == (4, 4)


def test_work_of_few_requests_must_differ_more() -> None:
    pool = replace(split_pool(), refuses_late=True)
    for requests, expected in ((10.0, (5, 3)), (0.2, (4, 4))):
        seen = overload(4.6, 2.8)
        rounds = Rounds(pool)
        rounds.rounds(
            replace(seen, roles=tuple(replace(role, requests_per_second=requests, prompt_variation=0.5) for role in seen.roles)), 150
        )
        assert numbers(rounds) == expected


def test_a_long_row_of_comparisons_makes_up_for_few_requests() -> None:
    spec = replace(AUTO, period_seconds=5.0, cooldown_seconds=30.0)
    rare = {"requests_per_second": 1.7, "prompt_variation": 0.7}
    seen = pool_signals(
        role_signals(Role.PREFILL, prefill_load=1.6, prompt_tokens_per_second=3000, **rare),
        role_signals(Role.DECODE, decode_load=0.3, output_tokens_per_second=1556 * 1.7, **rare),
    )
    often = replace(seen, roles=tuple(replace(role, requests_per_second=170.0) for role in seen.roles))
    known, unsure = Rounds(split_pool(3, 3, spec)), Rounds(split_pool(3, 3, spec))
    known.rounds(often, 15)
    unsure.rounds(seen, 15)
    assert (numbers(known), numbers(unsure)) == ((4, 2), (3, 3))
    unsure.rounds(seen, 300)
    assert numbers(unsure) == (4, 2)
    unsure.rounds(seen, 3600)
    assert unsure.history(Role.PREFILL) == [3, 4]


def test_what_was_seen_before_the_work_began_is_soon_forgotten() -> None:
    rounds = Rounds(replace(split_pool(prefill=8, decode=4), refuses_late=True))
    rounds.round(overload(9.1, 1.0))
    rounds.rounds(overload(9.1, 4.9), 150)
    assert numbers(rounds) == (7, 5)


def test_loads_that_swing_against_each_other_move_nothing() -> None:
    rounds = Rounds(split_pool())
    for _ in range(120):
        rounds.rounds(loads(1.6, 0.2), 60)
        rounds.rounds(loads(0.2, 1.6), 60)
    assert numbers(rounds) == (4, 4)


def test_advise_tells_the_move_once_and_makes_none() -> None:
    rounds = Rounds(split_pool(ratio=RatioSpec(mode=RatioMode.ADVISE)))
    rounds.rounds(loads(1.5, 0.2), 600)
    assert numbers(rounds) == (4, 4)
    (told,) = (one for outcome in rounds.outcomes for one in outcome.recommendations)
    assert (told.verdict, told.current, told.replicas) == (Verdict.ADVISED, 4, 5)


ADVISE = RatioSpec(mode=RatioMode.ADVISE)


def told_moves(rounds: Rounds, begin: int = 0) -> list[tuple[Role, int, int]]:
    """Return the recommendations since this round: the receiving role, its present and its recommended number."""
    return [(one.role, one.current, one.recommended) for seen in rounds.outcomes[begin:] for one in seen.recommendations]


def test_an_advised_move_that_no_longer_holds_is_taken_back_once() -> None:
    rounds = Rounds(split_pool(ratio=ADVISE))
    rounds.rounds(loads(1.5, 0.2), 120)
    before = len(rounds.outcomes)
    rounds.rounds(loads(0.6, 0.6), 600)
    assert told_moves(rounds, before) == [(Role.PREFILL, 4, 4)] and numbers(rounds) == (4, 4)
    (taken_back,) = [one for seen in rounds.outcomes[before:] for one in seen.recommendations]
    assert "no longer call for one more prefill instance; the present 4 are recommended again; advised only" in sentence(taken_back)


def test_an_advised_move_is_taken_back_before_the_opposite_one_is_advised() -> None:
    rounds = Rounds(split_pool(ratio=ADVISE))
    rounds.rounds(loads(1.5, 0.2), 120)
    rounds.rounds(loads(0.2, 1.5), 900)
    assert told_moves(rounds) == [(Role.PREFILL, 4, 5), (Role.PREFILL, 4, 4), (Role.DECODE, 4, 5)]


def test_an_advised_move_that_stands_is_told_again_every_half_hour() -> None:
    rounds = Rounds(split_pool(ratio=ADVISE))
    rounds.rounds(loads(1.5, 0.2), 3 * 3600)
    assert told_moves(rounds) == [(Role.PREFILL, 4, 5)] * 6


def test_a_move_that_only_a_bound_forbade_is_taken_back_too() -> None:
    roles = (declared_role(Role.PREFILL, 4, most=4), declared_role(Role.DECODE, 4))
    rounds = Rounds(declared_pool(*roles, ratio=AUTO))
    rounds.rounds(loads(1.5, 0.2), 120)
    rounds.rounds(loads(0.6, 0.6), 120)
    assert told_moves(rounds) == [(Role.PREFILL, 4, 5), (Role.PREFILL, 4, 4)]


def test_another_mode_and_a_changed_declaration_take_the_shift_back() -> None:
    rounds = Rounds(split_pool())
    rounds.rounds(loads(1.5, 0.2), 95)
    rounds.pool = split_pool(ratio=RatioSpec())
    rounds.round(None)
    assert numbers(rounds) == (4, 4)
    rounds.pool = split_pool()
    rounds.rounds(loads(1.5, 0.2), 95)
    assert numbers(rounds) == (5, 3)
    rounds.pool = split_pool(prefill=6)
    rounds.round(None)
    assert numbers(rounds) == (6, 4)


def test_a_restart_goes_on_counting_and_a_long_pause_begins_anew() -> None:
    rounds = Rounds(split_pool())
    rounds.rounds(loads(1.5, 0.2), 60)
    kept = rounds.memory
    rounds.round(loads(1.5, 0.2), after=40)
    assert numbers(rounds) == (5, 3)
    again = Rounds(split_pool())
    again.memory, again.now = kept, rounds.now
    again.round(loads(1.5, 0.2), after=600)
    assert numbers(again) == (4, 4)


def test_with_slo_sizes_an_instance_moves_at_once_where_shrinking_would_wait() -> None:
    rounds = Rounds(split_pool(scaling=ScalingSpec(mode=ScalingMode.SLO), prefill=4, decode=4))
    busy = loads(0.9, 0.1, prompts=3500, outputs=800)
    rounds.rounds(busy, 120)
    assert rounds.history(Role.DECODE) == [4, 3]
    assert rounds.replicas(Role.PREFILL) >= 5
