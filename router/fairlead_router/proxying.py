"""One request's life: wait for its dispatch, send it, retry before the first byte, pass the answer on unbuffered, and account for its end.

Every way out of `Proxy.relay` ends the request's ticket exactly once: answered, failed, refused, or cancelled because the client went away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fairlead.routing.protocols import Dispatch, Refusal, RoutingRequest
from fairlead_router.accounting import Ticket
from fairlead_router.answers import StreamReader, read_usage
from fairlead_router.pools import Pool
from fairlead_router.refusals import ErrorAnswer, Headers, refusal_answer, stream_error, upstream_failed
from fairlead_router.settings import Timeouts
from fairlead_router.upstream import UpstreamConnection, UpstreamFailure, UpstreamPool

Send = Callable[[dict[str, Any]], Awaitable[None]]

WHOLE_ANSWER_BYTES = 16 * 1024 * 1024
"""An unstreamed answer is held until it is complete, so that losing its engine can still be told by status; beyond this it is passed on."""

STALLED_CLIENT_SECONDS = 5.0
"""How long past the total time a client may take to read the end before its connection is dropped."""

_WITHHELD = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"date",
        b"server",
        b"content-length",
    }
)

logger = logging.getLogger("fairlead.router.requests")


class Call:
    """One client request on its way through: what is sent upstream and what is known so far."""

    __slots__ = ("body", "connection", "deadline", "first_byte_due", "gone", "head", "request", "stream", "task", "ticket")

    def __init__(self, request: RoutingRequest, head: bytes, body: bytes, *, stream: bool, deadline: float) -> None:
        self.request = request
        self.head = head
        self.body = body
        self.stream = stream
        self.deadline = deadline
        self.first_byte_due = 0.0
        self.connection: UpstreamConnection | None = None
        self.ticket: Ticket | None = None
        self.gone = False
        self.task = asyncio.current_task()

    def client_gone(self) -> None:
        """The client closed its connection: stop whatever is being waited for."""
        self.gone = True
        if self.task is not None:
            self.task.cancel()


class Proxy:
    """Relays calls to engines. `now` is the router's clock in Unix seconds."""

    def __init__(self, upstream: UpstreamPool, timeouts: Timeouts, now: Callable[[], float]) -> None:
        self._upstream = upstream
        self._timeouts = timeouts
        self._now = now
        self._calls: set[Call] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def new_call(self, request: RoutingRequest, head: bytes, body: bytes, *, stream: bool) -> Call:
        """A call whose total time starts now."""
        return Call(request, head, body, stream=stream, deadline=request.arrived_at + self._timeouts.total)

    async def relay(self, call: Call, pool: Pool, send: Send) -> None:
        """Serve one call to its end. Returns also when the client went away; raises only if the server is being torn down."""
        self._calls.add(call)
        self._idle.clear()
        ticket: Ticket | None = None
        try:
            ticket = pool.submit(call.request, self._now())
            verdict = ticket.verdict
            if verdict is None:
                verdict = await ticket.decided()
            while isinstance(verdict, Dispatch):
                try:
                    connection = await self._begin(call, verdict)
                except UpstreamFailure as failure:
                    verdict = self._retry(call, ticket, verdict, failure)
                    continue
                if call.stream and connection.status < 400:
                    await self._stream(call, ticket, verdict, connection, send)
                else:
                    await self._whole(call, ticket, verdict, connection, send)
                return
            await send_answer(send, _refused(verdict, pool))
        except asyncio.CancelledError:
            if not call.gone:
                raise
            if ticket is not None:
                ticket.cancel(self._now())
        finally:
            self._calls.discard(call)
            if not self._calls:
                self._idle.set()
            if ticket is not None and not ticket.ended:
                ticket.fail(self._now())
            if call.connection is not None:
                call.connection.abort()

    async def _begin(self, call: Call, dispatch: Dispatch) -> UpstreamConnection:
        """Send to the dispatched instance and wait for the beginning of its answer. A kept-alive connection the engine closed meanwhile is no
        failure of the engine: one fresh connection is tried."""
        connection = self._upstream.take_idle(dispatch.address)
        if connection is None:
            connection = await self._upstream.connect(dispatch.address)
        head = b"%shost: %s\r\n\r\n" % (call.head, dispatch.address.encode())
        call.connection = connection
        call.first_byte_due = self._now() + self._timeouts.first_byte
        connection.send(head, call.body)
        try:
            await connection.first()
        except UpstreamFailure as failure:
            if failure.kind != "lost" or not connection.reused:
                raise
            call.connection = None
            call.connection = connection = await self._upstream.connect(dispatch.address)
            connection.send(head, call.body)
            await connection.first()
        call.first_byte_due = 0.0
        if connection.status >= 500 or connection.status == 429:
            raise UpstreamFailure(
                "busy" if connection.status in (429, 503) else "status", f"{dispatch.instance} answered {connection.status}"
            )
        return connection

    def _retry(self, call: Call, ticket: Ticket, dispatch: Dispatch, failure: UpstreamFailure) -> Dispatch | Refusal:
        now = self._now()
        self._drop_connection(call)
        call.first_byte_due = 0.0
        pool = ticket.pool
        pool.counters.upstream_errors[failure.kind] += 1
        if failure.kind != "busy":
            pool.scheduler.instance_failed(dispatch.instance, now)
        logger.warning(
            "engine failed before the first byte",
            extra={
                "pool": str(pool.key),
                "instance": dispatch.instance,
                "request": call.request.id,
                "kind": failure.kind,
                "problem": str(failure),
            },
        )
        return ticket.retry(now, dispatch.instance, str(failure))

    async def _whole(self, call: Call, ticket: Ticket, dispatch: Dispatch, connection: UpstreamConnection, send: Send) -> None:
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
            await send_answer(send, upstream_failed(f"{dispatch.instance} was lost while it answered: {failure}", ticket.pool.header))
            return
        headers = _answer_headers(connection, ticket, dispatch)
        if not connection.complete:
            await send({"type": "http.response.start", "status": connection.status, "headers": headers})
            await self._pass_on(call, ticket, dispatch, connection, send, body)
            return
        self._answered(call, ticket, dispatch, connection, read_usage(body) or (0, None))
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": connection.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, call: Call, ticket: Ticket, dispatch: Dispatch, connection: UpstreamConnection, send: Send) -> None:
        """Pass on a streamed answer; its first bytes are its first token."""
        now = self._now()
        ticket.first_token(now)
        ticket.pool.counters.ttft.observe(now - call.request.arrived_at)
        await send({"type": "http.response.start", "status": connection.status, "headers": _answer_headers(connection, ticket, dispatch)})
        await self._pass_on(call, ticket, dispatch, connection, send, b"")

    async def _pass_on(
        self, call: Call, ticket: Ticket, dispatch: Dispatch, connection: UpstreamConnection, send: Send, held: bytes
    ) -> None:
        """Send pieces as they come. `held` is what was already taken from the connection."""
        reader = StreamReader()
        try:
            piece = held or await connection.read()
            while True:
                reader.feed(piece)
                if connection.complete and not connection.buffered:
                    break
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await connection.read()
        except UpstreamFailure as failure:
            self._lost(call, ticket, dispatch, failure)
            message = f"the answer ended early, {dispatch.instance} was lost: {failure}"
            await send({"type": "http.response.body", "body": stream_error(message, mid_event=reader.cut) if call.stream else b""})
            return
        self._answered(call, ticket, dispatch, connection, reader.usage())
        await send({"type": "http.response.body", "body": piece})

    def _answered(
        self, call: Call, ticket: Ticket, dispatch: Dispatch, connection: UpstreamConnection, usage: tuple[int, int | None]
    ) -> None:
        """The engine's answer is complete: settle the account and give the connection back."""
        now = self._now()
        ticket.pool.scheduler.instance_worked(dispatch.instance, now)
        if connection.status < 400:
            ticket.complete(now, *usage)
        else:
            ticket.fail(now)  # the engine refused the request as the client made it; nothing was generated
        call.connection = None
        self._upstream.release(connection)

    def _lost(self, call: Call, ticket: Ticket, dispatch: Dispatch, failure: UpstreamFailure) -> None:
        now = self._now()
        ticket.pool.counters.upstream_errors[failure.kind] += 1
        if failure.kind != "deadline":
            ticket.pool.scheduler.instance_failed(dispatch.instance, now)
        ticket.fail(now)
        self._drop_connection(call)
        logger.warning(
            "engine lost while answering",
            extra={"pool": str(ticket.pool.key), "instance": dispatch.instance, "request": call.request.id, "problem": str(failure)},
        )

    def _drop_connection(self, call: Call) -> None:
        connection, call.connection = call.connection, None
        if connection is not None:
            connection.abort()

    def sweep(self) -> None:
        """Called a few times a second: ends what exceeds its first-byte or total time."""
        now = self._now()
        for call in tuple(self._calls):
            connection = call.connection
            if connection is not None and 0 < call.first_byte_due <= now:
                connection.abort(UpstreamFailure("timeout", f"{connection.address} sent nothing for {self._timeouts.first_byte:g} s"))
            elif call.deadline <= now:
                if connection is not None:
                    connection.abort(UpstreamFailure("deadline", f"the request took longer than {self._timeouts.total:g} s"))
                if call.deadline + STALLED_CLIENT_SECONDS <= now:
                    call.client_gone()  # it does not even read the error

    def active(self) -> int:
        """Calls not finished yet."""
        return len(self._calls)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no call is under way, at most `seconds`; whether that came true."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


async def send_answer(send: Send, answer: ErrorAnswer) -> None:
    """Send a complete answer of the router's own."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})


def _refused(refusal: Refusal, pool: Pool) -> ErrorAnswer:
    return upstream_failed(refusal.message, pool.header) if refusal.status == 502 else refusal_answer(refusal, pool.header)


def _answer_headers(connection: UpstreamConnection, ticket: Ticket, dispatch: Dispatch) -> Headers:
    """The engine's headers without those of its connection, and what was decided."""
    headers = [pair for pair in connection.headers if pair[0] not in _WITHHELD]
    queued = ticket.dispatched_at - ticket.request.arrived_at
    headers += (
        (b"x-fairlead-pool", ticket.pool.header),
        (b"x-fairlead-instance", dispatch.instance.encode()),
        (b"x-fairlead-decision", dispatch.decision_id.encode()),
        (b"x-fairlead-reason", dispatch.reason.value.encode()),
        (b"x-fairlead-queued-ms", b"%d" % (queued * 1000.0)),
    )
    return headers
