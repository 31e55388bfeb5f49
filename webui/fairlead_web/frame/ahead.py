"""What the frame of every page needs of the API, asked for while the page asks for its own content: in turn both take
longer.
"""

import asyncio
from dataclasses import dataclass

from fairlead_client.client import ControlApi
from fairlead_client.resources.access import Identity
from fairlead_client.resources.pools import PoolSummary
from fairlead_web.text.paging import MOST_PER_CALL, MOST_POOLS, Taken, first_of


async def first_pools(api: ControlApi, most: int | None = MOST_POOLS) -> Taken[PoolSummary]:
    """The first pools by namespace and name, None for all. Raises ApiProblem."""
    return await first_of(lambda cursor: api.pools(cursor=cursor, limit=MOST_PER_CALL), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Answers that are on their way; one that nobody awaits is no error."""

    identity: asyncio.Task[Identity]
    pools: asyncio.Task[Taken[PoolSummary]]

    @staticmethod
    def ask(api: ControlApi, identity: Identity | None) -> "Ahead":
        """Asks for the pools, and who is asking unless that is known."""

        async def asked() -> Identity:
            return await api.whoami() if identity is None else identity

        return Ahead(identity=asyncio.create_task(asked()), pools=asyncio.create_task(first_pools(api)))

    def close(self) -> None:
        """The page is made, or will not be: nobody waits any more."""
        for task in (self.identity, self.pools):
            task.cancel()
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
