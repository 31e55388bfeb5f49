"""The holders of each block: for each key a mask of holdings, one bit each, and the lookup of a prompt along them."""

from collections.abc import Iterable, Sequence


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
        """How many leading blocks some holding of the mask has, each block maybe another."""
        get = self.masks.get
        for depth, key in enumerate(keys):
            if not get(key, 0) & mask:
                return depth
        return len(keys)

    def depths(self, keys: Sequence[int], alone: int, together: Iterable[int]) -> list[tuple[int, int]]:
        """(mask, leading blocks), shallowest first, of all that have at least the first block.

        Each bit of `alone` is a holding of its own; of each mask of `together`, the holdings of one source, any may
        have the next block, and its lowest bit stands for it. O(blocks), and what changes from one block to the next.
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
