"""The KV cache of one engine: a pool of fixed-size blocks, and a prefix tree of the blocks whose content is known.

A block is identified by its content and by everything before it, as in a chain of block hashes. This module does not
hash: it uses a radix tree over the bytes of the prompts. So a few memory comparisons match a prompt of a megabyte,
which would need sixteen thousand hashes. Every node is a sequence of whole blocks.

Every block of the capacity is free, private (it belongs to one request, and its content is not shared) or in the tree.
Tree blocks that a request holds are pinned. The other tree blocks are cached. Cached blocks are evicted in the order in
which they were released, and the last block of a chain is released first.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol


class BlockWatcher(Protocol):
    """An observer that is notified when blocks are added to the prefix tree and when they are removed. It gives each
    block a name.
    """

    def stored(self, parent: bytes | None, text: bytes) -> tuple[bytes, ...]:
        """Record that whole blocks with this text were added after the block named `parent` (None: at the beginning of
        the prompt). Return the names of the new blocks.
        """

    def removed(self, names: Sequence[bytes]) -> None:
        """Record that blocks were evicted, in this order."""

    def cleared(self) -> None:
        """Record that all blocks were removed at once."""


class PrefixNode:
    """A sequence of blocks that follow the blocks of the node `parent`. Nodes belong to the pool; a request has a
    reference to its deepest node only.
    """

    __slots__ = ("blocks", "children", "label", "names", "parent", "references")

    def __init__(self, parent: "PrefixNode | None", label: bytes, blocks: int, references: int) -> None:
        self.parent = parent
        self.label = label
        self.blocks = blocks
        self.references = references
        self.children: dict[bytes, PrefixNode] = {}
        self.names: tuple[bytes, ...] = ()
        """The names of the node's blocks; empty if the pool has no watcher."""


class KvBlockPool:
    """A pool of `capacity` blocks of `block_bytes` bytes of text each. Not thread-safe."""

    def __init__(self, capacity: int, block_bytes: int, watcher: BlockWatcher | None = None) -> None:
        self._watcher = watcher
        self.capacity = capacity
        self.block_bytes = block_bytes
        self.private_blocks = 0
        self.pinned_blocks = 0
        self.cached_blocks = 0
        self.evicted_blocks = 0
        """Number of blocks evicted since the pool was created."""
        self._root = PrefixNode(None, b"", 0, 1)
        self._released: OrderedDict[PrefixNode, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Number of blocks that could be allocated now: the free blocks and the cached blocks."""
        return self.capacity - self.private_blocks - self.pinned_blocks

    @property
    def free_blocks(self) -> int:
        """Number of blocks that are neither private nor in the tree."""
        return self.available - self.cached_blocks

    @property
    def usage(self) -> float:
        """Share of the capacity that requests hold, 0 to 1; cached blocks count as free, as in vLLM."""
        return (self.private_blocks + self.pinned_blocks) / self.capacity

    def match(self, text: bytes, limit_blocks: int) -> tuple[int, int]:
        """Return two numbers of blocks. The first is the number of leading blocks of `text` that are in the tree, at
        most `limit_blocks`. The second is the number of these blocks that no request holds; `pin` would take them from
        the cache.
        """
        known, unpinned = 0, 0
        node = self._root
        while known < limit_blocks:
            child = self._child(node, text, known)
            if child is None:
                break
            shared = self._shared_blocks(child, text, known, limit_blocks - known)
            known += shared
            if child.references == 0:
                unpinned += shared
            if shared < child.blocks:
                break
            node = child
        return known, unpinned

    def pin(self, text: bytes, limit_blocks: int) -> tuple[PrefixNode, int]:
        """Pin the leading blocks of `text` that are in the tree, at most `limit_blocks`. Return the deepest node, which
        must be passed to `release` later, and the number of pinned blocks.
        """
        return self._descend(self._root, text, 0, limit_blocks)

    def allocate(self, blocks: int) -> None:
        """Allocate private blocks, evicting cached blocks if too few blocks are free. Raises ValueError if there are
        not enough; the caller has checked `available`.
        """
        if blocks > self.available:
            raise ValueError(f"{blocks} blocks asked, {self.available} available")
        missing = blocks - self.free_blocks
        if missing > 0:
            self._evict(missing)
        self.private_blocks += blocks

    def free(self, blocks: int) -> None:
        """Return a request's private blocks to the pool as free blocks. Raises ValueError if fewer than `blocks` blocks
        are private.
        """
        if blocks > self.private_blocks:
            raise ValueError(f"{blocks} blocks given back, only {self.private_blocks} are private")
        self.private_blocks -= blocks

    def share(self, node: PrefixNode, known_blocks: int, text: bytes, blocks: int) -> PrefixNode:
        """Move a request's private blocks into the tree, where they are pinned. They have the content of `text` from
        block `known_blocks` to block `blocks` (excluded), and they follow `node`. Return the request's new deepest
        node.

        If another request has already added equal blocks, those blocks are pinned and the private copies are freed.
        """
        if blocks <= known_blocks:
            return node
        deepest, reached = self._descend(node, text, known_blocks, blocks)
        self.private_blocks -= blocks - known_blocks
        if reached < blocks:
            label = text[reached * self.block_bytes : blocks * self.block_bytes]
            child = PrefixNode(deepest, label, blocks - reached, 1)
            if self._watcher is not None:
                child.names = self._watcher.stored(deepest.names[-1] if deepest.names else None, label)
            deepest.children[label[: self.block_bytes]] = child
            self.pinned_blocks += child.blocks
            deepest = child
        return deepest

    def release(self, node: PrefixNode) -> None:
        """Release all blocks from the root to `node`. Blocks that no other request holds become cached. Of these
        blocks, the last is evicted first.
        """
        current: PrefixNode | None = node
        while current is not None and current.parent is not None:
            current.references -= 1
            if current.references == 0:
                self.pinned_blocks -= current.blocks
                self.cached_blocks += current.blocks
                self._released[current] = None
            current = current.parent

    def forget(self) -> bool:
        """Remove all cached blocks at once, and return True. If a request holds blocks, remove nothing and return
        False.
        """
        if self.pinned_blocks or self.private_blocks:
            return False
        self._root = PrefixNode(None, b"", 0, 1)
        self._released.clear()
        self.cached_blocks = 0
        if self._watcher is not None:
            self._watcher.cleared()
        return True

    def _child(self, node: PrefixNode, text: bytes, known: int) -> PrefixNode | None:
        start = known * self.block_bytes
        return node.children.get(text[start : start + self.block_bytes])

    def _shared_blocks(self, node: PrefixNode, text: bytes, known: int, limit: int) -> int:
        """Return the number of leading blocks of `node`, at most `limit`, that equal the blocks of `text` from index
        `known` on. The number is at least 1, because the caller found the node by its first block.
        """
        start = known * self.block_bytes
        if node.blocks <= limit and text.startswith(node.label, start):
            return node.blocks
        low, high = 1, min(node.blocks, limit)
        while low < high:
            middle = (low + high + 1) // 2
            if text.startswith(node.label[: middle * self.block_bytes], start):
                low = middle
            else:
                high = middle - 1
        return low

    def _descend(self, node: PrefixNode, text: bytes, known: int, limit: int) -> tuple[PrefixNode, int]:
        while known < limit:
            child = self._child(node, text, known)
            if child is None:
                break
            shared = self._shared_blocks(child, text, known, limit - known)
            if shared < child.blocks:
                child = self._split(child, shared)
            self._hold(child)
            node = child
            known += shared
        return node, known

    def _hold(self, node: PrefixNode) -> None:
        if node.references == 0:
            del self._released[node]
            self.cached_blocks -= node.blocks
            self.pinned_blocks += node.blocks
        node.references += 1

    def _split(self, node: PrefixNode, blocks: int) -> PrefixNode:
        """Move the first `blocks` blocks of `node` to a new node above it, and return the new node. `node` keeps its
        other blocks, its holders and its position in the order of eviction.
        """
        parent = node.parent
        assert parent is not None, "the root has no blocks to split"
        cut = blocks * self.block_bytes
        head = PrefixNode(parent, node.label[:cut], blocks, node.references)
        parent.children[head.label[: self.block_bytes]] = head
        node.label = node.label[cut:]
        head.names, node.names = node.names[:blocks], node.names[blocks:]
        node.blocks -= blocks
        node.parent = head
        head.children[node.label[: self.block_bytes]] = node
        if head.references == 0:
            # The caller holds the head next; until then it stands behind its tail, so that the counts are always right.
            self._released[head] = None
        return head

    def _evict(self, blocks: int) -> None:
        self.evicted_blocks += blocks
        while blocks:
            node = next(iter(self._released))
            if node.blocks > blocks:
                node.blocks -= blocks
                node.label = node.label[: node.blocks * self.block_bytes]
                self._forget(node, node.blocks)
                self.cached_blocks -= blocks
                return
            del self._released[node]
            blocks -= node.blocks
            self._forget(node, 0)
            self.cached_blocks -= node.blocks
            assert node.parent is not None, "the root is never released"
            del node.parent.children[node.label[: self.block_bytes]]

    def _forget(self, node: PrefixNode, kept: int) -> None:
        if self._watcher is not None:
            self._watcher.removed(node.names[: kept - 1 if kept else None : -1])
            node.names = node.names[:kept]
