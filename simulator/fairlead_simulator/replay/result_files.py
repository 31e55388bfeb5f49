"""Files of results, which hold what an earlier run left in them until there is something to write."""

import os
import stat
from pathlib import Path
from types import TracebackType

import click


class ResultFile:
    """A file of results.

    Opened before the first request, so that an unwritable file is reported before the work; emptied by the first
    result, so that a run that never begins destroys no older one. Raises ClickException.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("ab")
        except OSError as error:
            raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from None
        self._is_old = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)  # what is not a file, as a pipe, holds nothing

    def __enter__(self) -> "ResultFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._file.close()

    def write(self, content: bytes) -> None:
        """Append to the results of this run."""
        if self._is_old:
            self._file.truncate(0)
            self._is_old = False
        self._file.write(content)
