"""Waiting prompts: a prompt that continues one counts as cached where that one was placed, until it is computed or too
old.
"""

import numpy as np

from fairlead.routing.choosing.placed_prompts import PlacedPrompts
from fairlead.routing.contracts.vectors import PoolVectors
from fairlead_testing.builders.routing import load_of, request

VECTORS = PoolVectors.of([load_of("i0"), load_of("i1")], 1_000_000)
FIRST = request("first", 1100, blocks=(1, 2))
NEXT = request("next", 2100, blocks=(1, 2, 3, 4))
NONE = np.zeros(2, dtype=np.int64)


def held(placed: PlacedPrompts, hits: tuple[int, int] = (0, 0)) -> list[int]:
    """Return the tokens of the next turn's prompt that count as held, in blocks of 512."""
    found: list[int] = placed.with_placed(NEXT, np.array(hits, dtype=np.int64), VECTORS, 512).tolist()
    return found


def test_the_next_turn_finds_the_one_before_it_where_that_waits() -> None:
    placed = PlacedPrompts(60.0)
    assert held(placed) == [0, 0]
    placed.place(FIRST, "i1", 0.0)
    assert held(placed) == [0, 1024]
    assert held(placed, (512, 2048)) == [512, 2048], "the engine is known to hold more"
    assert placed.with_placed(request("other", 2100, blocks=(1, 9)), NONE, VECTORS, 512).tolist() == [0, 0]


def test_of_several_that_wait_the_longest_counts() -> None:
    placed = PlacedPrompts(60.0)
    placed.place(FIRST, "i0", 0.0)
    placed.place(request("second", 1600, blocks=(1, 2, 3)), "i1", 0.0)
    assert held(placed) == [0, 1536]


def test_the_same_prompt_is_held_but_for_the_token_that_must_be_computed() -> None:
    placed = PlacedPrompts(60.0)
    again = request("again", 1024, blocks=(1, 2))
    placed.place(again, "i0", 0.0)
    assert placed.with_placed(again, NONE, VECTORS, 512).tolist() == [1023, 0]


def test_a_prompt_that_is_computed_or_waited_too_long_is_forgotten() -> None:
    placed = PlacedPrompts(60.0)
    placed.place(FIRST, "i1", 0.0)
    placed.computed(FIRST)
    placed.computed(NEXT)
    assert held(placed) == [0, 0]
    placed.place(FIRST, "i1", 0.0)
    placed.place(request("without-blocks"), "i0", 59.0)
    assert held(placed) == [0, 1024]
    placed.place(request("later", blocks=(7,)), "i0", 61.0)
    assert (held(placed), len(placed)) == ([0, 0], 1)


def test_an_instance_that_left_holds_nothing() -> None:
    placed = PlacedPrompts(60.0)
    placed.place(FIRST, "gone", 0.0)
    assert held(placed) == [0, 0]
