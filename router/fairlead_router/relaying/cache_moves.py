"""Copies KV blocks from one instance to another, in pools whose engines support it (`spec.engine.kvTransfer`).

A copy uses the handshake of vLLM's NixlConnector with `kv_role: kv_both`, between instances of one role. The request is
first sent to the *source*, for one token and with `do_remote_decode`. The source computes the token with its cached
blocks, and responds with the location of these blocks. Then the *target* gets the request for one token together with
that response, and fetches the blocks. They are then ordinary blocks of its prefix cache. At last the target gets the
client's own request unchanged, and finds the blocks cached. So a copy that fails or exceeds its time limit costs only
time.

A copy is also possible without a waiting request. `CacheMoves.move` needs only the prompt of an earlier request, and
two instances.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, NamedTuple

import msgspec
import orjson

from fairlead.plausibility import MOST_TOKENS, PREFILL_BYTES
from fairlead.reports.moves import CacheFate, CacheTransfer
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import instance_of
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamConnection, UpstreamFailure
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import decoded, read_whole
from fairlead_router.relaying.calls import Call, Leg
from fairlead_router.relaying.dividing import blocks_of, prefill_leg
from fairlead_router.relaying.sending import without_credentials

_ID = re.compile(rb"^(x-request-id: [^\r\n]*)", re.MULTILINE | re.IGNORECASE)
"""Matches the header that carries the request id. The requests of a copy get ids of their own, because an engine may
refuse a second request with the same id, and the client's own request may arrive while the engine still ends a late
copy.
"""

logger = logging.getLogger(__name__)


class PromptToMove(NamedTuple):
    """The two requests for one token that copy the KV blocks of a prompt. `naming`: the request to which the source
    responds with the location of its blocks. `fetching`: makes, from that response, the request with which the target
    fetches the blocks.
    """

    naming: Leg
    fetching: Callable[[object], Leg]


class Named(NamedTuple):
    """The source's response to `naming`: the location of the blocks, and the number of prompt tokens in them."""

    blocks: object
    tokens: int


class _Tokens(msgspec.Struct):
    remote_num_tokens: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)] = 0


class _Failed(Exception):
    """An exception: a copy of KV blocks has failed. `fate`: the result for the scheduler and the counters."""

    def __init__(self, fate: CacheFate, why: str) -> None:
        super().__init__(why)
        self.fate = fate


def prompt_to_move(call: Call) -> PromptToMove:
    """Return the requests that copy the KV blocks of a call's prompt. The call must be divisible
    (`dividing.is_divisible`).
    """
    document = decoded(call.body) if call.document is None else call.document  # a body may have NaN in it
    return PromptToMove(prefill_leg(call, document), lambda blocks: prefill_leg(call, document, blocks))


class CacheMoves:
    """Copies KV blocks between the instances of pools. `now` is the router's clock in Unix seconds."""

    def __init__(self, upstream: UpstreamPool, now: Callable[[], float]) -> None:
        self._upstream = upstream
        self._now = now

    async def bring(self, call: Call, pool: Pool, ticket: Ticket, dispatch: Dispatch, seconds_left: float) -> CacheTransfer:
        """Before a dispatched request is sent, let its instance fetch the KV blocks that the scheduler's decision says
        it shall fetch. Report the result to the scheduler, and return it. The request can be sent even if the copy has
        failed.
        """
        assert dispatch.transfer_from is not None
        longest = min(dispatch.longest_transfer_seconds, seconds_left)
        found = await self.move(pool, prompt_to_move(call), dispatch.transfer_from, dispatch.instance, longest, passes=True)
        tokens, size = min(found.tokens, dispatch.transfer_tokens), pool.engines.kv_bytes_per_token
        transfer = CacheTransfer(
            fate=found.fate,
            seconds=found.seconds,
            tokens=tokens,
            bytes=round(tokens * size) if tokens and size else None,
            predicted_seconds=dispatch.transfer_seconds,
        )
        pool.account.fetched(ticket, transfer, self._now())
        pool.judge_handovers(dispatch.transfer_from)
        return transfer

    async def move(
        self, pool: Pool, prompt: PromptToMove, source: str, target: str, seconds: float, *, passes: bool = False
    ) -> CacheTransfer:
        """Copy the KV blocks of a prompt from the instance `source` to the instance `target` of the pool, within this
        number of seconds. Raises only CancelledError.

        `passes`: whether the prompt's headers include the client's credentials, which only a pool that passes
        credentials gets. The result's `tokens` are the tokens in the blocks that the source named, including blocks
        that the target already had.
        """
        began = self._now()
        fate, tokens, why = CacheFate.MOVED, 0, ""
        try:
            async with asyncio.timeout(seconds), self._in_flight(pool, source, target):
                named = await self._named(pool, source, prompt.naming, passes=passes)
                await self._ask(pool, target, prompt.fetching(named.blocks), passes=passes)
                tokens = named.tokens
        except TimeoutError:
            fate, why = CacheFate.LATE, f"not there within {seconds:.3g} s"
        except _Failed as failure:
            fate, why = failure.fate, str(failure)
        transfer = CacheTransfer(fate=fate, seconds=self._now() - began, tokens=tokens)
        pool.counters.count_transfer(transfer)
        extra = {"pool": str(pool.key), "source": source, "target": target, "seconds": round(transfer.seconds, 3)}
        if fate is CacheFate.MOVED:
            logger.info("KV blocks moved", extra=extra | {"tokens": tokens})
        else:
            logger.warning("KV blocks not moved", extra=extra | {"fate": fate.value, "error": why})
        return transfer

    @asynccontextmanager
    async def _in_flight(self, pool: Pool, *instances: str) -> AsyncIterator[None]:
        """Count the copy as a request in flight at both instances while the block runs, so that neither is deleted as
        idle.
        """
        names = [instance_of(instance) for instance in instances]
        for name in names:
            pool.account.begin_direct(name, self._now())
        try:
            yield
        finally:
            for name in names:
                pool.account.end_direct(name)

    async def _named(self, pool: Pool, source: str, leg: Leg, *, passes: bool) -> Named:
        answer = await self._ask(pool, source, leg, passes=passes)
        blocks = blocks_of(answer)
        if blocks is None:
            raise _Failed(CacheFate.UNNAMED, f"{source} named no KV blocks")
        try:
            tokens = msgspec.json.decode(blocks, type=_Tokens).remote_num_tokens
        except msgspec.ValidationError:
            tokens = 0
        usage = None if tokens else read_whole(answer).usage
        return Named(orjson.loads(blocks), tokens if usage is None else usage.prompt_tokens or 0)

    async def _ask(self, pool: Pool, instance: str, leg: Leg, *, passes: bool) -> bytes:
        """Send one of the copy's requests to the instance, and return the body of its response. Raises _Failed."""
        address = pool.addresses.get(instance_of(instance))
        if address is None:
            raise _Failed(CacheFate.LOST, f"{instance} is gone")
        connection: UpstreamConnection | None = None
        answer = bytearray()
        try:
            connection = self._upstream.take_idle(address) or await self._upstream.connect(address)
            connection.send(self._head(pool, instance, address, leg, passes=passes), leg.body)
            await connection.first()
            while len(answer) <= PREFILL_BYTES and (piece := await connection.read()):
                answer += piece
        except UpstreamFailure as failure:
            raise _Failed(CacheFate.LOST, f"{instance}: {failure}") from None
        finally:
            if connection is not None:
                if connection.complete:
                    self._upstream.release(connection)
                else:
                    connection.abort()
        if connection.status != 200:
            raise _Failed(CacheFate.REFUSED, f"{instance} answered {connection.status}")  # its words may quote the prompt
        said = read_whole(bytes(answer))
        if said.failure is not None:
            raise _Failed(CacheFate.REFUSED, f"{instance}: {said.failure.message}")
        return bytes(answer)

    def _head(self, pool: Pool, instance: str, address: str, leg: Leg, *, passes: bool) -> bytes:
        carried = pool.pass_credentials and passes
        head = leg.head if not carried or pool.passes_credentials(instance) else without_credentials(leg.head)
        return b"%shost: %s\r\n\r\n" % (_ID.sub(rb"\1-kv", head, count=1), address.encode())
