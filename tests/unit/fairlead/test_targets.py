"""Targets of requests: instances, and the data-parallel ranks of instances that have several."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.plausibility import MOST_RANKS
from fairlead.targets import LOST_SECONDS, RanksSeen, chosen_rank, instance_of, is_part, rank_of, target_of, targets_of
from fairlead_testing.builders.routing import entry

RANKS = st.one_of(st.none(), st.integers(0, MOST_RANKS))


@given(st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,20}[a-z0-9])?", fullmatch=True), RANKS)
def test_a_target_is_named_by_its_instance_and_rank_and_tells_both(instance: str, rank: int | None) -> None:
    target = target_of(instance, rank)
    assert (instance_of(target), rank_of(target)) == (instance, rank)
    assert (target == instance) == (rank is None) and is_part(target, instance) == (rank is not None)


def test_an_instance_without_several_ranks_is_its_own_target() -> None:
    entries = (entry("a"), entry("b"))
    assert targets_of(entries, {}) == entries
    assert [one.id for one in targets_of(entries, {"b": (0, 1)})] == ["a", "b#0", "b#1"]
    assert [one.address for one in targets_of(entries, {"b": (0, 1)})] == ["a:8000", "b:8000", "b:8000"]


def test_one_rank_is_none_and_several_are_counted_from_the_first() -> None:
    seen = RanksSeen()
    assert not seen.see((3,), 0.0) and not seen.ranks, "the API server of one rank of several"
    assert seen.see((3, 2), 1.0) and list(seen.ranks) == [0, 1], "one node of two behind vLLM's hybrid load balancing"
    assert (seen.rank(2), seen.rank(3), seen.rank(4)) == (0, 1, None)


def test_a_rank_that_a_page_lacks_once_is_not_lost_and_the_others_keep_their_numbers() -> None:
    seen = RanksSeen()
    seen.see(range(8), 0.0)
    without = [1, 2, 4, 5, 6, 7]
    assert not seen.see(without, LOST_SECONDS) and seen.ranks == tuple(range(8))
    assert seen.see(without, LOST_SECONDS + 1) and seen.ranks == tuple(without)
    assert seen.see(range(8), LOST_SECONDS + 2) and seen.ranks == tuple(range(8))


def test_an_engine_that_tells_nothing_keeps_its_ranks() -> None:
    seen = RanksSeen()
    seen.see((0, 1), 0.0)
    assert not seen.see((), 1e9) and seen.ranks == (0, 1)


@given(st.sets(st.integers(-5, 10**6), min_size=1, max_size=20))
def test_ranks_that_cannot_be_are_not_believed(names: set[int]) -> None:
    seen = RanksSeen()
    seen.see(names, 0.0)
    possible = min(names) >= 0 and max(names) - min(names) < MOST_RANKS and len(names) > 1
    assert bool(seen.ranks) == possible
    assert all(0 <= rank < MOST_RANKS for rank in seen.ranks)


@given(st.text(max_size=20), st.integers(2, 16), st.data())
def test_a_key_leaves_its_rank_only_if_that_goes(key: str, count: int, data: st.DataObject) -> None:
    targets = [target_of("i0", rank) for rank in range(count)]
    before = chosen_rank(key, targets)
    left = [target for target in targets if target != data.draw(st.sampled_from(targets))] or targets
    after = chosen_rank(key, left)
    assert after == before or before not in left
    assert chosen_rank(key, [*reversed(targets)]) == before
