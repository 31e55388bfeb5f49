"""Tracks engines that do not respond at all, or make no progress. It distinguishes an engine that hangs from an engine
that computes for a long time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

SILENT_SECONDS = 30.0
"""Seconds after which the router no longer waits for an engine that served its metrics earlier and now does not
respond.
"""


class Stall(NamedTuple):
    """A finding that an engine, or some of its data-parallel ranks, has work but makes no progress. `avoidable`:
    whether other instances can serve the requests that wait for this engine.
    """

    words: str
    avoidable: bool
    ranks: Collection[int] | None = None
    """The stalled ranks; None means all ranks of the engine."""

    def concerns(self, rank: int | None) -> bool:
        """Return whether requests at this rank wait for a stalled rank; with None, the rank of the requests is
        unknown.
        """
        return self.ranks is None or rank in self.ranks


class Silences:
    """For each engine, by address: since when it has not responded, how many running requests it reports, and whether
    it is stalled. An engine responds if it serves its metrics, which a working engine does while it computes, or sends
    any part of a response.

    Times are of the clock `awake`, which stands still while this process is suspended.
    """

    def __init__(self, awake: Callable[[], float]) -> None:
        self.awake = awake
        self._since: dict[str, float] = {}
        self._running: dict[str, int] = {}
        self.stalls: dict[str, Stall] = {}
        """The latest stalls that `engine_lives` found, by address."""

    def since(self, address: str) -> float:
        """Return the time since which the engine has not responded: the time of its first unanswered probe. Infinity if
        it responds.
        """
        return self._since.get(address, math.inf)

    def is_silent(self, address: str, seconds: float) -> bool:
        """Return whether the engine has not responded for `seconds`, or for `SILENT_SECONDS` if it has ever served its
        metrics.
        """
        limit = min(seconds, SILENT_SECONDS) if address in self._running else seconds
        return self.awake() - self.since(address) >= limit

    def unanswered(self, address: str) -> None:
        """Record that the engine has not responded to a probe."""
        self._since.setdefault(address, self.awake())

    def heard(self, address: str) -> None:
        """Record that the engine has responded."""
        self._since.pop(address, None)

    def runs(self, address: str, requests: int) -> None:
        """Record the number of running requests that the engine reports."""
        self._running[address] = requests

    def works(self, address: str) -> bool:
        """Return whether the engine responds and reports running requests."""
        return address not in self._since and self._running.get(address, 0) > 0

    def keep(self, addresses: Collection[str]) -> None:
        """Keep these engines, and forget all others."""
        self._since = {address: since for address, since in self._since.items() if address in addresses}
        self._running = {address: running for address, running in self._running.items() if address in addresses}
        self.stalls = {address: stall for address, stall in self.stalls.items() if address in addresses}
