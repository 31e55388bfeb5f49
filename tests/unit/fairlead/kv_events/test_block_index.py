"""The block index: which blocks of a prompt it finds after engines' events."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kv_events.block_index import BlockIndex
from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.sources import Source, Tier
from fairlead_testing.builders.kv_events import Cleared, Removed, Stored
from fairlead_testing.examples import examples

A, B = Source(instance="a"), Source(instance="b")
PROMPT = tuple(range(12))
KEYS = block_keys(PROMPT, 4)


def stored(*hashes: int | bytes, parent: int | bytes | None = None, first: int = 0, medium: str | None = None) -> Stored:
    """Return an event that stores the blocks of PROMPT from `first` on."""
    return Stored(block_hashes=hashes, parent_block_hash=parent, token_ids=PROMPT[4 * first : 4 * (first + len(hashes))], medium=medium)


def test_a_prompt_finds_its_blocks_without_knowing_the_engines_hashes() -> None:
    index = BlockIndex()
    index.apply(A, [stored(11, 12), stored(13, parent=12, first=2)])
    index.apply(B, [stored(b"some digest")])
    assert index.match_everywhere(KEYS) == {A: 3, B: 1}
    assert index.match_everywhere(block_keys((*PROMPT[:8], 99, 99, 99, 99), 4)) == {A: 2, B: 1}
    assert index.match_everywhere(block_keys((99, *PROMPT[1:]), 4)) == {}


def test_a_removed_block_ends_the_prefix() -> None:
    index = BlockIndex()
    index.apply(A, [stored(11, 12, 13), Removed(block_hashes=[12])])
    assert index.match(A, KEYS) == 1


def test_a_block_stored_twice_is_held_until_both_copies_are_gone() -> None:
    index = BlockIndex()
    index.apply(A, [stored(11), stored(11), stored(11), Removed(block_hashes=[11]), Removed(block_hashes=[11])])
    assert index.match(A, KEYS) == 1
    index.apply(A, [Removed(block_hashes=[11])])
    assert index.match(A, KEYS) == 0 and len(index) == 0


def test_a_cleared_source_holds_nothing_and_others_keep_theirs() -> None:
    index = BlockIndex()
    index.apply(A, [stored(11, 12)])
    index.apply(B, [stored(11, 12)])
    index.apply(A, [Cleared()])
    assert index.match_everywhere(KEYS) == {B: 2}


def test_blocks_after_an_unknown_parent_are_left_out_and_counted() -> None:
    index = BlockIndex()
    index.apply(A, [stored(13, parent=12, first=2)])
    assert index.match(A, KEYS) == 0 and len(index) == 0
    assert index.counts.unknown_parent == 1


def test_another_block_size_is_refused_and_counted() -> None:
    index = BlockIndex()
    index.apply(A, [stored(11), Stored(block_hashes=[21, 22], token_ids=PROMPT, block_size=6)])
    assert index.block_size(A) == 4 and index.counts.wrong_size == 2


@pytest.mark.parametrize("tokens", [PROMPT[:7], (-1, 2, 3, 4), (2**32, 2, 3, 4)])
def test_tokens_that_do_not_fill_the_blocks_or_are_none_are_counted(tokens: tuple[int, ...]) -> None:
    index = BlockIndex()
    index.apply(A, [Stored(block_hashes=[11], token_ids=tokens)])
    assert index.counts.wrong_size == 1 and len(index) == 0


def test_a_tier_that_is_told_by_hash_alone_is_named_by_the_other() -> None:
    index = BlockIndex()
    index.apply(A, [stored(11, 12), Stored(block_hashes=[11], token_ids=(), medium="CPU"), Removed(block_hashes=[11], medium="GPU")])
    assert index.match(A, KEYS) == 1, "the second block is on the GPU only, which is not asked again"
    assert index.blocks(A) == {Tier.GPU: 1, Tier.HOST: 1}
    index.apply(A, [Stored(block_hashes=[99], token_ids=(), medium="CPU")])
    assert index.counts.unnamed == 1


def test_another_adapter_or_salt_never_matches() -> None:
    index = BlockIndex()
    index.apply(A, [Stored(block_hashes=[1, 2], token_ids=PROMPT[:8], lora_name="sql", extra_keys=[["sql"], ["sql"]])])
    index.apply(B, [Stored(block_hashes=[3, 4], token_ids=PROMPT[:8], extra_keys=[["tenant-1"], None])])
    assert index.match_everywhere(KEYS) == {}
    assert index.match_everywhere(block_keys(PROMPT, 4, lora_name="sql")) == {A: 2}
    assert index.match_everywhere(block_keys(PROMPT, 4, cache_salt="tenant-1")) == {B: 2}


def test_groups_of_layers_that_do_not_decide_reuse_are_left_out() -> None:
    index = BlockIndex()
    window = Stored(block_hashes=[11], token_ids=PROMPT[:4], group_idx=1, kv_cache_spec_kind="sliding_window")
    full = Stored(block_hashes=[11], token_ids=PROMPT[:4], group_idx=0, kv_cache_spec_kind="full_attention")
    index.apply(A, [full, window, Removed(block_hashes=[11], group_idx=1)])
    assert index.match(A, KEYS) == 1
    index.apply(A, [Removed(block_hashes=[11], group_idx=0)])
    assert index.match(A, KEYS) == 0


def test_what_is_expected_counts_until_it_is_taken_back() -> None:
    index = BlockIndex()
    index.expect(A, KEYS, "r1")
    index.expect(A, KEYS[:1], "r2")
    assert index.match(A, KEYS) == 3 and index.blocks(A) == {}
    assert index.match(A, KEYS, expected=False) == 0
    index.no_longer_expect(A, KEYS, "r1")
    assert index.match(A, KEYS) == 1
    index.no_longer_expect(A, KEYS, "r2")
    assert index.match(A, KEYS) == 0 == len(index)
    index.no_longer_expect(B, KEYS, "never")
    assert B not in index.sources


def test_an_event_takes_the_place_of_what_was_expected() -> None:
    index = BlockIndex()
    index.expect(A, KEYS, "r1")
    index.apply(A, [stored(11, 12)])
    assert index.match(A, KEYS) == 3 and index.match(A, KEYS, expected=False) == 2
    index.apply(A, [Removed(block_hashes=[11, 12])])
    assert index.match(A, KEYS) == 0, "evicted, whatever was expected"
    index.expect(A, KEYS[:2], "r2")
    index.no_longer_expect(A, KEYS, "r1")
    assert index.match(A, KEYS) == 2, "what another request brings is expected still"


def test_a_full_holding_forgets_its_oldest_blocks() -> None:
    index = BlockIndex(most_blocks=2)
    index.apply(A, [stored(11, 12, 13)])
    assert index.match(A, KEYS) == 0 and index.match(A, KEYS[1:]) == 2
    assert index.counts.forgotten == 1


def test_with_most_holders_the_one_added_longest_ago_is_forgotten() -> None:
    index = BlockIndex(most_holders=1)
    index.apply(A, [stored(11)])
    index.apply(B, [stored(11)])
    assert index.match_everywhere(KEYS) == {B: 1}
    index.apply(B, [Removed(block_hashes=[11])])
    assert index.match_everywhere(KEYS) == {}


def test_a_dropped_sources_place_is_used_again() -> None:
    index = BlockIndex()
    for number in range(100):
        source = Source(instance=f"i{number}")
        index.apply(source, [stored(11)])
        assert index.match_everywhere(KEYS) == {source: 1}
        index.drop(source)
    assert len(index) == 0


Prefix = tuple[int, ...]
SOURCES = (A, Source(instance="a", rank=1), B)
TOKENS = st.integers(0, 1)
PREFIXES = st.lists(TOKENS, max_size=4).map(tuple)
"""Prompts of one token per block and few different tokens, so that histories often share prefixes."""
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.sampled_from(SOURCES), PREFIXES, st.lists(TOKENS, min_size=1, max_size=3).map(tuple)),
        st.tuples(st.just("remove"), st.sampled_from(SOURCES), PREFIXES, st.just(())),
        st.tuples(st.sampled_from(["clear", "drop"]), st.sampled_from(SOURCES), st.just(()), st.just(())),
    ),
    max_size=60,
)


@examples(200)
@given(steps=STEPS, asked=st.lists(st.lists(TOKENS, min_size=1, max_size=6).map(tuple), min_size=1, max_size=6))
def test_the_index_equals_a_naive_model(steps: list[tuple[str, Source, Prefix, Prefix]], asked: list[Prefix]) -> None:
    index = BlockIndex()
    model: dict[Source, Counter[Prefix]] = {source: Counter() for source in SOURCES}

    def engine_hash(source: Source, prefix: Prefix) -> int:
        return hash((source.instance, source.rank, prefix))  # each engine has a seed of its own

    for what, source, prefix, more in steps:
        held = model[source]
        if what == "store" and (not prefix or held[prefix]):
            stored = [(*prefix, *more[: number + 1]) for number in range(len(more))]
            event = Stored(
                block_hashes=[engine_hash(source, each) for each in stored],
                parent_block_hash=engine_hash(source, prefix) if prefix else None,
                token_ids=more,
                block_size=1,
            )
            index.apply(source, [event])
            held.update(stored)
        elif what == "remove" and prefix:
            index.apply(source, [Removed(block_hashes=[engine_hash(source, prefix)])])
            held[prefix] = max(0, held[prefix] - 1)
        elif what in ("clear", "drop"):
            index.apply(source, [Cleared()])
            if what == "drop":
                index.drop(source)
            held.clear()
    for prompt in asked:
        for source, held in model.items():
            depth = next((number for number in range(len(prompt)) if not held[prompt[: number + 1]]), len(prompt))
            assert index.match(source, block_keys(prompt, 1)) == depth
        everywhere = index.match_everywhere(block_keys(prompt, 1))
        assert everywhere == {source: depth for source in SOURCES if (depth := index.match(source, block_keys(prompt, 1)))}
    assert len(index) == len({prefix for held in model.values() for prefix, copies in held.items() if copies})


def test_a_large_holding_is_cleared_little_by_little_and_found_by_nobody_from_then_on() -> None:
    index = BlockIndex()
    tokens = tuple(range(4 * 5_000))
    everything = Stored(block_hashes=range(5_000), token_ids=tokens)
    index.apply(A, [everything])
    index.apply(B, [stored(11)])
    index.clear(A)
    assert index.match_everywhere(KEYS) == {B: 1} and index.blocks(A) == {} and len(index) == 5_000
    index.apply(A, [Stored(block_hashes=range(5_000, 10_000), token_ids=tokens)])
    assert index.match(A, block_keys(tokens, 4)) == 5_000
    while index.sweep(700):
        pass
    assert index.match(A, block_keys(tokens, 4)) == 5_000 and len(index) == 5_000
    index.drop(A)
    while index.sweep(700):
        pass
    assert len(index) == 1 and list(index.sources) == [B]


def test_a_cleared_source_may_begin_again_with_another_block_size() -> None:
    index = BlockIndex()
    index.apply(A, [stored(11), Cleared(), Stored(block_hashes=[21], token_ids=PROMPT[:6], block_size=6)])
    assert index.block_size(A) == 6 and index.match(A, block_keys(PROMPT, 6)) == 1
