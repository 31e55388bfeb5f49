"""Tiers: blocks that a source holds outside its GPU, blocks that it would load, and a store that all engines read."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kv_events.block_index import BlockIndex
from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.sources import NOTHING_SLOW, SLOW, Source, Tier, tier_of
from fairlead_testing.builders.kv_events import Cleared, Removed, Stored
from fairlead_testing.examples import examples

A, A1, B = Source(instance="a"), Source(instance="a", rank=1), Source(instance="b")
PROMPT = tuple(range(24))
KEYS = block_keys(PROMPT, 4)


def stored(*hashes: int, medium: str | None = None, locality: str | None = None) -> Stored:
    """Return an event that stores the first blocks of PROMPT, with their tokens."""
    return Stored(block_hashes=hashes, token_ids=PROMPT[: 4 * len(hashes)], medium=medium, locality=locality)


def by_hash(*hashes: int, medium: str, locality: str | None = None) -> Stored:
    """Return an event without tokens, as vLLM's OffloadingConnector sends it."""
    return Stored(block_hashes=hashes, token_ids=(), medium=medium, locality=locality)


@pytest.mark.parametrize(
    ("medium", "locality", "tier"),
    [
        (None, None, Tier.GPU),
        ("GPU", None, Tier.GPU),
        ("CPU", None, Tier.HOST),
        ("cpu", None, Tier.HOST),
        ("CPU_PINNED", None, Tier.HOST),
        ("STORAGE", "LOCAL", Tier.DISK),
        ("STORAGE", "REMOTE", Tier.REMOTE),
        ("CPU", "REMOTE", Tier.REMOTE),
        ("EXTERNAL", None, Tier.REMOTE),
        ("HOLOGRAM", None, None),
        ("HOLOGRAM", "REMOTE", None),
    ],
)
def test_engines_media_name_tiers(medium: str | None, locality: str | None, tier: Tier | None) -> None:
    assert tier_of(medium, locality) is tier


def test_a_removal_from_the_gpu_leaves_the_copy_in_host_memory_which_is_loaded() -> None:
    index = BlockIndex()
    index.apply(A, [stored(1, 2, 3, 4), by_hash(1, 2, 3, 4, medium="CPU"), Removed(block_hashes=[3, 4], medium="GPU")])
    assert (index.match(A, KEYS), index.slow_blocks(A, KEYS)) == (4, (2, 0, 0))
    index.apply(A, [Removed(block_hashes=[4], medium="CPU")])
    assert (index.match(A, KEYS), index.slow_blocks(A, KEYS)) == (3, (1, 0, 0))


def test_a_store_in_host_memory_does_not_say_that_the_gpu_has_the_block() -> None:
    index = BlockIndex()
    index.apply(A, [stored(1, 2, medium="CPU")])
    assert (index.match(A, KEYS), index.slow_blocks(A, KEYS), index.blocks(A)) == (2, (2, 0, 0), {Tier.HOST: 2})
    index.apply(A, [Removed(block_hashes=[1], medium="GPU")])
    assert index.match(A, KEYS) == 2 and index.counts.unknown_removed == 1


def test_what_only_the_gpu_has_behind_a_loaded_block_is_not_reached() -> None:
    """When the GPU lacks a block, vLLM and SGLang look for the rest of the prompt only in the slow tiers."""
    index = BlockIndex()
    index.apply(A, [stored(1, 2, 3, 4), by_hash(2, medium="CPU"), Removed(block_hashes=[2])])
    assert (index.match(A, KEYS), index.slow_blocks(A, KEYS)) == (2, (1, 0, 0))


def test_a_block_in_several_tiers_is_loaded_from_the_fastest() -> None:
    index = BlockIndex()
    index.apply(A, [stored(1, 2, 3), by_hash(1, 2, 3, medium="STORAGE"), by_hash(2, medium="CPU"), Removed(block_hashes=[1, 2, 3])])
    assert index.slow_blocks(A, KEYS) == (1, 2, 0)
    index.apply(A, [Removed(block_hashes=[2], medium="CPU")])
    assert index.slow_blocks(A, KEYS) == (0, 3, 0)


def test_two_offloading_tiers_of_one_kind_each_keep_their_copy() -> None:
    """A file store and a block store are both `STORAGE`. One of them gives up the block."""
    index = BlockIndex()
    index.apply(A, [stored(1), by_hash(1, medium="STORAGE"), by_hash(1, medium="STORAGE"), Removed(block_hashes=[1])])
    index.apply(A, [Removed(block_hashes=[1], medium="STORAGE")])
    assert index.match(A, KEYS) == 1
    index.apply(A, [Removed(block_hashes=[1], medium="STORAGE")])
    assert index.match(A, KEYS) == 0


def test_an_unknown_medium_is_left_out_and_counted_and_makes_no_tier() -> None:
    index = BlockIndex()
    index.apply(A, [stored(1)] + [by_hash(1, medium=f"new-{number}") for number in range(1_000)])
    index.apply(A, [Removed(block_hashes=[1], medium="new-1")])
    assert index.blocks(A) == {Tier.GPU: 1} and index.counts.unknown_medium == 1_000


def test_each_rank_has_tiers_of_its_own() -> None:
    index = BlockIndex()
    index.apply(A, [stored(1, 2)])
    index.apply(A1, [stored(1, 2, medium="CPU")])
    assert (index.slow_blocks(A, KEYS), index.slow_blocks(A1, KEYS)) == (NOTHING_SLOW, (2, 0, 0))
    assert index.slow_slots(KEYS) == [(index.slots()[A1], (2, 0, 0))]


Prefix = tuple[int, ...]
MEDIA = {Tier.GPU: "GPU", Tier.HOST: "CPU", Tier.DISK: "STORAGE", Tier.REMOTE: "EXTERNAL"}
SOURCES = (A, A1, B)
PREFIXES = st.lists(st.integers(0, 1), min_size=1, max_size=4).map(tuple)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["store", "remove"]), st.sampled_from(SOURCES), st.sampled_from(Tier), PREFIXES),
        st.tuples(st.sampled_from(["clear", "drop"]), st.sampled_from(SOURCES), st.just(Tier.GPU), st.just((0,))),
    ),
    max_size=60,
)


def as_an_engine_reads(held: dict[Tier, Counter[Prefix]], prompt: Prefix) -> tuple[int, list[int]]:
    """Return the number of leading blocks, and that of each slow tier, by checking block after block as the index
    documents.
    """
    counts, depth, on_gpu = [0, 0, 0], 0, True
    for depth in range(len(prompt) + 1):
        prefix = prompt[: depth + 1]
        on_gpu = on_gpu and bool(held[Tier.GPU][prefix])
        slow = next((place for place, tier in enumerate(SLOW) if held[tier][prefix]), None)
        if depth == len(prompt) or (not on_gpu and slow is None):
            break
        if not on_gpu and slow is not None:
            counts[slow] += 1
    return depth, counts


@examples(300)
@given(steps=STEPS, asked=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple), min_size=1, max_size=6))
def test_the_tiers_equal_a_naive_model(steps: list[tuple[str, Source, Tier, Prefix]], asked: list[Prefix]) -> None:
    index = BlockIndex()
    model: dict[Source, dict[Tier, Counter[Prefix]]] = {source: {tier: Counter() for tier in Tier} for source in SOURCES}

    def name(source: Source, prefix: Prefix) -> int:
        return hash((source.instance, source.rank, prefix))

    for what, source, tier, prefix in steps:
        held = model[source]
        if what == "store":
            prefixes = [prefix[: number + 1] for number in range(len(prefix))]
            names = [name(source, each) for each in prefixes]
            index.apply(source, [Stored(block_hashes=names, token_ids=prefix, block_size=1, medium=MEDIA[tier])])
            held[tier].update(prefixes)
        elif what == "remove":
            index.apply(source, [Removed(block_hashes=[name(source, prefix)], medium=MEDIA[tier])])
            held[tier][prefix] = max(0, held[tier][prefix] - 1)
        else:
            index.apply(source, [Cleared()])
            if what == "drop":
                index.drop(source)
            for each in held.values():
                each.clear()
    for prompt in asked:
        keys = block_keys(prompt, 1)
        slots = dict(index.slow_slots(keys))
        for source, held in model.items():
            depth, counts = as_an_engine_reads(held, prompt)
            assert (index.match(source, keys), list(index.slow_blocks(source, keys))) == (depth, counts)
            assert index.match_everywhere(keys).get(source, 0) == depth
            assert list(slots.get(index.slots().get(source, -1), NOTHING_SLOW)) == counts


@examples(100)
@given(
    steps=st.lists(st.tuples(st.sampled_from(SOURCES), st.text("GPUCx", max_size=3), st.booleans(), st.integers(0, 300)), max_size=80),
    shared=st.integers(0, 5),
)
def test_whatever_engines_say_the_index_is_bounded(steps: list[tuple[Source, str, bool, int]], shared: int) -> None:
    """The bounds are the maximum of blocks of a holding, four holdings of a source, and the size of the store."""
    index = BlockIndex(most_blocks=4)
    index.share(shared)
    for number, (source, medium, is_remote, first) in enumerate(steps):
        hashes = range(1_000 * number, 1_000 * number + 3)
        tokens = tuple(range(first, first + 12))
        index.apply(source, [Stored(block_hashes=hashes, token_ids=tokens, medium=medium, locality="REMOTE" if is_remote else None)])
    assert len(index) <= 4 * len(Tier) * len(SOURCES) + shared
    assert index.shared_blocks <= shared


def test_what_a_shared_store_holds_belongs_to_no_engine() -> None:
    index = BlockIndex()
    index.share(100)
    index.apply(A, [stored(1, 2, 3), by_hash(1, 2, 3, medium="STORAGE", locality="REMOTE")])
    assert (index.match_shared(KEYS), index.slow_blocks(A, KEYS), index.match(B, KEYS)) == (3, NOTHING_SLOW, 0)
    index.drop(A)
    assert index.match_shared(KEYS) == 3, "the store outlives the engine that filled it"
    index.apply(B, [Removed(block_hashes=[2], medium="STORAGE", locality="REMOTE")])
    assert index.match_shared(KEYS) == 1, "whoever says so"
    index.share(0)
    while index.sweep(1):
        pass
    assert index.match_shared(KEYS) == 0 and len(index) == 0


def test_a_store_keeps_one_copy_and_forgets_what_was_stored_longest_ago() -> None:
    index = BlockIndex()
    index.share(3, "cpu")
    first, second = stored(1, 2, medium="cpu"), Stored(block_hashes=[8, 9], token_ids=PROMPT[8:16], medium="cpu")
    index.apply(A, [first])
    index.apply(B, [first, Removed(block_hashes=[2], medium="cpu")])
    assert index.match_shared(KEYS) == 1, "stored by two, and gone"
    index.apply(A, [first, second])
    assert index.shared_blocks == 3 and index.match_shared(KEYS) == 0 and index.match_shared(block_keys(PROMPT[8:16], 4)) == 2


def test_a_named_medium_is_the_store_and_other_media_stay_the_engines() -> None:
    index = BlockIndex()
    index.share(100, "cpu")
    index.apply(A, [stored(1, medium="cpu"), stored(1, 2, medium="CPU")])
    assert (index.match_shared(KEYS), index.slow_blocks(A, KEYS)) == (1, (2, 0, 0))
