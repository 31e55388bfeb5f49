"""When engines whose answers name no KV blocks may be asked for them again."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.contracts.handovers import ENOUGH, REST_SECONDS, TRY_SECONDS, Handovers
from fairlead_testing.examples import examples


def resting() -> Handovers:
    handovers = Handovers()
    told = []
    for _ in range(ENOUGH):
        handovers.note("p0", 0.0, named_blocks=False)
        told.append(handovers.in_vain("p0"))
    assert told == [0, 0, ENOUGH]
    return handovers


def may_ask(handovers: Handovers, now: float) -> bool:
    """Return whether the engine may be asked now; if so, this counts as asking it."""
    if handovers.rests("p0", now):
        return False
    handovers.asked("p0", now)
    return True


def test_a_few_answers_in_a_row_without_blocks_are_enough() -> None:
    handovers = resting()
    assert handovers.rests("p0", 1.0)
    assert not handovers.rests("p1", 1.0)


def test_it_is_tried_once_after_a_while_and_that_decides() -> None:
    handovers = resting()
    assert handovers.rests("p0", REST_SECONDS - 0.1)
    assert [may_ask(handovers, REST_SECONDS) for _ in range(3)] == [True, False, False]
    handovers.note("p0", REST_SECONDS + 1.0, named_blocks=False)
    assert handovers.in_vain("p0") == ENOUGH + 1
    assert handovers.rests("p0", REST_SECONDS + 1.0 + TRY_SECONDS)
    assert may_ask(handovers, 2 * REST_SECONDS + 1.0)
    handovers.note("p0", 2 * REST_SECONDS + 2.0, named_blocks=True)
    assert (bool(handovers), handovers.in_vain("p0"), handovers.rests("p0", 2 * REST_SECONDS + 2.0)) == (False, 0, False)


def test_a_question_is_no_try() -> None:
    handovers = resting()
    assert [handovers.rests("p0", REST_SECONDS) for _ in range(3)] == [False, False, False]


def test_a_try_whose_outcome_is_never_known_is_followed_by_another() -> None:
    handovers = resting()
    assert may_ask(handovers, REST_SECONDS)
    assert may_ask(handovers, REST_SECONDS + TRY_SECONDS)


def test_another_engine_at_the_name_begins_at_zero() -> None:
    handovers = resting()
    handovers.forget("p0")
    handovers.note("p0", 2.0, named_blocks=False)
    assert (bool(handovers), handovers.in_vain("p0")) == (False, 0)


@examples(100)
@given(st.lists(st.booleans(), max_size=30))
def test_an_engine_rests_exactly_while_its_last_answers_all_named_none(named: list[bool]) -> None:
    handovers = Handovers()
    for one in named:
        handovers.note("p0", 0.0, named_blocks=one)
    in_vain = len(named) >= ENOUGH and not any(named[-ENOUGH:])
    assert (handovers.rests("p0", 1.0), handovers.in_vain("p0") >= ENOUGH) == (in_vain, in_vain)
