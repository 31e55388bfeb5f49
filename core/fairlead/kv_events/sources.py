"""The sources of KV events, the blocks that each source holds, and for each block a bit mask of its holders."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from fairlead.kv_events.events import BlockHash

EXPECTED = "expected"
"""The key that stands in place of a tier for expected blocks: blocks that a source will hold soon and that its events
have not reported yet.
"""


class Tier(StrEnum):
    """The tiers of memory in which a cache keeps blocks, fastest first. An engine uses blocks in its GPU's memory
    directly, and loads blocks from all other tiers.
    """

    GPU = "GPU"
    HOST = "host"
    """The host's main memory."""
    DISK = "disk"
    REMOTE = "remote"
    """Another machine's memory or disk, or an object store."""


SLOW: Final = (Tier.HOST, Tier.DISK, Tier.REMOTE)
"""The tiers that an engine loads from, in the order in which it looks them up."""

TierCounts = tuple[int, int, int]
"""Blocks or tokens in each tier of `SLOW`."""
NOTHING_SLOW: Final[TierCounts] = (0, 0, 0)

_MEDIA: Final[Mapping[str | None, Tier]] = MappingProxyType(
    {None: Tier.GPU, "GPU": Tier.GPU}
    | dict.fromkeys(("CPU", "CPU_PINNED", "CPU_TIER1"), Tier.HOST)
    | dict.fromkeys(("STORAGE", "DISK", "FS", "CPU_TIER2"), Tier.DISK)
    | dict.fromkeys(("EXTERNAL", "OBJ", "REMOTE"), Tier.REMOTE)
)
"""The media named by vLLM (`FS` and `OBJ` until 0.26), SGLang and Dynamo."""


def tier_of(medium: str | None, locality: str | None = None) -> Tier | None:
    """Return the tier that an event's `medium` and `locality` name; None for a medium that no known engine has."""
    tier = _MEDIA.get(medium)
    if tier is None and medium is not None:
        tier = _MEDIA.get(medium.upper())
    return Tier.REMOTE if locality == "REMOTE" and tier in SLOW else tier


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

    __slots__ = ("block_size", "expecting", "groups_left_out", "holdings", "is_tiered", "mask")

    def __init__(self) -> None:
        self.block_size: int | None = None
        self.holdings: dict[str, Holding] = {}
        self.mask = 0
        self.is_tiered = False
        """Whether the cache may hold blocks outside the GPU."""
        self.groups_left_out: set[int | None] = set()
        self.expecting: dict[int, set[str]] = {}
        """Request key of an expected block → the requests that will bring the block."""


class TieredSource:
    """The bits of a source that also holds blocks outside the GPU: `slot` is the bit of its slot, `fast` the bits of
    blocks that need no load, and `slow` the bit of each tier of `SLOW` (0 = no blocks in that tier).
    """

    __slots__ = ("fast", "slot", "slow")

    def __init__(self, cache: Cache) -> None:
        bits = {tier: holding.bit for tier, holding in cache.holdings.items()}
        self.slot = cache.mask & -cache.mask
        self.slow = tuple(bits.get(tier, 0) for tier in SLOW)
        self.fast = cache.mask & ~sum(self.slow)


def key_of(cache: Cache, block_hash: BlockHash) -> int | None:
    """Return the key of a block, from any tier of the source that knows the block."""
    for holding in cache.holdings.values():
        if holding.tier != EXPECTED and (key := holding.keys.get(block_hash)) is not None:
            return key
    return None


class Holders:
    """Key of a block → mask of the holdings that have it.

    The index writes `masks` directly, because every event changes it and a call would be slow.
    """

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}
        self._bits_in_use = 0

    def take_bit(self) -> int:
        """Return the lowest bit that is free."""
        bit = ~self._bits_in_use & (self._bits_in_use + 1)
        self._bits_in_use |= bit
        return bit

    def free_bits(self, bits: int) -> None:
        """Free the bits of holdings that have ended; no block has them any more."""
        self._bits_in_use &= ~bits

    def release(self, key: int, bit: int) -> None:
        """Record that the holding with this bit no longer has the block."""
        mask = self.masks.get(key, 0) & ~bit
        if mask:
            self.masks[key] = mask
        else:
            self.masks.pop(key, None)

    def leading(self, keys: Sequence[int], mask: int) -> int:
        """Return the number of leading blocks that are each in at least one of the holdings whose bits are set in
        `mask`.
        """
        get = self.masks.get
        for depth, key in enumerate(keys):
            if not get(key, 0) & mask:
                return depth
        return len(keys)

    def depths(self, keys: Sequence[int], alone: int, together: Iterable[int]) -> list[tuple[int, int]]:
        """Return (mask, leading blocks) of all sources that have at least the first block, shallowest first.

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

    def through_tiers(self, keys: Sequence[int], sources: Iterable[TieredSource]) -> list[tuple[int, int, TierCounts]]:
        """For each source that has the first block, return the bit of its slot, its number of leading blocks, and the
        number of these blocks in each slow tier.

        The lookup follows the engines' order. From the first block that is missing in the GPU, blocks are taken from
        the slow tiers, each from the fastest tier that has it. A later block that only the GPU has ends the prefix.
        O(blocks + changes between neighbouring blocks).
        """
        get, before = self.masks.get, -1
        runs = [(source, -1, 0, NOTHING_SLOW) for source in sources]
        found: list[tuple[int, int, TierCounts]] = []
        for depth, key in enumerate(keys):
            here = get(key, 0)
            if here == before:
                continue
            before = here
            left: list[tuple[TieredSource, int, int, TierCounts]] = []
            for source, tier, since, counts in runs:
                if tier < 0 and here & source.fast:
                    left.append((source, tier, since, counts))
                    continue
                counts = _counted(counts, tier, depth - since)
                next_tier = next((place for place, bit in enumerate(source.slow) if bit & here), -1)
                if next_tier >= 0:
                    left.append((source, next_tier, depth, counts))
                elif depth:
                    found.append((source.slot, depth, counts))
            runs = left
            if not runs:
                break
        found += [(source.slot, len(keys), _counted(counts, tier, len(keys) - since)) for source, tier, since, counts in runs]
        return found if keys else []


def _counted(counts: TierCounts, tier: int, blocks: int) -> TierCounts:
    """Return the counts with more blocks added to the slow tier at this index; the index -1 is the GPU, which is not
    counted.
    """
    if tier < 0:
        return counts
    host, disk, remote = (count + blocks * (place == tier) for place, count in enumerate(counts))
    return host, disk, remote
