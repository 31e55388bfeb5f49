"""Remembers which instance made which response.

Engines keep responses for retrieval and cancelling in their own memory, so only the instance that made one knows it.
"""

from __future__ import annotations

from collections import OrderedDict

from fairlead.tables import PoolKey

REMEMBERED = 65_536
"""Most responses remembered; the least recently used one is forgotten first.

The router asks every instance for a forgotten response.
"""


class HeldResponses:
    """Response id → its pool and instance."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._homes: OrderedDict[str, tuple[PoolKey, str]] = OrderedDict()

    def remember(self, response: str | None, pool: PoolKey, instance: str) -> None:
        """This instance made the response; None (an answer without id) is ignored."""
        if response is None:
            return
        self._homes[response] = (pool, instance)
        self._homes.move_to_end(response)
        if len(self._homes) > self._limit:
            self._homes.popitem(last=False)

    def find(self, response: str) -> tuple[PoolKey, str] | None:
        """Pool and instance, if remembered."""
        home = self._homes.get(response)
        if home is not None:
            self._homes.move_to_end(response)
        return home

    def __len__(self) -> int:
        return len(self._homes)
