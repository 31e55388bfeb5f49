"""Prefill engines whose answers name no KV blocks."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.pools.instance_choice import ENOUGH, PAUSE_SECONDS, TRY_SECONDS, Handovers
from fairlead_testing.examples import examples


def silent() -> Handovers:
    handovers = Handovers()
    told = [handovers.note("p0", 0.0, named_blocks=False) for _ in range(ENOUGH)]
    assert told == [0, 0, ENOUGH]
    return handovers


def test_a_few_prefills_in_a_row_without_blocks_are_enough() -> None:
    handovers = silent()
    assert handovers.is_in_vain("p0", 1.0)
    assert not handovers.is_in_vain("p1", 1.0)


def test_one_prefill_is_tried_after_a_while_and_decides() -> None:
    handovers = silent()
    assert handovers.is_in_vain("p0", PAUSE_SECONDS - 0.1)
    assert [handovers.is_in_vain("p0", PAUSE_SECONDS) for _ in range(3)] == [False, True, True]
    assert handovers.note("p0", PAUSE_SECONDS + 1.0, named_blocks=False) == ENOUGH + 1
    assert handovers.is_in_vain("p0", PAUSE_SECONDS + 1.0 + TRY_SECONDS)
    assert not handovers.is_in_vain("p0", 2 * PAUSE_SECONDS + 1.0)
    assert handovers.note("p0", 2 * PAUSE_SECONDS + 2.0, named_blocks=True) == 0
    assert not handovers


def test_a_try_whose_outcome_is_never_known_is_followed_by_another() -> None:
    handovers = silent()
    assert not handovers.is_in_vain("p0", PAUSE_SECONDS)
    assert not handovers.is_in_vain("p0", PAUSE_SECONDS + TRY_SECONDS)


def test_another_engine_at_the_name_begins_anew() -> None:
    handovers = silent()
    handovers.keep_only(["p1"])
    assert not handovers
    assert handovers.note("p0", 2.0, named_blocks=False) == 0


@examples(100)
@given(st.lists(st.booleans(), max_size=30))
def test_an_engine_is_given_up_exactly_while_its_last_prefills_all_named_none(named: list[bool]) -> None:
    handovers = Handovers()
    for one in named:
        handovers.note("p0", 0.0, named_blocks=one)
    in_vain = len(named) >= ENOUGH and not any(named[-ENOUGH:])
    assert handovers.is_in_vain("p0", 1.0) == in_vain
