"""Measures the event loop's steps by their number of function calls, which is the same on every machine.

A step is what the loop does between two polls of its sockets.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch


class Turns:
    """Counts of calls. `longest` is the number of calls (of Python and C functions) in the longest step so far.

    `where` has the functions that this step called most, with their numbers of calls.
    """

    def __init__(self) -> None:
        self.longest = 0
        self.where: list[tuple[str, int]] = []
        self._calls: Counter[str] = Counter()

    def count(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            self._calls[f"{frame.f_code.co_filename}:{frame.f_code.co_name}"] += 1
        elif event == "c_call":
            self._calls[f"{frame.f_code.co_filename}:{called.__name__}"] += 1

    def next_step(self) -> None:
        sys.setprofile(None)
        if (calls := self._calls.total()) > self.longest:
            self.longest, self.where = calls, self._calls.most_common(5)
        self._calls.clear()
        sys.setprofile(self.count)


@contextmanager
def counted_turns() -> Iterator[Turns]:
    """Count the steps of this thread's event loop during the block; calls in other threads are not counted."""
    turns, run = Turns(), asyncio.Handle._run

    def counted(handle: asyncio.Handle) -> Any:
        turns.next_step()
        try:
            return run(handle)
        finally:
            turns.next_step()

    with patch.object(asyncio.Handle, "_run", counted):
        turns.next_step()
        try:
            yield turns
        finally:
            turns.next_step()
            sys.setprofile(None)
