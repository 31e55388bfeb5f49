"""The router's clock: Unix seconds that never go back, even when the machine's wall clock is stepped."""

import time
from collections.abc import Callable


class WallClock:
    """Wall time anchored once and advanced by the monotonic clock. Calling it gives Unix seconds as a float."""

    __slots__ = ("_anchor", "_monotonic")

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._anchor = wall() - monotonic()

    def __call__(self) -> float:
        return self._anchor + self._monotonic()
