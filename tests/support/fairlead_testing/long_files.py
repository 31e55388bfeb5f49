"""Long test files begin first: a worker takes whole files, so a long one that begins last leaves the others idle.

pytest itself merges the arguments FILE and FOLDER, if the file is in the folder, and runs the folder in its own order.
"""

from collections.abc import Sequence
from pathlib import Path


def place_of(path: Path, first: Sequence[Path]) -> int:
    """Return the place of a test file among the files and folders that begin first; others have the last place."""
    return next((place for place, one in enumerate(first) if path.is_relative_to(one)), len(first))
