"""Masks of slots: every bit is found, and each value is written at its slot."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.slot_masks import KEPT_MASKS, SlotPlaces, bits_of, slots_of

BITS = st.sets(st.integers(0, 600))


def mask_of(bits: set[int]) -> int:
    return sum(1 << bit for bit in bits)


@given(BITS)
def test_bits_are_found_wherever_they_are(bits: set[int]) -> None:
    assert bits_of(mask_of(bits), 601).tolist() == list(slots_of(mask_of(bits))) == sorted(bits)


@given(BITS, BITS)
def test_values_are_written_at_the_places_of_the_slots(first: set[int], second: set[int]) -> None:
    """The code has separate paths for few and for many bits."""
    values = np.zeros(601, dtype=np.int64)
    places = np.arange(600, -1, -1)
    SlotPlaces(places).write(values, [(mask_of(first), 7), (mask_of(second - first), 9)])
    assert values.tolist() == [7 if 600 - at in first else 9 if 600 - at in second else 0 for at in range(601)]


def test_of_more_masks_than_are_remembered_each_is_written_where_it_belongs() -> None:
    places = SlotPlaces(np.arange(600, -1, -1))
    for first in (*range(KEPT_MASKS + 9), 0):
        values = np.zeros(601, dtype=np.int64)
        places.write(values, [(mask_of(set(range(first, first + 20))), 7), (mask_of({first}), 9)])
        assert np.flatnonzero(values).tolist() == list(range(600 - first - 19, 600 - first + 1))
        assert (values[600 - first], values[600 - first - 1]) == (9, 7), "the later one counts"
