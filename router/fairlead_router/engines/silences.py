"""Engines that answer nothing at all, or make no progress. This separates an engine that hangs from one that computes
for long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

SILENT_SECONDS = 30.0
"""An engine that has served its metrics before, and then answers nothing for this long, is not waited for."""


class Stall(NamedTuple):
    """An engine, or these data-parallel `ranks` of it, has work and makes no progress. `avoidable`: other
    instances can serve its waiting requests.
    """

    words: str
    avoidable: bool
    ranks: Collection[int] | None = None
    """None: all ranks of the engine."""

    def concerns(self, rank: int | None) -> bool:
        """Whether requests at this rank wait for the stalled rank; None: it is unknown which rank has them."""
        return self.ranks is None or rank in self.ranks


class Silences:
    """Keyed by address: since when each engine has answered nothing, how many requests it reports as running, and
    whether it is stalled. An engine answers if it serves its metrics, which a working engine does while it computes, or
    sends any part of an answer.

    Times are those of `awake`, which stands still while this process does.
    """

    def __init__(self, awake: Callable[[], float]) -> None:
        self.awake = awake
        self._since: dict[str, float] = {}
        self._running: dict[str, int] = {}
        self.stalls: dict[str, Stall] = {}
        """The latest findings of `engine_lives`."""

    def since(self, address: str) -> float:
        """The time of the first question that it did not answer, infinity when it answers."""
        return self._since.get(address, math.inf)

    def is_silent(self, address: str, seconds: float) -> bool:
        """Whether it has answered nothing for `seconds`, or for `SILENT_SECONDS` if it has ever served its metrics."""
        limit = min(seconds, SILENT_SECONDS) if address in self._running else seconds
        return self.awake() - self.since(address) >= limit

    def unanswered(self, address: str) -> None:
        """The engine has not answered a question."""
        self._since.setdefault(address, self.awake())

    def heard(self, address: str) -> None:
        """The engine has answered something."""
        self._since.pop(address, None)

    def runs(self, address: str, requests: int) -> None:
        """The number of requests that the engine runs, by its metrics."""
        self._running[address] = requests

    def works(self, address: str) -> bool:
        """Whether it answers, and says that it runs requests."""
        return address not in self._since and self._running.get(address, 0) > 0

    def keep(self, addresses: Collection[str]) -> None:
        """Forget all other engines."""
        self._since = {address: since for address, since in self._since.items() if address in addresses}
        self._running = {address: running for address, running in self._running.items() if address in addresses}
        self.stalls = {address: stall for address, stall in self.stalls.items() if address in addresses}
