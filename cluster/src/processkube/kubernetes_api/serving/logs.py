"""The source of the text of `kubectl logs`: by default the files that the kubelet writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Protocol

POLL_SECONDS = 0.2
_BLOCK = 64 * 1024


class LogSource(Protocol):
    """A function that yields a container's log as bytes; with `follow`, it continues until the consumer stops it.

    If `tail_lines` is None, the log is complete; `previous` asks for the log of the container before the last restart.
    Raises FileNotFoundError when the container has written nothing yet.
    """

    def __call__(
        self, namespace: str, pod: str, container: str, *, follow: bool, tail_lines: int | None, previous: bool
    ) -> AsyncGenerator[bytes, None]: ...


def log_path(folder: Path, namespace: str, pod: str) -> Path:
    """Return the file of a pod's log: one per pod, however many containers it has."""
    return folder / f"{namespace}_{pod}.log"


def previous_log_path(folder: Path, namespace: str, pod: str) -> Path:
    """Return the file with the log of the container that ran before the current one."""
    return folder / f"{namespace}_{pod}.previous"


def file_log_source(folder: Path, is_running: Callable[[str, str], bool]) -> LogSource:
    """Return a source that reads `<folder>/<namespace>_<pod>.log`.

    Following ends when `is_running(namespace, pod)` turns false.
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
    """Return the next bytes and the position after them. A file that was cut short is followed from its new end."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < position:
            return size, b""
        file.seek(position)
        block = file.read(_BLOCK)
        return position + len(block), block


def _tail_position(path: Path, lines: int | None) -> int:
    """Return the position where the last `lines` lines begin, found by reading backwards; None means the whole file."""
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
