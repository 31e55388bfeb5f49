"""Second opinions: what one engine refuses as the client's fault (4xx) is tried on another one.

A 404 that names the model, which the pool declares, is always tried elsewhere: the engine lacks it, or no engine serves
the request. Of other refusals most are what they say. An engine tells them without computing, so that asking a second
one costs little; how often a pool does it is limited all the same. The second answer counts: if it is another one, the
refusal was the first engine's failure.
"""

from __future__ import annotations

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead_router.calls import Call
from fairlead_router.pool import Pool
from fairlead_router.served_names import names_model
from fairlead_router.tickets import Ticket
from fairlead_router.upstream_connections import UpstreamConnection

LONGEST_REFUSAL = 256 * 1024
"""Bytes of an answer that is kept meanwhile; a longer one is passed on."""


class KeptRefusal:
    """An engine's refusal that waits for a second opinion: its status, body and header lines for the client."""

    __slots__ = ("body", "headers", "instance", "of_name", "status")

    def __init__(self, instance: str, status: int, headers: bytes, body: bytes, *, of_name: bool) -> None:
        self.instance = instance
        self.status = status
        self.headers = headers
        self.body = body
        self.of_name = of_name


async def read_refusal(connection: UpstreamConnection) -> bytes | None:
    """The body of a refusal, which can be read again afterwards; None if it is too long to be kept. Raises
    UpstreamFailure.
    """
    body = bytearray()
    while len(body) <= LONGEST_REFUSAL and (piece := await connection.read()):
        body += piece
    connection.unread(bytes(body))
    return bytes(body) if connection.complete and len(body) <= LONGEST_REFUSAL else None


class Doubt:
    """What engines refused of one routed call so far."""

    __slots__ = ("_call", "_pool", "_ticket", "kept")

    def __init__(self, call: Call, pool: Pool, ticket: Ticket) -> None:
        self._call = call
        self._pool = pool
        self._ticket = ticket
        self.kept: list[KeptRefusal] = []

    async def ask_elsewhere(self, instance: str, connection: UpstreamConnection, headers: bytes, now: float) -> Dispatch | None:
        """Where to send the call for a second opinion; None when this refusal is to be passed on. Raises
        UpstreamFailure.
        """
        pool, name = self._pool, self._call.model
        body = await read_refusal(connection)
        if body is None:
            return None
        of_name = connection.status == 404 and names_model(body, name)
        if of_name:
            pool.choice.names.refused(instance, name, now)
        may_ask = of_name or bool(self.kept) or pool.choice.opinions.take(now)
        again = pool.second_opinion(self._ticket, instance, now, counts=not of_name) if may_ask else None
        if again is None:
            self._agreed(instance)
        else:
            self.kept.append(KeptRefusal(instance, connection.status, headers, body, of_name=of_name))
        return again

    def _agreed(self, instance: str) -> None:
        """Nobody contradicts: whether an engine lacks the name, its list tells."""
        for one in (instance, *(kept.instance for kept in self.kept if kept.of_name)):
            self._pool.choice.names.unsure(one, self._call.model)

    @property
    def last(self) -> KeptRefusal | None:
        """What to tell the client if the next instance fails; None where it may still be served."""
        return self.kept[-1] if self.kept and not self.kept[-1].of_name else None

    def contradicted(self, now: float) -> None:
        """Another engine takes the call."""
        for one in self.kept:
            if one.of_name:
                continue
            self._pool.choice.opinions.give_back()
            if names_model(one.body, self._call.model):
                self._pool.choice.names.refused(one.instance, self._call.model, now)
