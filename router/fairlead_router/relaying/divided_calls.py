"""A call that two instances compute together. The router sends it first to a prefill instance, and then to a decode
instance.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from fairlead.plausibility import PREFILL_BYTES
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead_router.engines.upstream_connections import BeyondBounds, UpstreamConnection, UpstreamFailure
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import read_whole
from fairlead_router.relaying.calls import Call
from fairlead_router.relaying.dividing import blocks_of, decode_leg, prefill_leg
from fairlead_router.relaying.passing import answer_failed
from fairlead_router.relaying.sending import Sender
from fairlead_router.relaying.usage_asking import UsageAsking


class DividedCall:
    """A divided call, over all its attempts. `instance`: the instance that last got the call. `now` returns the time in
    Unix seconds.
    """

    __slots__ = ("_asking", "_blocks", "_call", "_now", "_pool", "_prefilled_on", "_sender", "_ticket", "handed_over_at", "instance")

    def __init__(self, call: Call, pool: Pool, ticket: Ticket, sender: Sender, asking: UsageAsking, now: Callable[[], float]) -> None:
        self._call = call
        self._pool = pool
        self._ticket = ticket
        self._sender = sender
        self._asking = asking
        self._now = now
        self._prefilled_on = ""
        """The prefill instance whose KV blocks of the prompt can still be used, because no instance can have fetched
        them yet. "" if there is none.
        """
        self._blocks: bytes | None = None
        self.handed_over_at = 0.0
        """The time at which the call was sent to the decode instance; 0 = it has not been sent there."""
        self.instance = ""

    async def begin(self, dispatch: Dispatch) -> UpstreamConnection | Refusal:
        """Let the prefill instance compute the prompt, and the decode instance begin the answer. Return the decode
        instance's connection when its answer has begun.

        If the prefill instance refused the request as the client sent it, return that instance's connection instead. If
        the decode instance can no longer take the request, return the scheduler's refusal. Raises UpstreamFailure, and
        BadRequest if the document is nested too deeply to be encoded.
        """
        pool, ticket = self._pool, self._ticket
        self.handed_over_at = 0.0
        assert dispatch.decode is not None
        assert dispatch.decode_address is not None
        self.instance = dispatch.instance
        if self._prefilled_on == dispatch.instance:
            refused = pool.account.prefilled(ticket, ticket.dispatched_at)
        else:
            refusal = await self._prefill(dispatch)
            if refusal is not None:
                return refusal
            refused = pool.account.prefilled(ticket, self._now())
        if refused is not None:
            return refused
        self.instance = dispatch.decode
        leg = None if self._blocks is None else decode_leg(self._call, self._blocks)
        self.handed_over_at = self._now()
        passes, carried = pool.passes_credentials(dispatch.decode), pool.pass_credentials
        return await self._asking.begin(self._call, dispatch.decode, dispatch.decode_address, credentials=passes, carried=carried, leg=leg)

    def failed(self, failure: UpstreamFailure) -> None:
        """Record that the request failed at `instance`. If the decode instance may have received it, the prompt must be
        prefilled again, because that instance may have fetched the blocks, and their memory may be in use for other
        blocks.
        """
        if self.handed_over_at and failure.reached:
            self._prefilled_on = ""

    async def _prefill(self, dispatch: Dispatch) -> UpstreamConnection | None:
        """Let the prefill instance compute the prompt. Return None after success, or the connection if the instance
        refused the request.
        """
        call, pool = self._call, self._pool
        leg = prefill_leg(call, orjson.loads(call.body) if call.document is None else call.document)
        sent_at = self._now()
        credentials = pool.passes_credentials(dispatch.instance)
        connection = await self._sender.begin(
            call, dispatch.instance, dispatch.address, credentials=credentials, carried=pool.pass_credentials, leg=leg
        )
        if connection.status >= 400:
            return connection
        answer = bytearray()
        while piece := await connection.read():
            answer += piece
            if len(answer) > PREFILL_BYTES:
                raise BeyondBounds(f"answered a prefill with more than {PREFILL_BYTES} bytes", at=connection.address)
        self._sender.release(call, connection)
        said = read_whole(bytes(answer))
        if said.failure is not None:
            raise answer_failed(connection, said.failure)
        now = self._now()
        pool.engine_worked(dispatch.instance, now)
        pool.counters.prefill.observe(now - sent_at)
        self._prefilled_on, self._blocks = dispatch.instance, blocks_of(bytes(answer))
        pool.handed_over(dispatch.instance, now, named_blocks=self._blocks is not None)
        return None
