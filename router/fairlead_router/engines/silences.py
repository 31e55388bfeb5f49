"""Records which engines do not respond or make no progress, so that a hanging engine can be distinguished from an
engine that computes for a long time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

SILENT_SECONDS = 30.0
"""Maximum number of seconds without a response after which the router no longer waits for an engine. It applies to
engines that have served their metrics before.
"""


class Stall(NamedTuple):
    """A finding that an engine, or some of its data-parallel ranks, has work but makes no progress. `words`: the
    finding as text. `avoidable`: whether other instances can serve the requests that wait for this engine.
    """

    words: str
    avoidable: bool
    ranks: Collection[int] | None = None
    """The stalled ranks; None means all ranks of the engine."""

    def concerns(self, rank: int | None) -> bool:
        """Return whether requests at this rank wait for a stalled rank. If `rank` is None, because the rank of the
        requests is unknown, return whether the whole engine is stalled.
        """
        return self.ranks is None or rank in self.ranks


class Silences:
    """By engine address: the time since which the engine has not responded, its number of running requests, and its
    stall. An engine responds if it serves its metrics, which a working engine does even while it computes, or sends any
    part of a response.

    All times are from the clock `awake`, which stops while this process is suspended.
    """

    def __init__(self, awake: Callable[[], float]) -> None:
        self.awake = awake
        self._since: dict[str, float] = {}
        self._running: dict[str, int] = {}
        self.stalls: dict[str, Stall] = {}
        """By engine address: the latest stall that `engine_lives` found."""

    def since(self, address: str) -> float:
        """Return the time since which the engine has not responded, which is the time of its first unanswered probe;
        infinity if it responds.
        """
        return self._since.get(address, math.inf)

    def is_silent(self, address: str, seconds: float) -> bool:
        """Return whether the engine has not responded for `seconds`. For an engine that has served its metrics before,
        the limit is `SILENT_SECONDS` if that is shorter.
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
