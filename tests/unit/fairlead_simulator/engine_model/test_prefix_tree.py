from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.engine_model.prefix_tree import KvBlockPool, PrefixNode
from fairlead_simulator.engine_server.tokens import ByteTokenizer
from fairlead_testing.examples import examples

CAPACITY = 12


class ReferencePool:
    """The same cache kept block by block: every block is known by its whole prefix, and released ones are in one
    queue.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.private = 0
        self.references: dict[str, int] = {}
        self.released: OrderedDict[str, None] = OrderedDict()

    @property
    def available(self) -> int:
        return self.capacity - self.private - sum(1 for count in self.references.values() if count)

    def known(self, text: str, limit: int) -> int:
        return next((length for length in range(limit) if text[: length + 1] not in self.references), limit)

    def hold(self, prefix: str) -> None:
        self.references[prefix] = self.references.get(prefix, 0) + 1
        self.released.pop(prefix, None)

    def allocate(self, blocks: int) -> None:
        while self.capacity - self.private - len(self.references) < blocks:
            oldest, _ = self.released.popitem(last=False)
            del self.references[oldest]
        self.private += blocks

    def release(self, text: str) -> None:
        for length in range(len(text), 0, -1):
            prefix = text[:length]
            self.references[prefix] -= 1
            if self.references[prefix] == 0:
                self.released[prefix] = None


texts = st.text(alphabet="ab", min_size=1, max_size=8)
operations = st.lists(st.one_of(texts, st.integers(0, 5)), max_size=60)


@given(operations)
@examples(200)
def test_the_tree_behaves_as_a_block_by_block_lru(steps: list[str | int]) -> None:
    pool, reference = KvBlockPool(CAPACITY, 1), ReferencePool(CAPACITY)
    held: list[tuple[str, PrefixNode]] = []
    for step in steps:
        if isinstance(step, int):
            if held:
                text, node = held.pop(step % len(held))
                pool.release(node)
                reference.release(text)
        else:
            limit = len(step) - 1
            known, unpinned = pool.match(step.encode(), limit)
            assert known == reference.known(step, limit)
            assert unpinned == sum(1 for length in range(known) if reference.references[step[: length + 1]] == 0)
            needed = len(step) - known
            if needed + unpinned > pool.available:
                continue
            node, pinned = pool.pin(step.encode(), limit)
            assert pinned == known
            pool.allocate(needed)
            for length in range(known):
                reference.hold(step[: length + 1])
            reference.allocate(needed)
            node = pool.share(node, known, step.encode(), len(step))
            reference.private -= needed
            for length in range(known, len(step)):
                reference.hold(step[: length + 1])
            held.append((step, node))
        assert pool.available == reference.available
        assert pool.cached_blocks == len(reference.released)
        assert pool.free_blocks == CAPACITY - len(reference.references) - reference.private
        for text, _ in held:
            assert pool.match(text.encode(), len(text))[0] == len(text), "a pinned block was evicted"
    for probe in ("aaaaaaaa", "abababab", "bbbbbbbb", "baabbaab", *(prefix for prefix in reference.references)):
        assert pool.match(probe.encode(), len(probe))[0] == reference.known(probe, len(probe))


def test_pinned_blocks_are_never_evicted() -> None:
    pool = KvBlockPool(4, 2)
    root, _ = pool.pin(b"aabb", 2)
    pool.allocate(2)
    node = pool.share(root, 0, b"aabb", 2)
    pool.allocate(2)
    with pytest.raises(ValueError, match="1 blocks asked, 0 available"):
        pool.allocate(1)
    assert pool.match(b"aabb", 2) == (2, 0)
    pool.release(node)
    pool.allocate(1)
    assert pool.match(b"aabb", 2) == (1, 1), "the tail goes first"
    assert pool.evicted_blocks == 1


def test_a_block_is_known_by_everything_before_it() -> None:
    pool = KvBlockPool(8, 2)
    root, _ = pool.pin(b"aabb", 2)
    pool.allocate(2)
    pool.share(root, 0, b"aabb", 2)
    assert pool.match(b"ccbb", 2) == (0, 0)
    assert pool.match(b"aabc", 2) == (1, 0)


def test_giving_back_more_than_was_taken_is_refused() -> None:
    pool = KvBlockPool(4, 2)
    with pytest.raises(ValueError, match="only 0 are private"):
        pool.free(1)


def test_a_prompt_of_token_ids_finds_the_blocks_of_its_text() -> None:
    pool, tokenizer = KvBlockPool(CAPACITY, 16), ByteTokenizer(4)
    text = "Größe und Länge eines Präfixes, gezählt".encode()
    pool.allocate(2)
    root, _ = pool.pin(text, 0)
    pool.release(pool.share(root, 0, text, 2))
    assert pool.match(tokenizer.prompt(tokenizer.ids(text), "prompt"), 2) == (2, 2)
