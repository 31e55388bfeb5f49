"""How sessions belong together, and the sums over their turns."""

from dataclasses import dataclass
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from fairlead.session_trees import NOWHERE, Evidence, Figures, Reach, compactions, gaps, goes_on_from, reach_after, root_of, total
from fairlead_testing.examples import examples


@dataclass(frozen=True, kw_only=True)
class Turn:
    blocks: tuple[int, ...] = ()
    prompt_tokens: int = 0
    window_number: int | None = None
    at: float = 0.0
    ended_at: float = 0.0


def turn(*blocks: int, window: int | None = None) -> Turn:
    return Turn(blocks=blocks, prompt_tokens=512 * len(blocks) + 100, window_number=window)


def test_a_prompt_that_has_all_that_another_session_said_goes_on_from_it() -> None:
    other = Reach(first_blocks=2, last_blocks=4, last_block=40)
    assert goes_on_from((10, 20, 30, 40), other)
    assert goes_on_from((10, 20, 30, 40, 50), other)
    assert not goes_on_from((10, 20, 30), other)
    assert not goes_on_from((10, 20, 30, 41), other)


def test_two_sessions_with_one_scaffold_are_no_forks_of_each_other() -> None:
    only_scaffold = Reach(first_blocks=2, last_blocks=2, last_block=20)
    assert not goes_on_from((10, 20, 30), only_scaffold), "it never went on from what it began with"
    assert not goes_on_from((), Reach(first_blocks=0, last_blocks=0, last_block=None))


def test_a_session_reaches_beyond_its_beginning_only_once_it_went_on_from_it() -> None:
    title = reach_after(NOWHERE, (90,))
    begun = reach_after(title, (1, 2))
    assert not begun.is_beyond_beginning, "a request with another system text is no beginning of this conversation"
    assert reach_after(begun, ()) == begun
    assert reach_after(begun, (1, 2, 3)) == Reach(2, 3, 3)
    assert reach_after(begun, (1, 2, 3)).is_beyond_beginning
    assert not reach_after(reach_after(begun, (1, 2, 3)), (1, 9)).is_beyond_beginning, "compacted"


def test_a_prompt_that_becomes_much_shorter_behind_the_same_system_text_was_compacted() -> None:
    turns = [turn(1, 2, 3, 4, 5, 6), turn(1, 2, 3, 4, 5, 6, 7), turn(1, 8), turn(1, 8, 9)]
    assert compactions(turns) == {2: Evidence.PREFIX}


def test_a_request_beside_the_conversation_is_no_compaction() -> None:
    title = turn(90)
    assert compactions([turn(1, 2, 3, 4), title, turn(1, 2, 3, 4, 5)]) == {}, "it has another system text"
    side = turn(1, 50)
    assert compactions([turn(1, 2, 3, 4), side, turn(1, 2, 3, 4, 5)]) == {}, "a later turn goes on from the long prompt"


def test_what_the_client_counts_of_its_compactions_is_believed_before_prompts() -> None:
    turns = [turn(1, 2, 3, 4, window=0), turn(1, 9, window=0), turn(1, 2, 3, 4, 5, window=1)]
    assert compactions(turns) == {2: Evidence.SENT}


def test_a_gap_begins_when_all_answers_before_it_have_ended() -> None:
    turns = [Turn(at=0.0, ended_at=5.0), Turn(at=1.0, ended_at=2.0), Turn(at=4.0, ended_at=4.5), Turn(at=8.0, ended_at=9.0)]
    assert gaps(turns) == [None, None, None, 3.0]


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=12))
@examples(200)
def test_gaps_are_the_time_in_which_a_session_has_no_request(spans: list[tuple[int, int]]) -> None:
    turns = sorted((Turn(at=at, ended_at=at + length) for at, length in spans), key=lambda one: one.at)
    busy = {second for one in turns for second in range(int(one.at), int(one.ended_at))}
    whole = range(int(turns[0].at), int(max(one.ended_at for one in turns))) if turns else range(0)
    assert sum(gap or 0.0 for gap in gaps(turns)) == len(set(whole) - busy)


def test_a_parent_that_would_make_a_cycle_does_not_count() -> None:
    assert root_of("child", "parent", {}) == "parent"
    assert root_of("child", "parent", {"parent": "grandparent"}) == "grandparent"
    assert root_of("one", "one", {}) is None
    assert root_of("one", "two", {"two": "one"}) is None
    assert root_of("one", "three", {"two": "one", "three": "one"}) is None


COUNTS = st.integers(0, 10**6)
FIGURES = st.builds(Figures, turns=COUNTS, refusals=COUNTS, prompt_tokens=COUNTS, cached_tokens=COUNTS, model_microseconds=COUNTS)


@given(st.lists(FIGURES, max_size=8), st.randoms(use_true_random=False))
@examples(200)
def test_sums_are_the_same_in_any_order_and_in_any_parts(parts: list[Figures], dice: object) -> None:
    shuffled = list(parts)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert total(parts) == total(shuffled) == total([total(parts[:3]), total(parts[3:])])
    assert total(parts) == reduce(lambda one, other: other + one, parts, Figures())
