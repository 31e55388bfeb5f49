import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.choosing.prefix_hotness import CODE, PAPER, HotnessSettings, PrefixHotness
from fairlead_testing.examples import examples


def prompt(shared: str, shared_blocks: int, unique: int, length: int) -> tuple[int, ...]:
    """Return the blocks of a prompt that shares its first `shared_blocks` with its class."""
    own = [hash((unique, depth)) & 0xFFFFFFFF for depth in range(length - shared_blocks)]
    return tuple(ord(shared) * 1000 + depth for depth in range(shared_blocks)) + tuple(own)


def key_depths(settings_of: HotnessSettings, instances: int) -> dict[int, float]:
    """Return the share of each key depth over the synthetic Tool&Agent mix, without the warm-up."""
    source = random.Random(5)
    tree = PrefixHotness(settings_of)
    depths: Counter[int] = Counter()
    for number in range(12_000):
        draw = source.random()
        shared, count = ("T", 12) if draw < 0.378 else ("U", 5) if draw < 0.527 else ("Z", 1)
        depth, _ = tree.observe(prompt(shared, count, number, 16), 0, instances)
        if number >= 3000:
            depths[depth] += 1
    return {depth: count / 9000 for depth, count in depths.items()}


def test_the_code_preset_reproduces_the_papers_figure_6_at_eight_instances() -> None:
    depths = key_depths(CODE, 8)
    assert depths[2] == pytest.approx(0.455, abs=0.03)
    assert depths[6] == pytest.approx(0.151, abs=0.03)
    assert depths[13] == pytest.approx(0.376, abs=0.03)


def test_two_over_n_never_makes_the_15_percent_prefix_hot_at_eight_instances_but_does_at_sixteen() -> None:
    eight, sixteen = key_depths(PAPER, 8), key_depths(PAPER, 16)
    assert eight.get(6, 0.0) == 0.0
    assert eight[1] == pytest.approx(0.153, abs=0.03)
    assert sixteen[6] == pytest.approx(0.152, abs=0.03)
    assert sixteen[13] == pytest.approx(0.388, abs=0.03)


def test_a_prefix_everyone_shares_expands_to_one_block_past_the_first_divergence() -> None:
    tree = PrefixHotness(PAPER)
    depths = [tree.observe(prompt("A", 3, number, 6), 0, 8)[0] for number in range(400)]
    assert depths[:20] == [1] * 20
    assert depths[-1] == 4


def share_falls_to(share: float) -> PrefixHotness:
    tree = PrefixHotness(PAPER)
    for number in range(400):
        tree.observe(prompt("A", 1, number, 3) if number % 10 < 3 else (number, number), 0, 8)
    assert (1, ord("A") * 1000) in tree.expanded()
    period = round(1 / share * 100)
    for number in range(400, 1000):
        tree.observe(prompt("A", 1, number, 3) if (number * 100) % period < 100 else (number, number), 0, 8)
    assert tree.share((1, ord("A") * 1000)) == pytest.approx(share, abs=0.006)
    return tree


def test_a_share_falling_from_30_to_10_percent_at_eight_instances_collapses() -> None:
    assert (1, ord("A") * 1000) not in share_falls_to(0.10).expanded()


def test_a_share_falling_from_30_to_15_percent_at_eight_instances_does_not_collapse() -> None:
    assert (1, ord("A") * 1000) in share_falls_to(0.15).expanded()


def test_a_collapse_takes_everything_below_with_it() -> None:
    tree = PrefixHotness(PAPER)
    for number in range(300):
        tree.observe(prompt("A", 4, number, 6), 0, 8)
    assert len(tree.expanded()) == 4
    for number in range(300):
        tree.observe((10_000 + number, 1), 0, 8)
    assert tree.expanded() == frozenset()
    assert tree.key(prompt("A", 4, 1, 6), 0)[0] == 1


def test_prompts_without_a_full_block_are_keyed_by_their_bytes_and_not_counted() -> None:
    tree = PrefixHotness(PAPER)
    assert tree.observe((), 99, 8) == (0, 99)
    assert tree.window() == ()


@examples(60)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=150),
    st.sampled_from([PAPER, CODE, HotnessSettings(hot_share=0.3, cold_share=0.1, window=30, min_samples=5)]),
    st.integers(1, 16),
)
def test_counters_equal_a_recount_and_memory_stays_within_window_times_depth(
    prompts: list[list[int]], settings_of: HotnessSettings, instances: int
) -> None:
    tree = PrefixHotness(settings_of)
    for labels in prompts:
        chained = tuple(hash(tuple(labels[: depth + 1])) for depth in range(len(labels)))
        before = tree.key(chained, 0)
        assert tree.observe(chained, 0, instances) == before
        window = tree.window()
        assert len(window) * settings_of.entries_per_request <= settings_of.window
        assert tree.counts() == dict(Counter(key for path in window for key in path))
        assert len(tree.counts()) <= settings_of.window * 5
        assert tree.expanded() <= tree.counts().keys()
