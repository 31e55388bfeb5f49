"""The processes' output: one bounded file each, and one merged stream on the terminal with coloured names."""

import contextlib
import itertools
import select
from collections import deque
from pathlib import Path
from typing import TextIO

COLOURS = ("36", "33", "35", "32", "34", "96", "93", "95", "92", "94")
FILE_LIMIT_BYTES = 8 * 1024 * 1024
LINE_LIMIT_BYTES = 64 * 1024


class Console:
    """The merged stream on a terminal. Names are padded to the widest one; they are coloured if the terminal supports
    it.
    """

    def __init__(self, target: TextIO | None, *, names: tuple[str, ...], coloured: bool) -> None:
        self._target = target
        self.reader_left = False
        self._width = max((len(name) for name in names), default=0)
        self._colours = dict(zip(names, itertools.cycle(COLOURS), strict=False)) if coloured else {}

    def open(self, target: TextIO | None) -> None:
        """Print to `target` from now on."""
        self._target = target

    def write(self, name: str, line: str) -> None:
        """Print one line of one process.

        If the reader is gone (a closed pipe or terminal), nothing more is printed and the sandbox continues.
        """
        label = f"{name:<{self._width}} |"
        if name in self._colours:
            label = f"\x1b[{self._colours[name]}m{label}\x1b[0m"
        self.write_plain(f"{label} {line}")

    def write_plain(self, text: str) -> None:
        """Print text that belongs to no process."""
        if self._target is None:
            return
        try:
            self._target.write(text + "\n")
            self._target.flush()
        except (OSError, ValueError):
            self._target, self.reader_left = None, True

    def wait(self, seconds: float) -> None:
        """Wait for this number of seconds, or until the reader is gone."""
        watching = select.poll()
        with contextlib.suppress(OSError, ValueError):  # of what is not a file, as in tests, nothing can be heard
            if self._target is not None:
                watching.register(self._target.fileno(), 0)
        if watching.poll(seconds * 1000):  # an error or a hang-up: nothing else was asked for
            self._target, self.reader_left = None, True


class ProcessLog:
    """The log file of one process, moved to `<name>.log.1` when it is full.

    The last lines are kept in memory for error messages.
    """

    def __init__(self, folder: Path, name: str, console: Console | None, *, limit_bytes: int = FILE_LIMIT_BYTES) -> None:
        self.path = folder / f"{name}.log"
        self.last_lines: deque[str] = deque(maxlen=20)
        self._name = name
        self._console = console
        self._limit = limit_bytes
        self._file = self.path.open("ab")
        self._size = self._file.tell()

    def write(self, line: str) -> None:
        """Write one line, without its newline."""
        self.last_lines.append(line)
        if self._console is not None:
            self._console.write(self._name, line)
        try:
            self._keep(line.encode(errors="replace") + b"\n")
        except (OSError, ValueError):  # a full disk must not block the process that wrote the line
            self._open_again()

    def _keep(self, data: bytes) -> None:
        if self._size + len(data) > self._limit:
            try:
                with contextlib.suppress(FileNotFoundError):  # somebody has removed it
                    self.path.replace(self.path.with_name(self.path.name + ".1"))
            finally:
                self._open_again()
        self._file.write(data)
        self._file.flush()
        self._size += len(data)

    def _open_again(self) -> None:
        """Open a new file of this name. If that fails, the next line tries it again."""
        self.close()
        self._size = 0
        with contextlib.suppress(OSError):
            self._file = self.path.open("ab")

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what a full disk did not take is lost
            self._file.close()


class LineSplitter:
    """Splits chunks of bytes into lines; an overlong line is split at LINE_LIMIT_BYTES.

    Carriage returns (progress bars) end lines too.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines completed by this chunk."""
        *complete, self._rest = (self._rest + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) > LINE_LIMIT_BYTES:
            complete.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace") for line in complete]

    def rest(self) -> list[str]:
        """Return the incomplete last line when the stream ends; empty if there is none."""
        left, self._rest = self._rest, b""
        return [left.decode(errors="replace")] if left else []
