"""Makes pytest run long test files first. A worker gets whole files, so if a long file starts last, the other workers
are idle until it ends.

The order of pytest's arguments cannot do this: if a file and its folder are both arguments, pytest runs the folder in
its own order.
"""

from collections.abc import Sequence
from pathlib import Path


def place_of(path: Path, first: Sequence[Path]) -> int:
    """Return the place of a test file among the files and folders that run first; all other files have the last
    place.
    """
    return next((place for place, one in enumerate(first) if path.is_relative_to(one)), len(first))
