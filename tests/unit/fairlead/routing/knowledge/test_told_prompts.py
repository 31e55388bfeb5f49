"""Sketches of other routers' prompts: a hit is never longer than the placed prompt, and caches bound the memory."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.shares import PlacedPrompt, depths, placed
from fairlead.routing.knowledge.told_prompts import ToldPrompts
from fairlead.targets import target_of

STEP = 1 << 11  # hashes are told without their lowest bits


def prompt(begin: int, length: int) -> list[int]:
    return [(begin * 1000 + depth) * STEP for depth in range(length)]


def test_depths_are_powers_of_two_and_the_last() -> None:
    assert [tuple(depths(length)) for length in (1, 2, 3, 8, 9)] == [(1,), (1, 2), (1, 2, 3), (1, 2, 4, 8), (1, 2, 4, 8, 9)]


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=10), asked=st.integers(1, 80))
def test_a_hit_is_never_longer_than_what_was_placed_and_never_less_than_half(lengths: list[int], asked: int) -> None:
    told = ToldPrompts(10_000)
    told.hear(placed("i0", prompt(1, length)) for length in lengths)
    shared = min(max(lengths), asked)
    found = told.match(prompt(1, asked))["i0"]
    assert shared / 2 <= found <= shared
    assert told.match(prompt(2, asked)) == {}


@given(begins=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 20)), max_size=40), capacity=st.integers(0, 50))
def test_what_fits_no_cache_is_forgotten_and_nothing_is_left_when_all_is_dropped(begins: list[tuple[int, int]], capacity: int) -> None:
    told = ToldPrompts(capacity)
    for begin, length in begins:
        told.hear([placed(target_of("i0", 1), prompt(begin, length))])
        assert len(told) <= 6 * capacity
    told.drop("i0")
    assert len(told) == 0


def test_what_is_no_sketch_says_nothing() -> None:
    told = ToldPrompts(100)
    told.hear(
        [
            PlacedPrompt(instance="i0", blocks=(), length=0),
            PlacedPrompt(instance="i0", blocks=(1,), length=4),
            PlacedPrompt(instance="i0", blocks=(1,), length=-3),
        ]
    )
    assert len(told) == 0
