"""Prompt prefixes: chained block hashes, and for each instance the blocks that it is believed to hold.

The index mirrors each instance's cache as an LRU cache of routing blocks. A block is never more recently used than its
parent block. So an instance that holds a block also holds all blocks before it in the prompt, and the length of a match
can be found by bisection.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from xxhash import xxh3_64_intdigest

from fairlead.slot_masks import FEW


def prompt_root(adapter: str | None, more: bytes = b"") -> int:
    """Return the root hash of a prompt. Different roots distinguish blocks that engines do not share: blocks of a model
    and of its adapters, and blocks of requests that differ in `more`, such as a salt.
    """
    root = 0 if adapter is None else int(xxh3_64_intdigest(adapter.encode()))
    return int(xxh3_64_intdigest(more, root)) if more else root


def block_hashes(text: bytes | memoryview, block_bytes: int, root: int = 0) -> tuple[int, ...]:
    """Return chained 64-bit hashes of the full `block_bytes`-sized blocks of `text`; a trailing partial block has no
    hash.

    The seed of each hash is the hash of the block before; the seed of the first is `root` (`prompt_root`). So equal
    hashes at a depth mean equal prefixes. Raises ValueError for block_bytes < 1.
    """
    if block_bytes < 1:
        raise ValueError(f"block_bytes must be at least 1, not {block_bytes}")
    parent = root
    hashes: list[int] = []
    append, digest = hashes.append, xxh3_64_intdigest
    view = memoryview(text)
    for begin in range(0, len(text) - block_bytes + 1, block_bytes):
        parent = digest(view[begin : begin + block_bytes], parent)
        append(parent)
    return tuple(hashes)


LONG_BYTES = 16_384
"""Minimum length in bytes of a piece of a prompt that is hashed without copying it."""


def block_hashes_of(pieces: Sequence[bytes], block_bytes: int, root: int = 0) -> tuple[int, ...]:
    """Return the `block_hashes` of the concatenated pieces."""
    long = max(LONG_BYTES, block_bytes)
    if max(map(len, pieces), default=0) < long:
        return block_hashes(b"".join(pieces), block_bytes, root)
    hashes: list[int] = []
    short: list[bytes] = []
    for piece in pieces:
        if len(piece) < long:
            short.append(piece)
            continue
        before = b"".join(short)
        begins = -len(before) % block_bytes
        hashes += block_hashes(before + piece[:begins], block_bytes, hashes[-1] if hashes else root)
        hashes += block_hashes(memoryview(piece)[begins:], block_bytes, hashes[-1] if hashes else root)
        short = [piece[len(piece) - (len(piece) - begins) % block_bytes :]]
    return (*hashes, *block_hashes(b"".join(short), block_bytes, hashes[-1] if hashes else root))


def first_bytes_hash(text: bytes, block_bytes: int, blocks: Sequence[int] = (), root: int = 0) -> int:
    """Return the hash of the first block of `text` or, if `text` is shorter than a block, of the whole text. The hash
    is used as `RoutingRequest.first_bytes_hash`. It equals the first of the text's `block_hashes`, which the caller may
    pass as `blocks`.
    """
    return blocks[0] if blocks else int(xxh3_64_intdigest(text[:block_bytes], root))


def shared_blocks(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of leading blocks that two prompts share, given their chained hashes."""
    return next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))


class PrefixIndex:
    """The blocks that each instance is believed to hold, limited to the size of its KV cache by LRU.

    Blocks are chained hashes. The index from blocks to instances is built at the first query about all instances:
    policies that examine only one or two instances never need it.
    """

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = max(0, capacity_blocks)
        self._holders: dict[int, int] | None = None
        """Block → bit mask of the slots (one per instance) that hold it; None until it is first needed."""
        self._caches: dict[str, OrderedDict[int, None]] = {}
        self._slots: dict[str, int] = {}
        self._names: list[str | None] = []
        self._freshest: dict[str, Sequence[int]] = {}
        """The blocks last inserted for each instance. Most prompts are inserted twice, when they are sent and when they
        are computed; the second insertion is skipped if no other came between.
        """
        self.slots_version = 0
        """A counter that grows when an instance gets or loses a slot, which is its bit in the masks of
        `match_masks`.
        """

    @property
    def capacity_blocks(self) -> int:
        """Number of blocks that one instance can hold."""
        return self._capacity

    def set_capacity(self, capacity_blocks: int) -> None:
        """Set the size of each KV cache in blocks; blocks that no longer fit are forgotten, least recently used
        first.
        """
        self._capacity = max(0, capacity_blocks)
        self._freshest.clear()
        for instance in tuple(self._caches):
            self._evict(instance)

    def insert(self, instance: str, blocks: Sequence[int]) -> None:
        """Record that the instance now holds these leading blocks of a prompt. They become its most recently used
        blocks; the first block is the most recent.
        """
        if self._freshest.get(instance) is blocks:
            return
        self._freshest[instance] = blocks
        cache = self._caches.get(instance)
        if cache is None:
            cache = self._caches[instance] = OrderedDict()
            self._slots[instance] = self._free_slot(instance)
            self.slots_version += 1
        new: list[int] = []
        for block in reversed(blocks[: self._capacity]):
            if block in cache:
                cache.move_to_end(block)
            else:
                cache[block] = None
                new.append(block)
        if self._holders is not None:
            _hold(self._holders, new, 1 << self._slots[instance])
        if len(cache) > self._capacity:
            self._evict(instance)

    def drop(self, instance: str) -> None:
        """Forget all blocks of an instance that is gone or that lost its cache."""
        cache = self._caches.pop(instance, None)
        if cache is None:
            return
        self._freshest.pop(instance, None)
        slot = self._slots.pop(instance)
        self._names[slot] = None
        self.slots_version += 1
        self._clear(cache, 1 << slot)

    def match(self, instance: str, blocks: Sequence[int]) -> int:
        """Return the number of leading blocks that the instance holds."""
        cache = self._caches.get(instance)
        if not cache or not blocks or blocks[0] not in cache:
            return 0
        low, high = 1, len(blocks)
        while low < high:
            middle = (low + high + 1) >> 1
            if blocks[middle - 1] in cache:
                low = middle
            else:
                high = middle - 1
        return low

    def match_everywhere(self, blocks: Sequence[int]) -> dict[str, int]:
        """Return the number of leading blocks that each instance holds, for the instances that hold at least the first
        block.
        """
        found: dict[str, int] = {}
        names = self._names
        for mask, depth in self.match_masks(blocks):
            left = mask
            while left:
                lowest = left & -left
                name = names[lowest.bit_length() - 1]
                if name is not None:
                    found[name] = depth
                left ^= lowest
        return found

    def match_masks(self, blocks: Sequence[int]) -> list[tuple[int, int]]:
        """Return pairs (mask, number of leading blocks), fewest blocks first, for all instances that hold at least the
        first block. Each bit of a mask is the slot of one instance.

        An instance may be in several masks; the pair with the most blocks is then the right one, which comes last. Such
        repetitions are allowed so that all prompts with this beginning get the same mask.
        """
        found: list[tuple[int, int]] = []
        holders = self._holders
        if holders is None:
            holders = self._holders = {}
            for instance, cache in self._caches.items():
                _hold(holders, cache, 1 << self._slots[instance])
        alive = holders.get(blocks[0], 0) if blocks else 0
        depth = 0
        for block in blocks:
            still = holders.get(block, 0) & alive
            if still != alive:
                if depth:
                    gone = alive & ~still
                    found.append((gone if gone.bit_count() <= FEW else alive, depth))
                alive = still
            if not alive:
                return found
            depth += 1
        if alive:
            found.append((alive, depth))
        return found

    def slots(self) -> Mapping[str, int]:
        """Each instance's slot, which is its bit in the masks."""
        return self._slots

    def held(self, instance: str) -> frozenset[int]:
        """Every block the instance is believed to hold."""
        return frozenset(self._caches.get(instance, ()))

    def by_freshness(self, instance: str) -> list[int]:
        """Return the blocks that the instance is believed to hold, from least to most recently used."""
        return list(self._caches.get(instance, ()))

    def instances(self) -> tuple[str, ...]:
        """The instances that are believed to hold blocks, in order of id."""
        return tuple(sorted(self._caches))

    def _free_slot(self, instance: str) -> int:
        for slot, name in enumerate(self._names):
            if name is None:
                self._names[slot] = instance
                return slot
        self._names.append(instance)
        return len(self._names) - 1

    def _evict(self, instance: str) -> None:
        cache = self._caches[instance]
        evicted = [cache.popitem(last=False)[0] for _ in range(len(cache) - self._capacity)]
        self._clear(evicted, 1 << self._slots[instance])

    def _clear(self, blocks: Iterable[int], bit: int) -> None:
        holders = self._holders
        if holders is None:
            return
        for block in blocks:
            mask = holders[block]
            if mask == bit:
                del holders[block]
            else:
                holders[block] = mask ^ bit


def _hold(holders: dict[int, int], blocks: Iterable[int], bit: int) -> None:
    for block in blocks:
        holders[block] = holders.get(block, 0) | bit
