"""An event loop whose clock jumps to the next timer when nothing else is left to do: hours of waiting take no time."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Value = TypeVar("Value")
HELP_SECONDS = 60.0
"""The real seconds that the loop waits for another thread when no timer is left."""


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
    """An event loop whose `time()` begins at 0 and counts virtual seconds."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtually(main: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine as `asyncio.run` does, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def virtual_now() -> float:
    """Return the virtual seconds since the loop began, as a clock for the tested code."""
    return asyncio.get_running_loop().time()
