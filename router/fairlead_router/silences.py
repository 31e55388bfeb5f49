"""Engines that answer nothing at all, by which one that hangs is told from one that computes for long."""

from __future__ import annotations

import math
from collections.abc import Collection


class Silences:
    """Since when each engine has answered nothing, by address: neither about its metrics, which a working engine tells
    while it computes, nor anything of a request. Times are the router's.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def since(self, address: str) -> float:
        """The time of the first question that it did not answer, infinity when it answers."""
        return self._since.get(address, math.inf)

    def unanswered(self, address: str, now: float) -> None:
        """It has not answered what was asked."""
        self._since.setdefault(address, now)

    def heard(self, address: str) -> None:
        """It has answered something."""
        self._since.pop(address, None)

    def keep(self, addresses: Collection[str]) -> None:
        """Forget all engines but these."""
        self._since = {address: since for address, since in self._since.items() if address in addresses}
