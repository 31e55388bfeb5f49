"""Sets of slots as whole numbers, one bit a slot: who of a pool holds a block, and what that says of every instance."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

FEW = 8
"""Up to so many bits are cheaper one by one."""

SlotVector = npt.NDArray[np.int64]


def bits_of(mask: int, width: int) -> SlotVector:
    """Positions of the set bits of a mask of at most `width` bits, ascending."""
    octets = np.frombuffer(mask.to_bytes((width + 7) // 8, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(octets, bitorder="little"))


def slots_of(mask: int) -> Iterator[int]:
    """The same one by one."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def write_at_slots(values: SlotVector, places: SlotVector, rows: Iterable[tuple[int, int]]) -> None:
    """For each (mask, value) write the value at the place of every slot of the mask; `places` has one entry a slot."""
    for mask, value in rows:
        left = mask
        if left.bit_count() > FEW:
            values[places[bits_of(left, len(places))]] = value
            continue
        while left:
            lowest = left & -left
            values[places[lowest.bit_length() - 1]] = value
            left ^= lowest
