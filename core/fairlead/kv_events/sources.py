"""The sources of KV events, the blocks that each holds, and for each block a bit mask of its holders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead.kv_events.events import BlockHash

EXPECTED = "expected"
"""Pseudo-tier for blocks that a source will hold soon, but has not reported yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One prefix cache: an instance and its data-parallel rank, because each rank has its own cache."""

    instance: str
    rank: int = 0


class Holding:
    """The blocks of one source in one tier."""

    __slots__ = ("bit", "copies", "keys", "tier")

    def __init__(self, bit: int, tier: str) -> None:
        self.bit = bit
        self.tier = tier
        self.keys: dict[BlockHash, int] = {}
        """Engine hash → request key of every block held, oldest first."""
        self.copies: dict[BlockHash, int] = {}
        """Number of copies, for blocks that are held more than once."""


class Cache:
    """The cache that one source's events describe."""

    __slots__ = ("block_size", "expecting", "groups_left_out", "holdings", "mask")

    def __init__(self) -> None:
        self.block_size: int | None = None
        self.holdings: dict[str, Holding] = {}
        self.mask = 0
        self.groups_left_out: set[int | None] = set()
        self.expecting: dict[int, set[str]] = {}
        """Request key of a block that is expected → the requests that will bring it."""


def key_of(cache: Cache, block_hash: BlockHash) -> int | None:
    """The key of a block, from any tier of the source that knows it."""
    for holding in cache.holdings.values():
        if holding.tier != EXPECTED and (key := holding.keys.get(block_hash)) is not None:
            return key
    return None


class Holders:
    """Key of a block → mask of the holdings that have it.

    `masks` is written by the index directly, since every event goes through it.
    """

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}
        self._bits_in_use = 0

    def take_bit(self) -> int:
        """The lowest bit that is free."""
        bit = ~self._bits_in_use & (self._bits_in_use + 1)
        self._bits_in_use |= bit
        return bit

    def free_bits(self, bits: int) -> None:
        """Frees the bits of holdings that have ended; no block has them any more."""
        self._bits_in_use &= ~bits

    def release(self, key: int, bit: int) -> None:
        """The holding does not have the block any more."""
        mask = self.masks.get(key, 0) & ~bit
        if mask:
            self.masks[key] = mask
        else:
            self.masks.pop(key, None)

    def leading(self, keys: Sequence[int], mask: int) -> int:
        """How many leading blocks the holdings of the mask have between them; each block may be in another holding."""
        get = self.masks.get
        for depth, key in enumerate(keys):
            if not get(key, 0) & mask:
                return depth
        return len(keys)

    def depths(self, keys: Sequence[int], alone: int, together: Iterable[int]) -> list[tuple[int, int]]:
        """(mask, leading blocks) of all sources that have at least the first block, shallowest first.

        Each bit of `alone` is the only holding of a source. Each mask of `together` is the holdings of one source: any
        of them may have the next block, and the lowest bit represents the source. O(blocks + changes between
        neighbouring blocks).
        """
        get = self.masks.get
        before = get(keys[0], 0) if keys else 0
        alive = before & alone
        groups = [mask for mask in together if mask & before]
        found: list[tuple[int, int]] = []
        for depth, key in enumerate(keys):
            here = get(key, 0)
            if here == before:
                continue
            before = here
            gone = alive & ~here
            alive ^= gone
            if groups:
                for mask in groups:
                    if not mask & here:
                        gone |= mask & -mask
                groups = [mask for mask in groups if mask & here]
            if gone:
                found.append((gone, depth))
            if not alive and not groups:
                return found
        rest = alive
        for mask in groups:
            rest |= mask & -mask
        if rest:
            found.append((rest, len(keys)))
        return found
