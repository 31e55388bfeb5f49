"""Access to trace files. They are decompressed and read line by line, and their first lines are kept so that their form
can be detected.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from fairlead_process.text_files import TextUnreadable, text_lines
from fairlead_simulator.errors import TraceInvalid

_BEGIN_LINES = 200
"""Maximum number of lines that are read ahead to detect the form of a document that spans many lines."""


class TraceFile:
    """The lines of a file, each with its line number; blank lines are left out. The lines can be read only once."""

    def __init__(self, name: str, lines: Iterator[tuple[int, bytes]]) -> None:
        self.name = name
        ahead = [line for line in [next(lines, None)] if line is not None]
        if ahead and ahead[0][1].strip() in (b"{", b"["):
            ahead += [line for _, line in zip(range(_BEGIN_LINES), lines, strict=False)]
        self.begin = b"".join(line for _, line in ahead)
        """The first line; for a document whose first line is only a bracket, the first lines together."""
        self._lines = chain(ahead, lines)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return self._lines


@contextmanager
def opened(path: Path) -> Iterator[TraceFile]:
    """Open a file within the block; the path `-` stands for standard input. Raises TraceInvalid if the file cannot be
    opened, or if reading it fails within the block.
    """
    name = str(path)
    try:
        file = sys.stdin.buffer if name == "-" else path.open("rb")
    except OSError as error:
        raise TraceInvalid(name, 0, "", f"cannot be read: {error.strerror}") from None
    with file:
        try:
            numbered = enumerate(text_lines(file), start=1)
            yield TraceFile(name, ((number, line) for number, line in numbered if not line.isspace()))
        except TextUnreadable as error:
            raise TraceInvalid(name, error.line, "", str(error)) from None
        except OSError as error:
            raise TraceInvalid(name, 0, "", f"cannot be read: {error.strerror}") from None
