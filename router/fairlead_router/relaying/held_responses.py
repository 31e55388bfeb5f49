"""Remembers for each stored response the instance that made it, its session, and the charge of its key.

Engines keep responses in their own memory, for retrieval and cancelling, so only the instance that made a response has
it. A response that is made in the background reports its tokens only when a client fetches it.
"""

from __future__ import annotations

from collections import OrderedDict

from fairlead.tables import PoolKey
from fairlead.targets import instance_of
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.tickets import Ticket

REMEMBERED = 65_536
"""Maximum number of remembered responses. The least recently used response is forgotten first.

For a response that is not remembered, the router asks every instance.
"""


class HeldResponses:
    """The remembered responses, by id: the pool and the instance; the session, if there is one; and the charge, if a
    request with a key made the response through this router.
    """

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._homes: OrderedDict[str, tuple[PoolKey, str]] = OrderedDict()
        self._charges: dict[str, Charge] = {}
        self._sessions: dict[str, str] = {}

    def remember(self, response: str | None, pool: PoolKey, instance: str, ticket: Ticket | None = None) -> None:
        """Record that this instance or rank made the response. `ticket`: the request that made the response, if it came
        to this router. Does nothing if `response` is None, because the answer has no id.
        """
        if response is None:
            return
        self._homes[response] = (pool, instance_of(instance))
        self._homes.move_to_end(response)
        if ticket is not None and ticket.charge is not None:
            self._charges[response] = ticket.charge
        if ticket is not None and ticket.request.session is not None:
            self._sessions[response] = ticket.request.session
        if len(self._homes) > self._limit:
            forgotten, _ = self._homes.popitem(last=False)
            self._charges.pop(forgotten, None)
            self._sessions.pop(forgotten, None)

    def find(self, response: str) -> tuple[PoolKey, str] | None:
        """Return the pool and the instance of the response; None if they are not remembered."""
        home = self._homes.get(response)
        if home is not None:
            self._homes.move_to_end(response)
        return home

    def session(self, response: str) -> str:
        """Return the session of the response. If it has no session, return the response's id."""
        return self._sessions.get(response, response)

    def charge(self, response: str) -> Charge | None:
        """Return the charge of the request that made the response. None if that request did not come through this
        router, or had no key.
        """
        return self._charges.get(response)

    def __len__(self) -> int:
        return len(self._homes)
