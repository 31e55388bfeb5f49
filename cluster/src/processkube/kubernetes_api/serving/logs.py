"""The source of the text of `kubectl logs`. By default, it is the log files that the kubelet writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Protocol

POLL_SECONDS = 0.2
_BLOCK = 64 * 1024


class LogSource(Protocol):
    """A function that yields a container's log as bytes. If `follow`, it also yields what the container writes later.

    `tail_lines` is the number of last lines to yield; None = the whole log. If `previous`, it yields the log of the
    container before the last restart. Raises FileNotFoundError if the container has written nothing yet.
    """

    def __call__(
        self, namespace: str, pod: str, container: str, *, follow: bool, tail_lines: int | None, previous: bool
    ) -> AsyncGenerator[bytes, None]: ...


def log_path(folder: Path, namespace: str, pod: str) -> Path:
    """Return the path of a pod's log file. All containers of a pod share one file."""
    return folder / f"{namespace}_{pod}.log"


def previous_log_path(folder: Path, namespace: str, pod: str) -> Path:
    """Return the path of the log file of the container that ran before the current one."""
    return folder / f"{namespace}_{pod}.previous"


def file_log_source(folder: Path, is_running: Callable[[str, str], bool]) -> LogSource:
    """Return a log source that reads `<folder>/<namespace>_<pod>.log`.

    A followed log ends once `is_running(namespace, pod)` returns False.
    """

    async def read(
        namespace: str, pod: str, container: str, *, follow: bool, tail_lines: int | None, previous: bool
    ) -> AsyncGenerator[bytes, None]:
        path = (previous_log_path if previous else log_path)(folder, namespace, pod)
        position: int | None = None
        while True:
            running = not previous and is_running(namespace, pod)
            if position is None and (path.exists() or not follow or not running):
                position = _tail_position(path, tail_lines)
            while position is not None:
                position, block = _read_at(path, position)
                if not block:
                    break
                yield block
            if not follow or not running:
                return
            await asyncio.sleep(POLL_SECONDS)

    return read


def _read_at(path: Path, position: int) -> tuple[int, bytes]:
    """Return the position after the next bytes, and these bytes. If the file was shortened below `position`, return its
    new size and no bytes.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < position:
            return size, b""
        file.seek(position)
        block = file.read(_BLOCK)
        return position + len(block), block


def _tail_position(path: Path, lines: int | None) -> int:
    """Return the position at which the last `lines` lines of the file begin; 0 if `lines` is None. The file is read
    backwards.
    """
    with path.open("rb") as file:
        position = file.seek(0, 2)
        if lines is None:
            return 0
        if lines == 0:
            return position
        end = position
        seen = 0
        while position > 0:
            start = max(0, position - _BLOCK)
            file.seek(start)
            block = file.read(position - start)
            for index in range(len(block) - 1, -1, -1):
                if block[index] == 0x0A and start + index != end - 1:
                    seen += 1
                    if seen == lines:
                        return start + index + 1
            position = start
        return 0
