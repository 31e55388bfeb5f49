"""One request's life: wait for its dispatch, send it, retry before the first byte, pass the answer on unbuffered, and account for its end.

Every way out of `Proxy.relay` ends the request's ticket exactly once: answered, failed, refused, or cancelled because the client went away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from fairlead.routing.protocols import Dispatch, Refusal, RoutingRequest
from fairlead_router.accounting import Ticket
from fairlead_router.answers import StreamReader, read_usage
from fairlead_router.pools import Pool
from fairlead_router.refusals import ErrorAnswer, refusal_answer, stream_error, upstream_failed
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


class Client(Protocol):
    """The client's connection, given by the server as the ASGI extension `fairlead.client`; answers are written to it from callbacks."""

    def begin(self, status: int, headers: bytes, length: int | None) -> None:
        """Status and header lines; without `length` the body is chunked."""

    def write(self, piece: bytes) -> bool:
        """Pass on a piece. False: pause until `on_writable` calls."""

    def end(self, piece: bytes) -> None: ...

    def on_writable(self, resume: Callable[[], None]) -> None: ...


class Call:
    """One client request on its way through: what is sent upstream and what is known so far."""

    __slots__ = ("body", "connection", "deadline", "first_byte_due", "gone", "head", "request", "stream", "task", "ticket")

    def __init__(
        self, request: RoutingRequest, head: bytes, body: bytes, *, stream: bool, deadline: float, task: asyncio.Task[None] | None
    ) -> None:
        self.request = request
        self.head = head
        self.body = body
        self.stream = stream
        self.deadline = deadline
        self.first_byte_due = 0.0
        self.connection: UpstreamConnection | None = None
        self.ticket: Ticket | None = None
        self.gone = False
        self.task = task

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
        task = asyncio.current_task(self._upstream.loop)
        return Call(request, head, body, stream=stream, deadline=request.arrived_at + self._timeouts.total, task=task)

    async def relay(self, call: Call, pool: Pool, client: Client) -> ErrorAnswer | None:
        """Serve one call to its end: None when it was answered or its client went away, else the answer the caller must send.

        Raises only if the server is being torn down.
        """
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
                    await self._stream(call, ticket, verdict, connection, client)
                    return None
                return await self._whole(call, ticket, verdict, connection, client)
            return _refused(verdict, pool)
        except asyncio.CancelledError:
            if not call.gone:
                raise
            if ticket is not None:
                ticket.cancel(self._now())
            return None
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
            return upstream_failed(f"{dispatch.instance} was lost while it answered: {failure}", ticket.pool.header)
        headers = _answer_headers(connection, ticket, dispatch)
        if not connection.complete:
            client.begin(connection.status, headers, None)
            client.write(body)
            await self._pass_on(call, ticket, dispatch, connection, client)
            return None
        status = connection.status
        self._answered(call, ticket, dispatch, connection, read_usage(body) or (0, None))
        client.begin(status, headers, len(body))
        client.end(body)
        return None

    async def _stream(self, call: Call, ticket: Ticket, dispatch: Dispatch, connection: UpstreamConnection, client: Client) -> None:
        """Pass on a streamed answer; its first bytes are its first token."""
        now = self._now()
        ticket.first_token(now)
        ticket.pool.counters.ttft.observe(now - call.request.arrived_at)
        client.begin(connection.status, _answer_headers(connection, ticket, dispatch), None)
        await self._pass_on(call, ticket, dispatch, connection, client)

    async def _pass_on(self, call: Call, ticket: Ticket, dispatch: Dispatch, connection: UpstreamConnection, client: Client) -> None:
        """Send pieces as they come, from the engine's callback straight to the client; a slow client pauses the engine."""
        reader = StreamReader()
        client.on_writable(connection.resume)

        def sink(piece: bytes) -> bool:
            reader.feed(piece)
            return client.write(piece)

        try:
            last = await connection.pipe(sink)
        except UpstreamFailure as failure:
            self._lost(call, ticket, dispatch, failure)
            message = f"the answer ended early, {dispatch.instance} was lost: {failure}"
            client.end(stream_error(message, mid_event=reader.cut) if call.stream else b"")
            return
        reader.feed(last)
        self._answered(call, ticket, dispatch, connection, reader.usage())
        client.end(last)

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


def _answer_headers(connection: UpstreamConnection, ticket: Ticket, dispatch: Dispatch) -> bytes:
    """Header lines: the engine's without those of its connection, and what was decided."""
    lines = [b"%s: %s\r\n" % pair for pair in connection.headers if pair[0] not in _WITHHELD]
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
