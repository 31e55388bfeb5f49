from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.prefixes import (
    LONG_BYTES,
    PrefixIndex,
    block_hashes,
    block_hashes_of,
    first_bytes_hash,
    prompt_root,
    shared_blocks,
)
from fairlead_testing.examples import examples


def chain(*labels: int) -> tuple[int, ...]:
    """Return the hashes of a prompt whose blocks have these labels."""
    return block_hashes(b"".join(label.to_bytes(4, "little") for label in labels), 4)


def test_only_full_blocks_are_hashed() -> None:
    assert len(block_hashes(b"x" * 1023, 256)) == 3
    assert len(block_hashes(b"x" * 1024, 256)) == 4
    assert block_hashes(b"x" * 255, 256) == ()
    assert block_hashes(b"", 256) == ()


@examples(200)
@given(
    st.lists(st.sampled_from((0, 1, 63, 64, 100, LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 7, 2 * LONG_BYTES)), max_size=6),
    st.sampled_from((1, 64, 100, 4096, 20_000)),
    st.integers(0, 2**64 - 1),
)
def test_the_hashes_of_pieces_are_those_of_the_whole_prompt(sizes: list[int], block_bytes: int, root: int) -> None:
    pieces = [bytes([place + 1]) * size for place, size in enumerate(sizes)]
    assert block_hashes_of(pieces, block_bytes, root) == block_hashes(b"".join(pieces), block_bytes, root)


def test_a_block_size_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="block_bytes must be at least 1"):
        block_hashes(b"abc", 0)


@pytest.mark.parametrize(("other", "shared"), [((1, 2, 3), 3), ((1, 2, 3, 4), 3), ((1, 2), 2), ((1, 9, 3), 1), ((9, 2, 3), 0), ((), 0)])
def test_two_prompts_share_the_blocks_up_to_the_first_that_differs(other: tuple[int, ...], shared: int) -> None:
    one = chain(1, 2, 3)
    assert shared_blocks(one, chain(*other)) == shared_blocks(chain(*other), one) == shared


def test_hashes_are_the_same_in_every_process() -> None:
    assert block_hashes(b"abcdefgh", 4) == (7248448420886124688, 13461383040836807586)
    assert first_bytes_hash(b"abcdefgh", 4) == first_bytes_hash(b"abcdXXXX", 4) == 7248448420886124688


def test_an_adapters_prompt_shares_no_block_with_the_models_nor_with_anothers() -> None:
    text = b"abcdefgh"
    roots = [prompt_root(name) for name in (None, "sql", "fr")]
    found = [hashed for root in roots for hashed in block_hashes(text, 4, root)]
    assert len(set(found)) == len(found) == 6
    assert block_hashes(text, 4, roots[0]) == block_hashes(text, 4)
    assert len({first_bytes_hash(b"ab", 4, (), root) for root in roots}) == 3


def test_salted_prompts_share_no_block_with_others_of_the_model_or_adapter() -> None:
    roots = [prompt_root(name, salt) for name in (None, "sql") for salt in (b"", b"one", b"two")]
    assert len({block_hashes(b"abcd", 4, root) for root in roots}) == 6
    assert prompt_root("sql", b"") == prompt_root("sql")


def test_an_equal_block_after_another_prefix_has_another_hash() -> None:
    assert chain(1, 3)[1] != chain(2, 3)[1]


@given(st.binary(max_size=400), st.binary(max_size=400), st.integers(1, 64))
def test_hashes_agree_exactly_as_far_as_the_full_blocks_agree(one: bytes, two: bytes, size: int) -> None:
    shared = 0
    for left, right in zip(block_hashes(one, size), block_hashes(two, size), strict=False):
        if left != right:
            break
        shared += 1
    same_bytes = next((index for index, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    assert shared == same_bytes // size


def test_a_prompt_is_matched_up_to_its_first_unknown_block() -> None:
    index = PrefixIndex(100)
    index.insert("a", chain(1, 2, 3))
    assert index.match("a", chain(1, 2, 9, 3)) == 2
    assert index.match("a", chain(2, 3)) == 0
    assert index.match("b", chain(1, 2)) == 0
    assert index.match_everywhere(chain(1, 2, 9)) == {"a": 2}


def test_a_prompt_longer_than_the_cache_keeps_its_first_blocks() -> None:
    index = PrefixIndex(2)
    index.insert("a", chain(1, 2, 3))
    assert index.match("a", chain(1, 2, 3)) == 2


def test_the_least_recently_used_tail_is_forgotten_first() -> None:
    index = PrefixIndex(4)
    index.insert("a", chain(1, 2))
    index.insert("a", chain(3, 4))
    index.insert("a", chain(1))
    index.insert("a", chain(5))
    assert [index.match("a", prompt) for prompt in (chain(1, 2), chain(3, 4), chain(5))] == [1, 2, 1]


def test_a_dropped_instance_holds_nothing_and_its_slot_is_used_again() -> None:
    index = PrefixIndex(10)
    index.insert("a", chain(1, 2))
    index.insert("b", chain(1))
    index.drop("a")
    index.insert("c", chain(9))
    assert index.match_everywhere(chain(1, 2)) == {"b": 1}
    assert index.match_everywhere(chain(9)) == {"c": 1}


def test_a_smaller_capacity_forgets_at_once() -> None:
    index = PrefixIndex(10)
    index.insert("a", chain(1, 2, 3))
    index.set_capacity(1)
    assert index.held("a") == frozenset(chain(1))


PROMPTS = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(lambda labels: chain(*labels))
STEPS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), PROMPTS, st.booleans()), max_size=60)


@examples(100)
@given(STEPS, st.integers(1, 8), st.integers(0, 40))
def test_the_index_equals_one_reference_lru_per_instance(
    steps: list[tuple[str, tuple[int, ...], bool]], capacity: int, nobody_asks_about_all_before: int
) -> None:
    index = PrefixIndex(capacity)
    reference: dict[str, OrderedDict[int, None]] = {}
    for step, (instance, prompt, drops) in enumerate(steps):
        if drops and len(prompt) == 1:
            index.drop(instance)
            reference.pop(instance, None)
            continue
        index.insert(instance, prompt)
        cache = reference.setdefault(instance, OrderedDict())
        for block in reversed(prompt[:capacity]):
            cache.pop(block, None)
            cache[block] = None
        while len(cache) > capacity:
            cache.popitem(last=False)
        for name in ("a", "b", "c"):
            assert index.held(name) == frozenset(reference.get(name, ()))
            run = 0
            while run < len(prompt) and prompt[run] in reference.get(name, ()):
                run += 1
            assert index.match(name, prompt) == run
            if step >= nobody_asks_about_all_before:
                assert index.match_everywhere(prompt).get(name, 0) == run
