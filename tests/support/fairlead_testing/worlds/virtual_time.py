"""An event loop whose clock jumps to the next timer as soon as nothing is left to do: hours of waiting take no time."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Value = TypeVar("Value")
HELP_SECONDS = 60.0
"""Real time for another thread to bring what a story waits for when no timer will."""


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            ready = super().select(HELP_SECONDS)
            assert ready, "everything waits and nothing will come: the story hangs"
        elif not ready and timeout:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 0 and counts virtual seconds."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtually(main: Coroutine[Any, Any, Value]) -> Value:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def virtual_now() -> float:
    """Virtual seconds since the loop began; a clock for what is tested."""
    return asyncio.get_running_loop().time()
