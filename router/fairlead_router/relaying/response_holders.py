"""Finds the instance that holds a stored response: from memory, or by asking the instances that may have made it.

This instance also holds the conversation that ends with the response. So only this instance can serve a request that
continues the response.
"""

from __future__ import annotations

from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Opens, Pools
from fairlead_router.protocols.answers import is_response_id
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.paths import Endpoint
from fairlead_router.protocols.prompts import Document
from fairlead_router.relaying.direct import DirectRelay
from fairlead_router.relaying.held_responses import HeldResponses

HeaderPairs = list[tuple[bytes, bytes]]


def previous_response(document: Document, endpoint: Endpoint) -> str | None:
    """Return the id of the stored response that a request continues; None if there is none."""
    response = document.get("previous_response_id") if endpoint.dialect is Dialect.RESPONSES else None
    return response if is_response_id(response) else None


class ResponseHolders:
    """Finds the instances that hold stored responses, and remembers the instances found."""

    def __init__(self, held: HeldResponses, direct: DirectRelay, pools: Pools) -> None:
        self._held = held
        self._direct = direct
        self._pools = pools

    def remembered(self, response: str, opens: Opens) -> tuple[Pool, str] | None:
        """Return the pool and the instance of a response. None if they are not remembered, the instance no longer
        exists, or the client may not use the pool.
        """
        home = self._held.find(response)
        pool = None if home is None else self._pools.get(home[0])
        return None if home is None or pool is None or home[1] not in pool.addresses or not opens(pool) else (pool, home[1])

    async def find(self, response: str, opens: Opens, headers: HeaderPairs) -> tuple[Pool, str] | None:
        """Return the pool and the instance of a response. If they are not remembered, ask every instance of the pools
        that the client may use, with the client's headers. None if no instance has the response.
        """
        known = self.remembered(response, opens)
        return known or await self._ask(response, [pool for pool in self._pools.all() if opens(pool)], headers)

    def is_sought(self, document: Document, endpoint: Endpoint, pool: Pool) -> bool:
        """Return whether the router must ask the pool's instances for the response that the request continues, because
        the instance that holds it is not remembered.
        """
        response = previous_response(document, endpoint)
        return response is not None and len(pool.addresses) > 1 and self._held.find(response) is None

    async def seek(self, document: Document, endpoint: Endpoint, pool: Pool, headers: HeaderPairs) -> None:
        """Ask the pool's instances for the response that the request continues. Remember the instance that has it, so
        that the request is routed there.
        """
        response = previous_response(document, endpoint)
        if response is not None:
            await self._ask(response, [pool], headers)

    async def _ask(self, response: str, pools: list[Pool], headers: HeaderPairs) -> tuple[Pool, str] | None:
        found = await self._direct.find_holder(pools, b"/v1/responses/" + response.encode(), headers)
        if found is None or found[1] not in found[0].addresses:
            return None
        self._held.remember(response, found[0].key, found[1])
        return found
