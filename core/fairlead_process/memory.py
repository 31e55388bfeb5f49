"""Gives memory that is not used any more back to the system, which the C library keeps for later otherwise."""

import ctypes
import sys


def give_back() -> None:
    """Give back free memory. Takes milliseconds, without Python's lock; does nothing where the C library cannot."""
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)


_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None
