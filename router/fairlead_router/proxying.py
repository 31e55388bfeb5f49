"""A routed request's life: wait for its dispatch, send it, retry before the first byte, pass the answer on unbuffered, and account for its end.

Every way out of `Proxy.relay` ends the request's ticket exactly once: answered, refused by the engine, failed, refused, or cancelled because the client
went away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead_router.accounting import Ticket
from fairlead_router.answers import StreamReader, first_id, read_usage
from fairlead_router.calls import Call, Calls, Client
from fairlead_router.dialects import Dialect, error_event
from fairlead_router.held_responses import HeldResponses
from fairlead_router.pools import Pool
from fairlead_router.refusals import ErrorAnswer, refusal_answer, upstream_failed
from fairlead_router.sending import Sender, fault, passed_headers
from fairlead_router.upstream import UpstreamConnection, UpstreamFailure

WHOLE_ANSWER_BYTES = 16 * 1024 * 1024
"""An unstreamed answer is held until it is complete, so that losing its engine can still be told by status; beyond this it is passed on."""

logger = logging.getLogger("fairlead.router.requests")


class Proxy:
    """Relays routed calls to engines. `now` is the router's clock in Unix seconds."""

    def __init__(self, sender: Sender, calls: Calls, held: HeldResponses, now: Callable[[], float]) -> None:
        self._sender = sender
        self._calls = calls
        self._held = held
        self._now = now

    async def relay(self, call: Call, request: RoutingRequest, pool: Pool, client: Client) -> ErrorAnswer | None:
        """Serve one call to its end: None when it was answered or its client went away, else the answer the caller must send.

        Raises only if the server is being torn down.
        """
        self._calls.enter(call)
        ticket: Ticket | None = None
        try:
            ticket = pool.submit(request, self._now())
            verdict = ticket.verdict
            if verdict is None:
                verdict = await ticket.decided()
            while isinstance(verdict, Dispatch):
                try:
                    connection = await self._sender.begin(call, pool, verdict.instance, verdict.address)
                except UpstreamFailure as failure:
                    verdict = self._retry(call, ticket, verdict, failure)
                    continue
                if call.stream and connection.status < 400:
                    await self._stream(call, ticket, verdict, connection, client)
                    return None
                return await self._whole(call, ticket, verdict, connection, client)
            return refusal_answer(verdict, pool.header, call.dialect)
        except asyncio.CancelledError:
            if not call.gone:
                raise
            if ticket is not None:
                ticket.cancel(self._now())
            return None
        finally:
            if ticket is not None and not ticket.ended:
                ticket.fail(self._now())
            self._calls.leave(call)

    def _retry(self, call: Call, ticket: Ticket, dispatch: Dispatch, failure: UpstreamFailure) -> Dispatch | Refusal:
        now = self._now()
        call.drop_connection()
        call.first_byte_due = call.quiet_since = 0.0
        pool = ticket.pool
        fault(pool, dispatch.instance, failure, now)
        logger.warning(
            "engine failed before the first byte",
            extra={
                "pool": str(pool.key),
                "instance": dispatch.instance,
                "request": call.id,
                "kind": failure.kind,
                "problem": str(failure),
            },
        )
        verdict = ticket.retry(now, dispatch.instance)
        if isinstance(verdict, Refusal):
            return replace(verdict, message=f"{verdict.message}; the last: {failure}")
        return verdict

    async def _whole(
        self, call: Call, ticket: Ticket, dispatch: Dispatch, connection: UpstreamConnection, client: Client
    ) -> ErrorAnswer | None:
        """Pass on an unstreamed answer once it is complete, so that an engine lost halfway can still be told by status."""
        try:
            body = await connection.read()
            if not connection.complete:
                parts, size = [body], len(body)
                while size <= WHOLE_ANSWER_BYTES and (piece := await connection.read()):
                    parts.append(piece)
                    size += len(piece)
                body = b"".join(parts)
        except UpstreamFailure as failure:
            self._lost(call, ticket, dispatch, failure)
            return upstream_failed(f"{dispatch.instance} was lost while it answered: {failure}", ticket.pool.header, call.dialect)
        headers = _answer_headers(connection, ticket, dispatch)
        if not connection.complete:
            client.begin(connection.status, headers, None)
            client.write(body)
            await self._pass_on(call, ticket, dispatch, connection, client)
            return None
        status = connection.status
        if call.dialect is Dialect.RESPONSES and status < 400:
            self._held.remember(first_id(body), ticket.pool.key, dispatch.instance)
        self._answered(call, ticket, dispatch, connection, read_usage(body) or (0, None))
        client.begin(status, headers, len(body))
        client.end(body)
        return None

    async def _stream(self, call: Call, ticket: Ticket, dispatch: Dispatch, connection: UpstreamConnection, client: Client) -> None:
        """Pass on a streamed answer. Its first bytes are its first token, in the dialects that begin with it."""
        if call.dialect is Dialect.OPENAI:
            self._first_token(ticket)
        client.begin(connection.status, _answer_headers(connection, ticket, dispatch), None)
        await self._pass_on(call, ticket, dispatch, connection, client)

    def _first_token(self, ticket: Ticket) -> None:
        now = self._now()
        ticket.first_token(now)
        ticket.pool.counters.ttft.observe(now - ticket.request.arrived_at)

    async def _pass_on(self, call: Call, ticket: Ticket, dispatch: Dispatch, connection: UpstreamConnection, client: Client) -> None:
        """Send pieces as they come, from the engine's callback straight to the client; a slow client pauses the engine."""
        reader = StreamReader(call.dialect)
        client.on_writable(connection.resume)

        def sink(piece: bytes) -> bool:
            reader.feed(piece)
            return client.write(piece)

        def watching_sink(piece: bytes) -> bool:
            self._watch_events(call, ticket, dispatch, reader, piece)
            return client.write(piece)

        watches = call.stream and call.dialect is not Dialect.OPENAI
        try:
            last = await connection.pipe(watching_sink if watches else sink)
        except UpstreamFailure as failure:
            self._lost(call, ticket, dispatch, failure)
            if not call.stream:
                client.abort()
                return
            message = f"the answer ended early, {dispatch.instance} was lost: {failure}"
            client.end(error_event(call.dialect, "rejected-upstream-failed", message, mid_event=reader.cut, sequence=reader.events))
            return
        if watches:
            self._watch_events(call, ticket, dispatch, reader, last)
        else:
            reader.feed(last)
        self._answered(call, ticket, dispatch, connection, reader.usage())
        client.end(last)

    def _watch_events(self, call: Call, ticket: Ticket, dispatch: Dispatch, reader: StreamReader, piece: bytes) -> None:
        """Where a stream begins before its first token: see that token, and the name of the response that others will ask for."""
        begun = reader.events
        reader.feed(piece)
        if begun == 0 and reader.events and call.dialect is Dialect.RESPONSES:
            self._held.remember(first_id(reader.head), ticket.pool.key, dispatch.instance)
        if reader.began and not ticket.saw_first_token and not ticket.ended:
            self._first_token(ticket)

    def _answered(
        self, call: Call, ticket: Ticket, dispatch: Dispatch, connection: UpstreamConnection, usage: tuple[int, int | None]
    ) -> None:
        """The engine's answer is complete: settle the account and give the connection back."""
        now = self._now()
        ticket.pool.scheduler.instance_worked(dispatch.instance, now)
        if connection.status < 400:
            ticket.complete(now, *usage)
        else:
            ticket.decline(now)
        self._sender.release(call, connection)

    def _lost(self, call: Call, ticket: Ticket, dispatch: Dispatch, failure: UpstreamFailure) -> None:
        now = self._now()
        fault(ticket.pool, dispatch.instance, failure, now)
        ticket.fail(now)
        call.drop_connection()
        logger.warning(
            "engine lost while answering",
            extra={
                "pool": str(ticket.pool.key),
                "instance": dispatch.instance,
                "request": call.id,
                "kind": failure.kind,
                "problem": str(failure),
            },
        )


def _answer_headers(connection: UpstreamConnection, ticket: Ticket, dispatch: Dispatch) -> bytes:
    """Header lines: the engine's that may pass, and what was decided."""
    lines = passed_headers(connection)
    lines.append(
        b"x-fairlead-pool: %s\r\nx-fairlead-instance: %s\r\nx-fairlead-decision: %s\r\nx-fairlead-reason: %s\r\nx-fairlead-queued-ms: %d\r\n"
        % (
            ticket.pool.header,
            dispatch.instance.encode(),
            dispatch.decision_id.encode(),
            dispatch.reason.value.encode(),
            (ticket.dispatched_at - ticket.request.arrived_at) * 1000.0,
        )
    )
    return b"".join(lines)
