"""Runs long test files first. A worker takes whole files, so a long file that starts last would leave other workers
idle.

If a file and its folder are both arguments, pytest keeps only the folder and runs it in its own order. So the order of
the arguments cannot be used.
"""

from collections.abc import Sequence
from pathlib import Path


def place_of(path: Path, first: Sequence[Path]) -> int:
    """Return the place of a test file among the files and folders that run first; all other files have the last
    place.
    """
    return next((place for place, one in enumerate(first) if path.is_relative_to(one)), len(first))
