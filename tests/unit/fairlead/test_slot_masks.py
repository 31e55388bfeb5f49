"""Masks of slots: every bit is found, and each value is written where it belongs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.slot_masks import bits_of, slots_of, write_at_slots

BITS = st.sets(st.integers(0, 600))


def mask_of(bits: set[int]) -> int:
    return sum(1 << bit for bit in bits)


@given(BITS)
def test_bits_are_found_wherever_they_are(bits: set[int]) -> None:
    assert bits_of(mask_of(bits), 601).tolist() == list(slots_of(mask_of(bits))) == sorted(bits)


@given(BITS, BITS)
def test_values_are_written_at_the_places_of_the_slots(first: set[int], second: set[int]) -> None:
    """Few bits and many go different ways."""
    values = np.zeros(601, dtype=np.int64)
    places = np.arange(600, -1, -1)
    write_at_slots(values, places, [(mask_of(first), 7), (mask_of(second - first), 9)])
    assert values.tolist() == [7 if 600 - at in first else 9 if 600 - at in second else 0 for at in range(601)]
