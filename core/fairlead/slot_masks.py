"""Sets of slots as integers, one bit per slot. The index uses such a mask for the holders of a block; routing maps its
slots to instances.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

FEW = 8
"""Largest number of set bits for which reading the bits one after the other is cheaper than `bits_of`."""
KEPT_MASKS = 64
"""Maximum number of masks with more than `FEW` bits that are cached with their slots: prefixes that many instances hold
recur often.
"""

SlotVector = npt.NDArray[np.int64]


def bits_of(mask: int, width: int) -> SlotVector:
    """Return the positions of the set bits of a mask of at most `width` bits, ascending."""
    octets = np.frombuffer(mask.to_bytes((width + 7) // 8, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(octets, bitorder="little"))


def slots_of(mask: int) -> Iterator[int]:
    """Yield the slots of a mask, one by one."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class SlotPlaces:
    """The positions of slots in a vector: `places` has one entry per slot."""

    def __init__(self, places: SlotVector) -> None:
        self._places = places
        self._one_by_one: list[int] = places.tolist()
        self._kept: dict[int, SlotVector] = {}

    def of(self, slot: int) -> int:
        """Return the position of one slot."""
        return self._one_by_one[slot]

    def write(self, values: SlotVector, rows: Iterable[tuple[int, int]]) -> None:
        """For each pair (mask, value) in order, write the value to the position of every slot of the mask."""
        places = self._one_by_one
        for mask, value in rows:
            left = mask
            if left.bit_count() > FEW:
                values[self._of_many(left)] = value
                continue
            while left:
                lowest = left & -left
                values[places[lowest.bit_length() - 1]] = value
                left ^= lowest

    def _of_many(self, mask: int) -> SlotVector:
        found = self._kept.get(mask)
        if found is None:
            if len(self._kept) >= KEPT_MASKS:
                self._kept.clear()
            found = self._kept[mask] = self._places[bits_of(mask, len(self._places))]
        return found
