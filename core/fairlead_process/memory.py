"""Returns unused memory to the system, which the C library would otherwise keep, and measures a process's memory."""

import ctypes
import os
import sys
from pathlib import Path


def give_back() -> None:
    """Return free memory to the system. This takes milliseconds, in which other threads may run Python code. Nothing
    happens if the C library has no function for it.
    """
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)


def memory_in_use() -> int:
    """Return the bytes of memory that this process has; 0 if the system does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None
