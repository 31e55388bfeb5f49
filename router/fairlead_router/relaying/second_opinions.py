"""Second opinions: if one engine refuses a request as invalid (4xx), another engine gets the request too.

If an engine refuses because it lacks a model that the pool declares, another engine is always tried: either only this
engine lacks the model, or all engines do. Most other refusals are justified. An engine refuses without computing, so a
second opinion costs little. Nevertheless, a budget of the pool limits second opinions. The second engine's answer
decides: if it is not a refusal, the first engine's refusal counts as that engine's failure.
"""

from __future__ import annotations

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import instance_of
from fairlead_router.engines.upstream_connections import UpstreamConnection
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.served_names import refuses_name
from fairlead_router.pools.tickets import Ticket
from fairlead_router.relaying.calls import Call

LONGEST_REFUSAL = 256 * 1024
"""Maximum number of bytes of a refusal that is buffered for a second opinion. A longer refusal is passed on to the
client.
"""


class KeptRefusal:
    """An engine's refusal that is kept while another engine is tried. `headers`: its header lines for the client.
    `of_name`: whether the engine refused because it lacks the model's name.
    """

    __slots__ = ("body", "headers", "instance", "of_name", "status")

    def __init__(self, instance: str, status: int, headers: bytes, body: bytes, *, of_name: bool) -> None:
        self.instance = instance
        self.status = status
        self.headers = headers
        self.body = body
        self.of_name = of_name


async def read_refusal(connection: UpstreamConnection) -> bytes | None:
    """Return the body of a refusal, which can be read from the connection again. None if it is too long to buffer.
    Raises UpstreamFailure.
    """
    body = bytearray()
    while len(body) <= LONGEST_REFUSAL and (piece := await connection.read()):
        body += piece
    connection.unread(bytes(body))
    return bytes(body) if connection.complete and len(body) <= LONGEST_REFUSAL else None


class Doubt:
    """The refusals of one routed call so far, and the second opinions about it."""

    __slots__ = ("_call", "_kept", "_pool", "_taken", "_ticket")

    def __init__(self, call: Call, pool: Pool, ticket: Ticket) -> None:
        self._call = call
        self._pool = pool
        self._ticket = ticket
        self._kept: list[KeptRefusal] = []
        self._taken = False
        """Whether a second opinion for this call was taken from the pool's budget."""

    async def ask_elsewhere(self, instance: str, connection: UpstreamConnection, headers: bytes, now: float) -> Dispatch | None:
        """Return the dispatch to another instance for a second opinion. None if the client must get the first engine's
        refusal. Raises UpstreamFailure.
        """
        pool, name = self._pool, self._call.model
        body = await read_refusal(connection)
        if body is None:
            return None
        of_name = refuses_name(connection.status, body, name)
        if of_name:
            pool.choice.names.doubt(instance_of(instance))
        elif not self._taken:
            self._taken = pool.choice.opinions.take(now)
        if not (of_name or self._taken):
            return None
        beyond = pool.choice.only_doubted(name, now) if of_name else ()
        again = pool.account.second_opinion(self._ticket, instance, now, counts=not of_name, beyond=beyond)
        if again is None:
            if self.last is None:
                self._give_back()
        else:
            self._kept.append(KeptRefusal(instance, connection.status, headers, body, of_name=of_name))
        return again

    @property
    def is_of_name(self) -> bool:
        """Whether an engine refused because it lacks the model's name."""
        return any(one.of_name for one in self._kept)

    @property
    def last(self) -> KeptRefusal | None:
        """The newest refusal for a reason other than a missing model name; None if there is none. The client gets it if
        the next instance fails.
        """
        return next((one for one in reversed(self._kept) if not one.of_name), None)

    def contradicted(self, now: float) -> None:
        """Record that an engine has answered the call after other engines had refused it."""
        pool, name = self._pool, self._call.model
        for one in self._kept:
            if one.of_name:
                pool.choice.names.contradicted(instance_of(one.instance), name, now)
            elif name.encode() in one.body:
                pool.choice.names.doubt(instance_of(one.instance))
        self._kept.clear()
        self._give_back()

    def _give_back(self) -> None:
        if self._taken:
            self._taken = False
            self._pool.choice.opinions.give_back()
