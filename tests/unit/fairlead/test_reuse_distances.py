"""Reuse distances give the hits of a cache of any size, equal to the hits of a real LRU cache."""

from collections import OrderedDict
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead import reuse_distances
from fairlead.reuse_distances import ReuseDistances
from fairlead_testing.examples import examples


@dataclass(frozen=True)
class Row:
    input_length: int
    hash_ids: tuple[int, ...]


def row(session: int, blocks: int, tokens: int = 4, shared: int = 1, more: int = 1) -> Row:
    """Return a prompt of whole blocks and some more tokens. Sessions share their first blocks."""
    return Row(blocks * tokens + more, tuple(place if place < shared else 1_000 * (session + 1) + place for place in range(blocks)))


def lru_hits(rows: list[Row], capacity: int, tokens: int = 4) -> int:
    """Return the tokens that a cache of this many blocks serves: a prompt's leading blocks, refreshed from the last one
    on.
    """
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for one in rows:
        usable = one.hash_ids[: (one.input_length - 1) // tokens]
        hits += tokens * next((place for place, block in enumerate(usable) if block not in cache), len(usable))
        for block in reversed(one.hash_ids[: one.input_length // tokens]):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=40), st.integers(0, 40))
def test_every_size_has_the_hits_that_a_cache_of_that_size_has(prompts: list[tuple[int, int, int]], capacity: int) -> None:
    rows = [row(session, blocks, more=more) for session, blocks, more in prompts]
    found = ReuseDistances(rows, 4).hit_share(4 * capacity)
    assert found.value * sum(one.input_length for one in rows) == pytest.approx(lru_hits(rows, capacity), abs=1e-6)


@examples(100)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), min_size=1, max_size=60),
    st.lists(st.integers(0, 300), min_size=2, max_size=6),
)
def test_more_room_never_has_fewer_hits(prompts: list[tuple[int, int]], capacities: list[int]) -> None:
    distances = ReuseDistances([row(session, blocks) for session, blocks in prompts], 4)
    shares = [distances.hit_share(capacity).value for capacity in sorted(capacities)]
    assert shares == sorted(shares)


def test_a_sample_of_the_blocks_says_nearly_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row((7 * number) % 97, 3 + (number * number) % 60, shared=2) for number in range(1_500)]
    exact = ReuseDistances(rows, 4)
    monkeypatch.setattr(reuse_distances, "MOST_REFERENCES", 5_000)
    sampled = ReuseDistances(rows, 4)
    assert exact.sample_rate == 1.0 and 0.05 < sampled.sample_rate < 0.2
    for capacity in (2_000, 6_000, 12_000):
        found = sampled.hit_share(capacity)
        assert found.error < 0.2
        assert found.value == pytest.approx(exact.hit_share(capacity).value, abs=found.error + 0.02)


def test_instances_share_the_blocks_between_them() -> None:
    rows = [row(number % 20, 10) for number in range(200)]
    distances = ReuseDistances(rows, 4)
    assert distances.hit_share(200, instances=4) == distances.hit_share(800)


def test_the_error_is_small_where_sessions_are_alike_and_large_where_one_of_them_decides() -> None:
    alike = ReuseDistances([row(number % 50, 10) for number in range(500)], 4, [f"s{number % 50}" for number in range(500)])
    rows = [row(0, 40) if number % 2 else row(number, 10, shared=0) for number in range(500)]
    apart = ReuseDistances(rows, 4, ["s" if number % 2 else f"t{number}" for number in range(500)])
    few, many = alike.hit_share(10**6), apart.hit_share(10**6)
    assert few.error < 0.05 < many.error


def test_nothing_recorded_gives_nothing() -> None:
    assert ReuseDistances([], 512).hit_share(10**6).value == 0.0
    assert ReuseDistances([Row(3, (1,))], 512).hit_share(10**6).value == 0.0
