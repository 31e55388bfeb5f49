"""Which instance made which response: engines keep responses for retrieval and cancelling in their own memory, so
only their maker knows them.
"""

from __future__ import annotations

from collections import OrderedDict

from fairlead.tables import PoolKey

REMEMBERED = 65_536
"""Responses remembered; the one used longest ago is forgotten first.

A forgotten one is looked for at every instance.
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
