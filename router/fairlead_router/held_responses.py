"""Remembers which instance made which response, and which key pays for it.

Engines keep responses for retrieval and cancelling in their own memory, so only the instance that made one knows it. A
response that is made in the background tells its tokens only when it is asked for later.
"""

from __future__ import annotations

from collections import OrderedDict

from fairlead.tables import PoolKey
from fairlead_router.charges import Charge

REMEMBERED = 65_536
"""Most responses remembered; the least recently used one is forgotten first.

The router asks every instance for a forgotten response.
"""


class HeldResponses:
    """Response id → its pool and instance, and its charge if a key made it here."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._homes: OrderedDict[str, tuple[PoolKey, str]] = OrderedDict()
        self._charges: dict[str, Charge] = {}

    def remember(self, response: str | None, pool: PoolKey, instance: str, charge: Charge | None = None) -> None:
        """This instance made the response, for this charge; None (an answer without id) is ignored."""
        if response is None:
            return
        self._homes[response] = (pool, instance)
        self._homes.move_to_end(response)
        if charge is not None:
            self._charges[response] = charge
        if len(self._homes) > self._limit:
            forgotten, _ = self._homes.popitem(last=False)
            self._charges.pop(forgotten, None)

    def find(self, response: str) -> tuple[PoolKey, str] | None:
        """Pool and instance, if remembered."""
        home = self._homes.get(response)
        if home is not None:
            self._homes.move_to_end(response)
        return home

    def charge(self, response: str) -> Charge | None:
        """The charge of the request that made the response, if one did here."""
        return self._charges.get(response)

    def __len__(self) -> int:
        return len(self._homes)
