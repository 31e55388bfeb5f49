"""A routed request's life: wait for its dispatch, send it, retry before the first byte, pass the answer on unbuffered,
and account for its end.

`Proxy.relay` ends the request's ticket exactly once, however it returns: answered, refused by the engine, failed,
refused by the scheduler, or cancelled because the client went away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead_router.answers import TAIL_BYTES, StreamReader, Usage, first_id, read_usage
from fairlead_router.calls import Call, Calls, Client
from fairlead_router.charges import Charge
from fairlead_router.dialects import Dialect, error_event
from fairlead_router.divided_calls import DividedCall
from fairlead_router.held_responses import HeldResponses
from fairlead_router.pool import Pool
from fairlead_router.refusals import BadRequest, ErrorAnswer, refusal_answer, upstream_failed
from fairlead_router.sending import Sender, passed_headers
from fairlead_router.tickets import Ticket
from fairlead_router.upstream_connections import UpstreamConnection, UpstreamFailure

WHOLE_ANSWER_BYTES = 16 * 1024 * 1024
"""Most bytes of an unstreamed answer that are held until it is complete; a longer answer is passed on as it comes.

While it is held, the loss of its engine can still be reported by the status.
"""

logger = logging.getLogger(__name__)


class Exchange:
    """One attempt at a routed request: the call at `instance`, whose answer goes to `client` and whose end goes into
    `pool`'s account by `ticket`. Of a divided request it is what the decode instance answers.
    """

    __slots__ = ("call", "client", "connection", "dispatch", "instance", "pool", "ticket")

    def __init__(
        self, call: Call, client: Client, pool: Pool, ticket: Ticket, dispatch: Dispatch, instance: str, connection: UpstreamConnection
    ) -> None:
        self.call = call
        self.client = client
        self.pool = pool
        self.ticket = ticket
        self.dispatch = dispatch
        self.instance = instance
        self.connection = connection

    def answer_headers(self) -> bytes:
        """Header lines for the client: the engine's that may pass, and those that name the decision."""
        dispatch, ticket = self.dispatch, self.ticket
        lines = passed_headers(self.connection)
        lines.append(
            b"x-fairlead-pool: %s\r\nx-fairlead-instance: %s\r\nx-fairlead-decision: %s\r\nx-fairlead-reason: %s\r\nx-fairlead-queued-ms: %d\r\n"
            % (
                self.pool.header,
                dispatch.instance.encode(),
                dispatch.decision_id.encode(),
                dispatch.reason.value.encode(),
                ticket.queued_seconds * 1000.0,
            )
        )
        if dispatch.decode is not None:
            lines.append(b"x-fairlead-decode: %s\r\n" % dispatch.decode.encode())
        if self.pool.classes.are_declared:
            lines.append(b"x-fairlead-priority-class: %s\r\n" % dispatch.request.priority_class.encode())
        return b"".join(lines)


class Proxy:
    """Relays routed calls to engines. `now` is the router's clock in Unix seconds."""

    def __init__(self, sender: Sender, calls: Calls, held: HeldResponses, now: Callable[[], float]) -> None:
        self._sender = sender
        self._calls = calls
        self._held = held
        self._now = now

    async def relay(
        self, call: Call, request: RoutingRequest, pool: Pool, client: Client, charge: Charge | None = None
    ) -> ErrorAnswer | None:
        """Serve one call to its end, for this charge of its client's key.

        Returns None when it was answered or its client went away, otherwise the answer that the caller must send.

        Raises only if the server is being torn down.
        """
        self._calls.enter(call)
        ticket: Ticket | None = None
        divided: DividedCall | None = None
        try:
            call.ticket = ticket = pool.submit(request, self._now(), charge)
            verdict = ticket.verdict
            if verdict is None:
                call.give_up = partial(pool.give_up, ticket)
                verdict = await ticket.decided()
                call.give_up = None
            while isinstance(verdict, Dispatch):
                dispatch, instance = verdict, verdict.instance
                try:
                    if dispatch.decode is None:
                        connection = await self._sender.begin(call, instance, dispatch.address, credentials=pool.pass_credentials)
                    else:
                        divided = divided or DividedCall(call, pool, ticket, self._sender, self._now)
                        begun = await divided.begin(dispatch)
                        if isinstance(begun, Refusal):
                            verdict = begun
                            continue
                        connection, instance = begun, divided.instance
                except UpstreamFailure as failure:
                    if dispatch.decode is not None and divided is not None:
                        instance = divided.instance
                    retried = self._retry(call, pool, ticket, instance, failure)
                    if retried is None:
                        return upstream_failed(f"no time was left to try another instance: {failure}", pool.header, call.dialect)
                    verdict = retried
                    continue
                exchange = Exchange(call, client, pool, ticket, dispatch, instance, connection)
                if call.stream and connection.status < 400:
                    await self._stream(exchange)
                    return None
                return await self._whole(exchange)
            return refusal_answer(verdict, pool.header, call.dialect)
        except BadRequest:
            if ticket is not None:
                pool.decline(ticket, self._now())
            raise
        except asyncio.CancelledError:
            if not call.gone:
                raise
            if ticket is not None:
                pool.cancel(ticket, self._now())
            return None
        finally:
            if ticket is not None and not ticket.ended:
                pool.fail(ticket, self._now())
            self._calls.leave(call)

    def _retry(self, call: Call, pool: Pool, ticket: Ticket, instance: str, failure: UpstreamFailure) -> Dispatch | Refusal | None:
        """What the scheduler says next; None if the request's total time is over, which ends its ticket: nobody would
        wait for what another engine computed, and its session would leave a home that works.
        """
        now = self._now()
        call.drop_connection()
        call.awaited_since = call.quiet_since = 0.0
        pool.engine_failed(instance, failure.kind, now)
        logger.warning("engine failed before the first byte", extra=failed(call, pool, instance, failure))
        if call.deadline <= now:
            pool.fail(ticket, now, out_of_time=failure.kind == "deadline")
            return None
        verdict = pool.retry(ticket, instance, now, reached=failure.reached)
        if isinstance(verdict, Refusal):
            seconds = failure.retry_after_seconds or verdict.retry_after_seconds
            return replace(verdict, message=f"{verdict.message}; the last: {failure}", retry_after_seconds=seconds)
        return verdict

    async def _whole(self, exchange: Exchange) -> ErrorAnswer | None:
        """Pass on an unstreamed answer once it is complete.

        Until then, the loss of its engine can still be reported by the status.
        """
        call, client, connection = exchange.call, exchange.client, exchange.connection
        try:
            body = await connection.read()
            if not connection.complete:
                parts, size = [body], len(body)
                while size <= WHOLE_ANSWER_BYTES and (piece := await connection.read()):
                    parts.append(piece)
                    size += len(piece)
                body = b"".join(parts)
        except UpstreamFailure as failure:
            self._lost(exchange, failure)
            return upstream_failed(f"{exchange.instance} was lost while it answered: {failure}", exchange.pool.header, call.dialect)
        headers = exchange.answer_headers()
        if not connection.complete:
            client.begin(connection.status, headers, None)
            exchange.ticket.passed_on = True
            client.write(body)
            await self._pass_on(exchange, body[-TAIL_BYTES:])
            return None
        status = connection.status
        if call.dialect is Dialect.RESPONSES and status < 400:
            self._held.remember(first_id(body), exchange.pool.key, exchange.instance, exchange.ticket.charge)
        self._answered(exchange, read_usage(body) or Usage())
        client.begin(status, headers, len(body))
        client.end(body)
        return None

    async def _stream(self, exchange: Exchange) -> None:
        """Pass on a streamed answer. Its first bytes are its first token, in the dialects that begin with it."""
        if exchange.call.dialect is Dialect.OPENAI:
            exchange.pool.first_token(exchange.ticket, self._now())
        exchange.client.begin(exchange.connection.status, exchange.answer_headers(), None)
        await self._pass_on(exchange)

    async def _pass_on(self, exchange: Exchange, before: bytes = b"") -> None:
        """Send pieces as they come, from the engine's callback straight to the client, which has had `before`; a slow
        client pauses the engine.
        """
        call, client, connection = exchange.call, exchange.client, exchange.connection
        reader = StreamReader(call.dialect)
        if call.stream:
            exchange.ticket.stream = reader
        else:
            reader.feed(before)
        client.on_writable(connection.resume)

        def sink(piece: bytes) -> bool:
            reader.feed(piece)
            return client.write(piece)

        def watching_sink(piece: bytes) -> bool:
            self._watch_events(exchange, reader, piece)
            return client.write(piece)

        watches = call.stream and call.dialect is not Dialect.OPENAI
        try:
            last = await connection.pipe(watching_sink if watches else sink)
        except UpstreamFailure as failure:
            self._lost(exchange, failure)
            if not call.stream:
                client.abort()
                return
            message = f"the answer ended early, {exchange.instance} was lost: {failure}"
            client.end(error_event(call.dialect, "rejected-upstream-failed", message, mid_event=reader.cut, sequence=reader.events))
            return
        if watches:
            self._watch_events(exchange, reader, last)
        else:
            reader.feed(last)
        self._answered(exchange, reader.usage() if call.stream else reader.usage_at_the_end())
        client.end(last)

    def _watch_events(self, exchange: Exchange, reader: StreamReader, piece: bytes) -> None:
        """In dialects whose streams begin before the first token: find that token, and the id of the response."""
        begun = reader.events
        reader.feed(piece)
        if begun == 0 and reader.events and exchange.call.dialect is Dialect.RESPONSES:
            self._held.remember(first_id(reader.head), exchange.pool.key, exchange.instance, exchange.ticket.charge)
        if reader.began and not exchange.ticket.saw_first_token:
            exchange.pool.first_token(exchange.ticket, self._now())

    def _answered(self, exchange: Exchange, usage: Usage) -> None:
        """The engine's answer is complete: settle the account and give the connection back."""
        now = self._now()
        exchange.pool.engine_worked(exchange.instance, now)
        if exchange.connection.status < 400:
            exchange.pool.complete(exchange.ticket, now, usage)
        else:
            exchange.pool.decline(exchange.ticket, now)
        self._sender.release(exchange.call, exchange.connection)

    def _lost(self, exchange: Exchange, failure: UpstreamFailure) -> None:
        now = self._now()
        exchange.pool.engine_failed(exchange.instance, failure.kind, now)
        exchange.pool.fail(exchange.ticket, now, out_of_time=failure.kind == "deadline")
        exchange.call.drop_connection()
        logger.warning("engine lost while answering", extra=failed(exchange.call, exchange.pool, exchange.instance, failure))


def failed(call: Call, pool: Pool, instance: str, failure: UpstreamFailure) -> dict[str, str]:
    """The log fields for an engine's failure at a request."""
    return {"pool": str(pool.key), "instance": instance, "request": call.id, "kind": failure.kind, "error": str(failure)}
