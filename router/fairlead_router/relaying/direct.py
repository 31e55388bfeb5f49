"""Relays direct requests. They bypass the scheduler because they cost no prefill, or because only one instance can
serve them.

Direct requests are counted by outcome, and have the same time limits as routed requests. Each goes to the instance with
the fewest requests in flight. They have no session, queue or admission, and have their own circuit breakers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from fairlead.routing.contracts.faults import Fault
from fairlead.tables import Outlook
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamConnection, UpstreamFailure
from fairlead_router.metrics.endings import Outcome
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.served_names import refuses_name
from fairlead_router.pools.settling import LaterAnswer
from fairlead_router.pools.side_circuits import Tries, fault_of
from fairlead_router.protocols.answers import Failure, content_type
from fairlead_router.protocols.dialects import error_event
from fairlead_router.protocols.refusals import BadRequest, ErrorAnswer, closed, nobody_serves, upstream_failed
from fairlead_router.protocols.requests import forwarded_headers
from fairlead_router.protocols.side_answers import EVENTS, SideAnswer
from fairlead_router.relaying.calls import Call, Calls, Client
from fairlead_router.relaying.passing import answer_failed
from fairlead_router.relaying.second_opinions import KeptRefusal, read_refusal
from fairlead_router.relaying.sending import Sender, bodiless_headers, passed_headers, refuse_engine_faults, without_credentials
from fairlead_router.serving.client_requests import ClientGone

PROBES_AT_ONCE = 8
PROBE_SECONDS = 2.0

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Upload:
    """The part of a request's body that has not arrived yet. `rest` yields its pieces as they arrive. `chunked`: each
    piece is sent as a chunk, because the head has no length.
    """

    rest: AsyncIterator[bytes]
    chunked: bool
    begun: bool = False
    """Whether a piece of `rest` was taken, so that the request cannot be sent a second time."""


class DirectRelay:
    """Relays calls to the least loaded instance, or to a given instance. At most `tries` instances get a call.
    Instances that accept no connection do not count.
    """

    def __init__(self, sender: Sender, upstream: UpstreamPool, calls: Calls, now: Callable[[], float], *, tries: int) -> None:
        self._sender = sender
        self._upstream = upstream
        self._calls = calls
        self._now = now
        self._tries = tries

    async def relay(
        self,
        call: Call,
        pool: Pool,
        client: Client,
        *,
        only: str | None = None,
        upload: Upload | None = None,
        later: LaterAnswer | None = None,
    ) -> ErrorAnswer | None:
        """Serve one call to its end. Return None if the call was answered or its client has left. Otherwise return the
        error response, which the caller must send.

        `only`: the only instance that may get the call; None = any instance. `upload`: the part of the body that has
        not arrived. `later`: an object that also reads the answer's bytes.
        """
        self._calls.enter(call)
        tries = Tries(pool.choice.circuits)
        outcome = Outcome.FAILED
        try:
            outcome, answer = await self._serve(call, pool, client, tries, only, upload, later)
            return answer
        except asyncio.CancelledError:
            if not call.gone:
                raise
            outcome = Outcome.CANCELLED
            return None
        except BadRequest:  # the rest of an upload did not come as it should
            outcome = Outcome.REFUSED
            raise
        except ClientGone:
            outcome = Outcome.CANCELLED
            raise
        finally:
            if outcome is Outcome.CANCELLED:
                tries.left()
            tries.over(self._now())
            pool.counters.direct[outcome.value] += 1
            self._calls.leave(call)

    async def _serve(
        self, call: Call, pool: Pool, client: Client, tries: Tries, only: str | None, upload: Upload | None, later: LaterAnswer | None
    ) -> tuple[Outcome, ErrorAnswer | None]:
        """Try one instance after the other. Return the outcome, and the error response that the caller must still send,
        or None.
        """
        tried: list[str] = []
        tries_left = self._tries
        refusal: KeptRefusal | None = None
        lacking: list[str] = []
        """The instances that refused the request because they lack the model's name."""
        failure: UpstreamFailure | None = None
        headers: Sequence[tuple[bytes, bytes]] = ()
        while tries_left and not tries.failed_alike and not (upload and upload.begun):
            of_name = refusal is not None and refusal.of_name
            instance = only or self._next(call, pool, tried, of_name=of_name) or await self._first_instance(call, pool, tried)
            if instance is None:
                break
            tried.append(instance)
            try:
                with self._in_flight(pool, instance):
                    connection = await self._begin(call, pool, instance, upload)
                    if connection.status >= 400 and only is None and not (upload and upload.begun):
                        kept = await self._keep(call, pool, instance, connection, tried, first=refusal is None)
                        if kept is not None:
                            refusal, tries_left = kept, tries_left - 1
                            tries.failed(instance, None if kept.of_name else Fault.REFUSED, self._now())
                            lacking += [instance] if kept.of_name else []
                            continue
                    broken = await self._pass_on(call, pool, instance, connection, client, later, judges=only is None)
            except UpstreamFailure as problem:
                failure, headers = problem, problem.headers or bodiless_headers(call.connection)
                self._note(call, pool, instance, problem)
                tries.failed(instance, fault_of(problem.kind), self._now())
                if only or call.deadline <= self._now():
                    break
                tries_left -= problem.reached
                continue
            if broken is not None:
                tries.failed(instance, fault_of(broken.kind), self._now())
                return Outcome.FAILED, None
            if connection.status >= 400:
                return Outcome.REJECTED_BY_ENGINE, None
            tries.served(instance, self._now())
            for other in lacking:
                pool.choice.names.contradicted(other, call.model, self._now())
            return Outcome.SERVED, None
        if refusal is not None:
            client.begin(refusal.status, refusal.headers, len(refusal.body))
            client.end(refusal.body)
            return Outcome.REJECTED_BY_ENGINE, None
        if failure is not None:
            message = f"no instance of pool {pool.key} answered; the last: {failure.shown(tried[-1])}"
            return Outcome.FAILED, upstream_failed(message, pool.header, call.dialect, failure.retry_after_seconds, headers)
        if pool.table.outlook is Outlook.CLOSED:
            return Outcome.REFUSED, closed(pool.table, self._now(), pool.header, call.dialect)
        return Outcome.REFUSED, nobody_serves(f"no instance of pool {pool.key} accepts requests", pool.header, call.dialect)

    @contextmanager
    def _in_flight(self, pool: Pool, instance: str) -> Iterator[None]:
        """Count the request as in flight at the instance while the block runs."""
        pool.account.begin_direct(instance, self._now())
        try:
            yield
        finally:
            pool.account.end_direct(instance)

    async def _keep(
        self, call: Call, pool: Pool, instance: str, connection: UpstreamConnection, tried: list[str], *, first: bool
    ) -> KeptRefusal | None:
        """Return the instance's refusal if another instance will be tried. Return None if the client shall get the
        refusal. Raises UpstreamFailure.
        """
        now = self._now()
        body = await read_refusal(connection)
        of_name = body is not None and refuses_name(connection.status, body, call.model)
        if of_name:
            pool.choice.names.doubt(instance)
        if (
            body is None
            or not (of_name or first)
            or self._next(call, pool, tried, of_name=of_name) is None
            or not (of_name or pool.choice.opinions.take(now))
        ):
            return None
        kept = KeptRefusal(instance, connection.status, _answer_headers(pool, instance, connection), body, of_name=of_name)
        self._sender.release(call, connection)
        return kept

    def _next(self, call: Call, pool: Pool, tried: list[str], *, of_name: bool) -> str | None:
        """Return the instance to try next; None if there is none. `of_name`: whether an instance has refused the
        request because it lacks the model's name. Then instances that are assumed to lack the name come last, instead
        of being left out.
        """
        choice, now = pool.choice, self._now()
        found = choice.least_loaded(tried, now, call.model)
        if found is None and of_name:
            found = next(iter(choice.by_load(tried, now, call.model, choice.only_doubted(call.model, now))), None)
        return found

    async def _first_instance(self, call: Call, pool: Pool, tried: list[str]) -> str | None:
        """Wait for an instance, and return it, because the pool has no instance to try. None if no instance has come in
        time, or if instances were tried already.
        """
        if tried:
            return None
        now = self._now()
        with suppress(TimeoutError):
            async with asyncio.timeout(call.deadline - now):
                await pool.account.wait_for_instance(len(call.body), now)
        return pool.choice.least_loaded((), self._now(), call.model)

    async def _begin(self, call: Call, pool: Pool, instance: str, upload: Upload | None) -> UpstreamConnection:
        address, credentials = pool.addresses[instance], pool.passes_credentials(instance)
        if upload is None:
            return await self._sender.begin(call, instance, address, credentials=credentials, carried=pool.pass_credentials)
        connection = await self._upstream.connect(address, self._calls.seconds_left(call))
        self._calls.await_answer(call, connection)
        head = without_credentials(call.head) if pool.pass_credentials and not credentials else call.head
        connection.send(b"%shost: %s\r\n\r\n" % (head, address.encode()), _framed(call.body, upload.chunked))
        async for piece in upload.rest:
            upload.begun = True
            await connection.send_more(_framed(piece, upload.chunked))
            if connection.status:
                connection.half_sent = True  # the engine has seen enough, such as of a file too large for it
                break
        else:
            if upload.chunked:
                await connection.send_more(b"0\r\n\r\n")
        self._calls.await_answer(call, connection)
        await connection.first()
        self._calls.began(call)
        refuse_engine_faults(connection, credentials=credentials)
        return connection

    async def _pass_on(
        self,
        call: Call,
        pool: Pool,
        instance: str,
        connection: UpstreamConnection,
        client: Client,
        later: LaterAnswer | None,
        *,
        judges: bool,
    ) -> UpstreamFailure | None:
        """Pass the answer to the client. Return the failure if the answer broke off or reported an error; the client
        was then informed as far as its protocol allows. `judges`: raise UpstreamFailure for an answer that begins with
        an error in spite of its status.
        """
        headers = _answer_headers(pool, instance, connection)
        kind = content_type(connection.headers)
        answer: SideAnswer | None = None
        if judges and connection.status < 400:
            said = await _error_in(connection, SideAnswer(kind))
            if said is not None:
                self._sender.release(call, connection)
                raise answer_failed(connection, said)
            answer = SideAnswer(kind) if kind.startswith(EVENTS) else None
        reader = answer if later is None else later
        if connection.complete:
            body = await connection.read()
            if reader is not None:
                reader.feed(body)
            client.begin(connection.status, headers, len(body))
            self._sender.release(call, connection)
            client.end(body)
            return self._judged(call, pool, instance, connection, answer)
        client.begin(connection.status, headers, None)
        client.on_writable(connection.resume)

        def read(piece: bytes) -> bool:
            if reader is not None:
                reader.feed(piece)
            return client.write(piece)

        try:
            last = await connection.pipe(client.write if reader is None else read)
        except UpstreamFailure as failure:
            self._note(call, pool, instance, failure)
            if kind.startswith(EVENTS):
                message = f"the answer ended early, {instance} was lost: {failure.shown('it')}"
                client.end(error_event(call.dialect, "rejected-upstream-failed", message, mid_event=True))
            else:
                client.abort()
            return failure
        if reader is not None:
            reader.feed(last)
        self._sender.release(call, connection)
        client.end(last)
        return self._judged(call, pool, instance, connection, answer)

    def _judged(
        self, call: Call, pool: Pool, instance: str, connection: UpstreamConnection, answer: SideAnswer | None
    ) -> UpstreamFailure | None:
        """Return the failure that the engine reported in the middle of an answer, which the client has received; None
        if there is none.
        """
        said = None if answer is None else answer.failure
        if said is None:
            return None
        failure = answer_failed(connection, said)
        self._note(call, pool, instance, failure)
        return failure

    def _note(self, call: Call, pool: Pool, instance: str, failure: UpstreamFailure) -> None:
        call.drop_connection()
        pool.counters.upstream_errors[failure.kind] += 1
        pool.note_beyond_bounds(instance, failure, self._now())
        extra = {"pool": str(pool.key), "instance": instance, "request": call.id, "kind": failure.kind, "error": str(failure)}
        logger.warning("engine failed a direct request", extra=extra)

    async def find_holder(self, pools: Sequence[Pool], path: bytes, headers: list[tuple[bytes, bytes]]) -> tuple[Pool, str] | None:
        """Return the pool and the instance that respond with 200 to this GET with the client's headers; None if no
        instance does. A few instances are asked at a time.

        This finds stored responses that passed through another router, or through this router before its restart.
        """
        homes = [(pool, instance, address) for pool in pools for instance, address in pool.addresses.items()]
        for start in range(0, len(homes), PROBES_AT_ONCE):
            group = homes[start : start + PROBES_AT_ONCE]
            answers = await asyncio.gather(*(self._holds(pool, home, path, headers) for pool, *home in group))
            for (pool, instance, _), holds in zip(group, answers, strict=True):
                if holds:
                    return pool, instance
        return None

    async def _holds(self, pool: Pool, home: Sequence[str], path: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        instance, address = home
        forwarded, _ = forwarded_headers(headers, pool.session_header, credentials=pool.passes_credentials(instance))
        try:
            await self._upstream.fetch(address, path.decode("latin-1"), seconds=PROBE_SECONDS, headers=forwarded)
        except UpstreamFailure:
            return False
        return True


def _answer_headers(pool: Pool, instance: str, connection: UpstreamConnection) -> bytes:
    lines = passed_headers(connection)
    lines.append(b"x-fairlead-pool: %s\r\nx-fairlead-instance: %s\r\n" % (pool.header, instance.encode()))
    return b"".join(lines)


async def _error_in(connection: UpstreamConnection, beginning: SideAnswer) -> Failure | None:
    """Return the failure that an answer reports instead of its content; None if there is no failure. The bytes that
    were read can be read again. Raises UpstreamFailure.
    """
    pieces: list[bytes] = []
    while beginning.is_open and (piece := await connection.read()):
        pieces.append(piece)
        beginning.feed(piece)
        if connection.complete:
            break
    connection.unread(b"".join(pieces))
    return beginning.failure


def _framed(piece: bytes, chunked: bool) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece) if chunked and piece else piece
