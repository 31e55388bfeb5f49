"""A watcher of a KV block pool learns exactly which blocks the pool holds."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.engine_model.prefix_tree import KvBlockPool, PrefixNode
from fairlead_testing.examples import examples

CAPACITY = 6


class Ledger:
    """Names a block by the whole text up to it, and keeps the names of all blocks held."""

    def __init__(self) -> None:
        self.held: set[bytes] = set()

    def stored(self, parent: bytes | None, text: bytes) -> tuple[bytes, ...]:
        names = tuple((parent or b"") + text[: end + 1] for end in range(len(text)))
        assert parent is None or parent in self.held
        assert self.held.isdisjoint(names)
        self.held.update(names)
        return names

    def removed(self, names: Sequence[bytes]) -> None:
        for name in names:
            assert not any(held != name and held.startswith(name) for held in self.held), "a parent goes after its children"
            self.held.remove(name)

    def cleared(self) -> None:
        self.held.clear()


@examples(200)
@given(texts=st.lists(st.text("ab", min_size=1, max_size=4).map(str.encode), max_size=30), overlap=st.booleans())
def test_a_watcher_knows_the_pool(texts: list[bytes], overlap: bool) -> None:
    ledger = Ledger()
    pool = KvBlockPool(CAPACITY, 1, ledger)
    running: list[PrefixNode] = []
    for text in texts:
        known, unpinned = pool.match(text, len(text))
        if len(text) - known + unpinned > pool.available:
            continue
        node, known = pool.pin(text, known)
        pool.allocate(len(text) - known)
        running.append(pool.share(node, known, text, len(text)))
        if not overlap or len(running) > 1:
            pool.release(running.pop(0))
        assert len(ledger.held) == pool.pinned_blocks + pool.cached_blocks
        for other in texts:
            depth, _ = pool.match(other, len(other))
            assert all((other[: end + 1] in ledger.held) == (end < depth) for end in range(len(other)))
