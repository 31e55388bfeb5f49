"""The sources of events, and what is known of the blocks of each."""

from dataclasses import dataclass

from fairlead.kv_events.events import BlockHash

EXPECTED = "expected"
"""The tier of blocks that a source is to hold soon, of which its events say nothing yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One prefix cache: an instance, and its data-parallel rank, since each rank caches for itself."""

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
        """How many copies, of blocks that are held more than once."""


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
    """The key of a block in whichever tier of the source knows it."""
    for holding in cache.holdings.values():
        if holding.tier != EXPECTED and (key := holding.keys.get(block_hash)) is not None:
            return key
    return None
