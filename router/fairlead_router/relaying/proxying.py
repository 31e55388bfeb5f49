"""Relays a routed request: waits for its dispatch, sends it, retries it if it fails before its first content, passes
the answer on, and records its end.

`Proxy.relay` ends the request's ticket exactly once, in whatever way it returns: answered, refused by the engine,
failed, refused by the scheduler, or cancelled because the client has left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead_router.engines.loop_time import PART_BYTES
from fairlead_router.engines.upstream_connections import UpstreamFailure, without_addresses
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.kept_prompts import KeptPrompt, KeptPrompts
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import (
    LongAnswer,
    StreamReader,
    Usage,
    content_type,
    is_response_id,
    read_whole,
    usage_of_head,
    whole_of_stream,
)
from fairlead_router.protocols.continued_streams import RestReader
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.kept_headers import decision_headers
from fairlead_router.protocols.refusals import BadRequest, ErrorAnswer, refusal_answer, upstream_failed
from fairlead_router.protocols.side_answers import EVENTS
from fairlead_router.relaying.cache_moves import CacheMoves
from fairlead_router.relaying.calls import Call, Calls, Client
from fairlead_router.relaying.carrying_on import REST_REFUSED, CarryingOn
from fairlead_router.relaying.divided_calls import DividedCall
from fairlead_router.relaying.held_responses import HeldResponses
from fairlead_router.relaying.passing import ANSWER, Exchange, RestPassage, StreamPassage, answer_failed, shortfall_of
from fairlead_router.relaying.second_opinions import Doubt, KeptRefusal
from fairlead_router.relaying.sending import Sender, bodiless_headers
from fairlead_router.relaying.usage_asking import UsageAsking

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_RESPONSES: Final = Dialect.RESPONSES

WHOLE_ANSWER_BYTES = 16 * 1024 * 1024
"""Maximum number of bytes of an unstreamed answer that are buffered until the answer is complete. A longer answer is
passed on as it arrives.

While the answer is buffered, the client can still get an error status if the engine is lost.
"""

logger = logging.getLogger(__name__)


class Proxy:
    """Relays routed calls to engines. `now` is the router's clock in Unix seconds."""

    def __init__(
        self,
        sender: Sender,
        asking: UsageAsking,
        calls: Calls,
        held: HeldResponses,
        carrying: CarryingOn,
        moves: CacheMoves,
        prompts: KeptPrompts,
        now: Callable[[], float],
    ) -> None:
        self._sender = sender
        self._moves = moves
        self._carrying = carrying
        self._asking = asking
        self._calls = calls
        self._held = held
        self._prompts = prompts
        self._now = now

    async def relay(
        self, call: Call, request: RoutingRequest, pool: Pool, client: Client, charge: Charge | None = None
    ) -> ErrorAnswer | None:
        """Serve one call to its end. `charge`: the charge of the client's key; None without a key.

        Return None if the call was answered or its client has left. Otherwise return the error response, which the
        caller must send.

        Raises BadRequest if the request cannot be encoded for an engine. Other exceptions are bugs, or show that the
        server is being stopped.
        """
        self._calls.enter(call)
        ticket: Ticket | None = None
        divided: DividedCall | None = None
        doubt: Doubt | None = None
        last_headers: Sequence[tuple[bytes, bytes]] = ()
        try:
            call.ticket = ticket = pool.account.submit(request, self._now(), charge)
            verdict = ticket.verdict
            if verdict is None:
                call.give_up = partial(pool.account.give_up, ticket)
                verdict = await ticket.decided()
                call.give_up = None
            while isinstance(verdict, Dispatch):
                dispatch, instance = verdict, verdict.instance
                if pool.choice.names.missing and not (doubt is not None and doubt.is_of_name):
                    lacks = pool.choice.lacks(dispatch, call.model, self._now())
                    if lacks is not None and (other := pool.account.pass_over(ticket, lacks, self._now())) is not None:
                        verdict = other
                        continue
                if dispatch.decode is not None and pool.choice.handovers:
                    vain = pool.choice.prefills_in_vain(dispatch, self._now())
                    if vain is not None:
                        verdict = pool.account.pass_over(ticket, vain, self._now()) or replace(dispatch, decode=None, decode_address=None)
                        continue
                try:
                    handed_over_at = 0.0
                    if call.rest is not None:
                        divided = None
                        await self._carrying.prepare(call, pool, dispatch)
                    if dispatch.longest_transfer_seconds:
                        await self._moves.bring(call, pool, ticket, dispatch, self._calls.seconds_left(call))
                    if dispatch.decode is None:
                        passes = pool.pass_credentials and pool.passes_credentials(instance)
                        begin = self._sender.begin if call.asks_usage is None else self._asking.begin
                        connection = await begin(call, instance, dispatch.address, credentials=passes, carried=pool.pass_credentials)
                    else:
                        divided = divided or DividedCall(call, pool, ticket, self._sender, self._asking, self._now)
                        begun = await divided.begin(dispatch)
                        if isinstance(begun, Refusal):
                            verdict = begun
                            continue
                        connection, instance, handed_over_at = begun, divided.instance, divided.handed_over_at
                    exchange = Exchange(call, client, pool, ticket, dispatch, instance, connection, handed_over_at, doubt)
                    if call.rest is not None:
                        verdict = await self._stream_rest(exchange)
                        if verdict is None:
                            return None
                        continue
                    if connection.status >= 400:
                        exchange.doubt = doubt = doubt or Doubt(call, pool, ticket)
                        again = await doubt.ask_elsewhere(instance, connection, exchange.answer_headers(), self._now())
                        if again is not None:
                            self._sender.release(call, connection)
                            verdict = again
                            continue
                    if not (call.stream and exchange.is_stream):
                        await self._whole(exchange)
                        return None
                    verdict = await self._stream(exchange)
                    if verdict is None:
                        return None
                except UpstreamFailure as failure:
                    last_headers = failure.headers or bodiless_headers(call.connection)
                    if dispatch.decode is not None and divided is not None:
                        instance = divided.instance
                        divided.failed(failure)
                    if call.rest is not None and ticket.stream is not None:
                        verdict = self._carrying.broke_off(call, client, pool, ticket, instance, ticket.stream, failure)
                        if verdict is None:
                            return None
                        continue
                    if doubt is not None and doubt.last is not None:
                        self._tell_refusal(call, client, pool, ticket, instance, failure, doubt.last)
                        return None
                    retried = self._retry(call, pool, ticket, instance, failure)
                    if retried is None:
                        message = f"no time was left to try another instance: {failure.shown(instance)}"
                        return upstream_failed(message, pool.header, call.dialect, failure.retry_after_seconds, last_headers, dispatch)
                    verdict = retried
            if call.rest is not None:
                client.end(call.rest.ending)
                return None
            failed_there = verdict.reason is RejectionReason.UPSTREAM_FAILED
            return refusal_answer(verdict, pool.header, call.dialect, last_headers if failed_there else ())
        except Exception as problem:
            if ticket is not None and ticket.verdict is not None:
                client.accompany(decision_headers(ticket.verdict))
            if ticket is not None and isinstance(problem, BadRequest):
                pool.account.decline(ticket, self._now())
            raise
        except asyncio.CancelledError:
            if not call.gone:
                raise
            if ticket is not None:
                self._left(call, pool, ticket)
            return None
        finally:
            if ticket is not None and ticket.ending is None:
                pool.account.fail(ticket, self._now())
            self._calls.leave(call)

    def _retry(self, call: Call, pool: Pool, ticket: Ticket, instance: str, failure: UpstreamFailure) -> Dispatch | Refusal | None:
        """Return the scheduler's next decision after a failure.

        If the request's total time is over, end its ticket and return None. A retry would be useless, because the
        client does not wait any longer, and the session would leave an instance that may work.
        """
        now = self._now()
        call.losses += failure.kind == "lost"
        call.drop_connection()
        call.awaited_since = call.quiet_since = 0.0
        pool.engine_failed(instance, failure.kind, now, ticket)
        pool.note_beyond_bounds(instance, failure, now)
        logger.warning("engine failed before the first content", extra=failed(call, pool, instance, failure))
        if call.deadline <= now:
            pool.account.fail(ticket, now, out_of_time=failure.kind == "deadline")
            return None
        verdict = pool.account.retry(ticket, instance, now, reached=failure.reached)
        if isinstance(verdict, Refusal):
            seconds = failure.retry_after_seconds or verdict.retry_after_seconds
            status = failure.status or verdict.status
            message = f"{verdict.message}; the last: {failure.shown(instance)}"
            is_final = verdict.is_final and not failure.may_pass
            return replace(verdict, message=message, status=status, retry_after_seconds=seconds, is_final=is_final)
        return verdict

    def _left(self, call: Call, pool: Pool, ticket: Ticket) -> None:
        """End the ticket of a client that has closed its connection. If the protocol's last event was sent, the request
        counts as served, because many clients do not wait for the end of the stream.
        """
        now, stream, dispatch = self._now(), ticket.stream, ticket.verdict
        if stream is not None and isinstance(dispatch, Dispatch):
            instance = dispatch.decode or dispatch.instance
            if stream.failure is not None and ticket.carried_at is None:
                pool.engine_failed(instance, ANSWER, now, ticket)
                pool.account.fail(ticket, now)
                return
            if stream.finished:
                pool.engine_worked(instance, now)
                self._keep_prompt(call, pool, ticket, now)
        pool.account.cancel(ticket, now)

    def _tell_refusal(
        self, call: Call, client: Client, pool: Pool, ticket: Ticket, instance: str, failure: UpstreamFailure, refusal: KeptRefusal
    ) -> None:
        """Send the client the refusal of an earlier instance, because the instance that was asked for a second opinion
        has failed.
        """
        now = self._now()
        call.drop_connection()
        pool.engine_failed(instance, failure.kind, now, ticket)
        pool.account.decline(ticket, now)
        logger.warning("engine failed before the first content", extra=failed(call, pool, instance, failure))
        client.begin(refusal.status, refusal.headers, len(refusal.body))
        client.end(refusal.body)

    async def _whole(self, exchange: Exchange) -> None:
        """Pass on an unstreamed answer when it is complete, or as soon as it is too long to buffer.

        Raises UpstreamFailure if the engine is lost before that, or reports a failure. The client has then received
        nothing.
        """
        call, client, connection = exchange.call, exchange.client, exchange.connection
        body = await connection.read()
        if not connection.complete:
            parts, size, room = [body], len(body), client.keeps(len(body))
            while room and size <= WHOLE_ANSWER_BYTES and (piece := await connection.read()):
                parts.append(piece)
                size += len(piece)
                room = client.keeps(len(piece))
            body = b"".join(parts)
        status = connection.status
        if not connection.complete:
            client.begin(status, exchange.answer_headers(), None)
            exchange.ticket.passed_on = True
            client.write(body)
            await self._pass_on_long(exchange, body)
            return
        usage: Usage | None = None
        if status < 400:
            kind, has_input = content_type(connection.headers), exchange.ticket.request.prompt_bytes > 0
            if len(body) > PART_BYTES and kind.startswith(EVENTS):
                reader = StreamReader(call.dialect)
                await connection.in_steps(body, reader.feed)
                said = whole_of_stream(reader)
            else:
                said = read_whole(body, has_input=has_input, kind=kind, dialect=call.dialect)
            if said.failure is not None:
                self._sender.release(call, connection)
                raise answer_failed(connection, said.failure)
            usage = said.usage or usage_of_head(connection.headers)
            if call.dialect is _RESPONSES and is_response_id(said.response_id):
                self._held.remember(said.response_id, exchange.pool.key, exchange.instance, exchange.ticket)
        headers = exchange.answer_headers()
        self._answered(exchange, usage or Usage())
        client.begin(status, headers, len(body))
        client.end(body)

    async def _pass_on_long(self, exchange: Exchange, before: bytes) -> None:
        """Send the rest of an unstreamed answer as it arrives. `before`: the bytes that were sent already."""
        client, connection = exchange.client, exchange.connection
        long = LongAnswer(has_input=exchange.ticket.request.prompt_bytes > 0)
        long.feed(before)
        client.on_writable(connection.resume)

        def sink(piece: bytes) -> bool:
            long.feed(piece)
            return client.write(piece)

        try:
            last = await connection.pipe(sink)
        except UpstreamFailure as failure:
            self._lost(exchange, failure)
            client.abort()
            return
        long.feed(last)
        if connection.status < 400 and (said := long.failure) is not None:
            exchange.ticket.usage = long.usage
            self._lost(exchange, answer_failed(connection, said))
        else:
            self._answered(exchange, long.usage or usage_of_head(connection.headers) or Usage())
        client.end(last)

    async def _stream(self, exchange: Exchange) -> Dispatch | None:
        """Pass on a streamed answer from its first content on. The engine's callback writes the pieces directly to the
        client. A slow client pauses reading from the engine.

        If the answer breaks off and another instance can continue it, return the dispatch to that instance; None if the
        answer is over. Raises UpstreamFailure if the engine fails, or reports a failure, before anything was passed on.
        """
        call = exchange.call
        kept = self._carrying.keep(call, exchange.pool)
        answers = exchange.ticket.request.answers
        reader = exchange.ticket.stream = StreamReader(call.dialect, hides_usage=call.hides_usage, whole=kept is not None, answers=answers)
        keep = None if kept is None else kept.append
        beginnings = _StreamBeginnings(self, exchange, self._now)
        return await self._pass(exchange, reader, StreamPassage(reader, exchange.connection, exchange.client, beginnings, self._now, keep))

    async def _stream_rest(self, exchange: Exchange) -> Dispatch | None:
        """Pass on the rest of an answer whose first part came from another engine. Return the dispatch to another
        instance if this engine breaks off too and the answer can be continued; None if the answer is over.
        """
        call, connection, kept, carried = exchange.call, exchange.connection, exchange.call.kept, exchange.call.rest
        assert kept is not None
        assert carried is not None
        assert carried.rest is not None
        if connection.status >= 400 or not exchange.is_stream:
            raise UpstreamFailure(
                REST_REFUSED,
                f"answered the request for the rest of an answer with status {connection.status}, without a stream",
                at=exchange.instance,
            )
        reader = exchange.ticket.stream = RestReader(carried.rest, kept, hides_usage=call.hides_usage)
        goes_on = partial(self._goes_on, exchange)
        return await self._pass(exchange, reader, RestPassage(reader, connection, exchange.client, kept.pieces.append, goes_on))

    def _goes_on(self, exchange: Exchange) -> None:
        exchange.pool.account.goes_on(exchange.ticket, self._now())

    async def _pass(self, exchange: Exchange, reader: StreamReader, passage: StreamPassage | RestPassage) -> Dispatch | None:
        call, client, connection = exchange.call, exchange.client, exchange.connection
        client.on_writable(connection.resume)
        try:
            last = await connection.pipe(passage.take)
        except UpstreamFailure as failure:
            if not passage.begun:
                exchange.ticket.stream = None
                raise
            if reader.finished:  # the client has all of the answer, however its connection ended
                left = reader.end()
                self._answered(exchange, reader.usage())
                client.end(left)
                return None
            return self._broke_off(exchange, reader, failure)
        left = passage.take_last(last)
        shortfall = reader.shortfall
        if shortfall is not None and not (passage.begun or reader.began):
            exchange.ticket.stream = None
            self._sender.release(call, connection)
            raise answer_failed(connection, shortfall)
        passage.begin()
        self.remember(exchange, reader)
        if shortfall is None:
            self._answered(exchange, reader.usage())
            client.end(left)
            return None
        self._sender.release(call, connection)
        if left:
            client.write(left)
            if call.kept is not None:
                call.kept.pieces.append(left)
        why = f"{exchange.instance} ended it: {without_addresses(shortfall_of(connection, shortfall))}"
        return self._broke_off(exchange, reader, answer_failed(connection, shortfall), why)

    def _broke_off(self, exchange: Exchange, reader: StreamReader, failure: UpstreamFailure, why: str = "") -> Dispatch | None:
        call, ticket = exchange.call, exchange.ticket
        return self._carrying.broke_off(call, exchange.client, exchange.pool, ticket, exchange.instance, reader, failure, why)

    def remember(self, exchange: Exchange, reader: StreamReader) -> None:
        """Record which instance makes the response in progress, if the response's protocol stores responses."""
        if exchange.call.dialect is _RESPONSES and is_response_id(reader.response_id):
            self._held.remember(reader.response_id, exchange.pool.key, exchange.instance, exchange.ticket)

    def _answered(self, exchange: Exchange, usage: Usage) -> None:
        """Settle the account of a complete answer, and release its connection."""
        now = self._now()
        if exchange.connection.status < 400:
            if exchange.doubt is not None:
                exchange.doubt.contradicted(now)
            exchange.pool.engine_worked(exchange.instance, now)
            exchange.pool.account.complete(exchange.ticket, now, usage)
            self._keep_prompt(exchange.call, exchange.pool, exchange.ticket, now)
        else:
            exchange.pool.account.decline(exchange.ticket, now)
        self._sender.release(exchange.call, exchange.connection)

    def _keep_prompt(self, call: Call, pool: Pool, ticket: Ticket, now: float) -> None:
        """Keep the prompt of a served request, so that another instance can compute it when this instance leaves.

        Some prompts are not kept. A prompt that needs the client's credentials, or a conversation that its engine
        stores, cannot be sent again. The prompt of an embedding is not continued by a later prompt.
        """
        request, dispatch = ticket.request, ticket.verdict
        if pool.table.routing.hand_over_budget <= 0 or request.warms or not request.blocks or request.within is not None:
            return
        if call.generates and not pool.pass_credentials and isinstance(dispatch, Dispatch):
            asked = call if call.rest is None else call.rest
            self._prompts.keep(pool.key, KeptPrompt(request, asked.head, asked.body, call.dialect, call.model, dispatch.instance, now))

    def _lost(self, exchange: Exchange, failure: UpstreamFailure) -> None:
        now = self._now()
        exchange.pool.engine_failed(exchange.instance, failure.kind, now, exchange.ticket)
        exchange.pool.note_beyond_bounds(exchange.instance, failure, now)
        exchange.pool.account.fail(exchange.ticket, now, out_of_time=failure.kind == "deadline")
        exchange.call.drop_connection()
        logger.warning("engine lost while answering", extra=failed(exchange.call, exchange.pool, exchange.instance, failure))


class _StreamBeginnings:
    """The callbacks for the beginning of the answer of one exchange."""

    __slots__ = ("_exchange", "_now", "_proxy")

    def __init__(self, proxy: Proxy, exchange: Exchange, now: Callable[[], float]) -> None:
        self._proxy = proxy
        self._exchange = exchange
        self._now = now

    def begins(self) -> None:
        """Write the status and the headers (see `Beginnings`)."""
        exchange = self._exchange
        assert exchange.ticket.stream is not None
        self._proxy.remember(exchange, exchange.ticket.stream)
        exchange.client.begin(exchange.connection.status, exchange.answer_headers(), None)

    def has_content(self) -> None:
        """Record the first token (see `Beginnings`)."""
        exchange, now = self._exchange, self._now()
        if exchange.doubt is not None:
            exchange.doubt.contradicted(now)
        if exchange.handed_over_at and not exchange.ticket.request.warms:
            exchange.pool.counters.handover.observe(now - exchange.handed_over_at)
        exchange.pool.account.first_token(exchange.ticket, now)


def failed(call: Call, pool: Pool, instance: str, failure: UpstreamFailure) -> dict[str, str]:
    """Return the log fields for an engine's failure to serve a call."""
    return {"pool": str(pool.key), "instance": instance, "request": call.id, "kind": failure.kind, "error": str(failure)}
