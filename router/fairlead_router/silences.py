"""Engines that answer nothing at all, by which one that hangs is told from one that computes for long."""

from __future__ import annotations

import math
from collections.abc import Collection


class Silences:
    """Since when each engine has answered nothing, by address: neither about its metrics, which a working engine tells
    while it computes, nor anything of a request; and how many requests it says that it runs. Times are the router's.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._running: dict[str, int] = {}

    def since(self, address: str) -> float:
        """The time of the first question that it did not answer, infinity when it answers."""
        return self._since.get(address, math.inf)

    def unanswered(self, address: str, now: float) -> None:
        """It has not answered what was asked."""
        self._since.setdefault(address, now)

    def heard(self, address: str) -> None:
        """It has answered something."""
        self._since.pop(address, None)

    def runs(self, address: str, requests: int) -> None:
        """By its metrics, it runs so many requests."""
        self._running[address] = requests

    def works(self, address: str) -> bool:
        """Whether it answers, and says that it runs requests."""
        return address not in self._since and self._running.get(address, 0) > 0

    def keep(self, addresses: Collection[str]) -> None:
        """Forget all engines but these."""
        self._since = {address: since for address, since in self._since.items() if address in addresses}
        self._running = {address: running for address, running in self._running.items() if address in addresses}
