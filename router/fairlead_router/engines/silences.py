"""Engines that answer nothing at all, or make no progress. This separates an engine that hangs from an engine that
computes for a long time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

SILENT_SECONDS = 30.0
"""Seconds after which the router no longer waits for an engine that has served its metrics before and now answers
nothing.
"""


class Stall(NamedTuple):
    """An engine, or these data-parallel `ranks` of it, with work but without progress. `avoidable`: other instances can
    serve its waiting requests.
    """

    words: str
    avoidable: bool
    ranks: Collection[int] | None = None
    """The stalled ranks; None means all ranks of the engine."""

    def concerns(self, rank: int | None) -> bool:
        """Return whether requests at this rank wait for a stalled rank. None: it is unknown at which rank the requests
        are.
        """
        return self.ranks is None or rank in self.ranks


class Silences:
    """The silence of each engine, keyed by address: since when it has answered nothing, how many requests it reports as
    running, and whether it is stalled. An engine answers if it serves its metrics, which a working engine does while it
    computes, or sends any part of an answer.

    Times are those of the clock `awake`, which stands still while this process is suspended.
    """

    def __init__(self, awake: Callable[[], float]) -> None:
        self.awake = awake
        self._since: dict[str, float] = {}
        self._running: dict[str, int] = {}
        self.stalls: dict[str, Stall] = {}
        """The latest findings of `engine_lives`."""

    def since(self, address: str) -> float:
        """Return the time of the first question that the engine has not answered; infinity if it answers."""
        return self._since.get(address, math.inf)

    def is_silent(self, address: str, seconds: float) -> bool:
        """Return whether the engine has answered nothing for `seconds`, or for `SILENT_SECONDS` if it has ever served
        its metrics.
        """
        limit = min(seconds, SILENT_SECONDS) if address in self._running else seconds
        return self.awake() - self.since(address) >= limit

    def unanswered(self, address: str) -> None:
        """Record that the engine has not answered a question."""
        self._since.setdefault(address, self.awake())

    def heard(self, address: str) -> None:
        """Record that the engine has answered something."""
        self._since.pop(address, None)

    def runs(self, address: str, requests: int) -> None:
        """Record the number of requests that the engine runs, by its metrics."""
        self._running[address] = requests

    def works(self, address: str) -> bool:
        """Return whether the engine answers, and reports that it runs requests."""
        return address not in self._since and self._running.get(address, 0) > 0

    def keep(self, addresses: Collection[str]) -> None:
        """Keep these engines, and forget all others."""
        self._since = {address: since for address, since in self._since.items() if address in addresses}
        self._running = {address: running for address, running in self._running.items() if address in addresses}
        self.stalls = {address: stall for address, stall in self.stalls.items() if address in addresses}
