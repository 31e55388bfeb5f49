"""Calls, each of which is one client request on its way through the router, and their time limits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import rank_of
from fairlead_router.engines.silences import Silences
from fairlead_router.engines.upstream_connections import UpstreamConnection, UpstreamFailure
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers_so_far import AnswerSoFar, answer_so_far
from fairlead_router.protocols.continuations import Rest
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.prompts import Document
from fairlead_router.settings import Timeouts

STALLED_CLIENT_SECONDS = 5.0
"""Seconds after a call's total time for which a slow client can still read the end of its response. After that its
connection is dropped.
"""
JUST_SENT_SECONDS = 1.0
"""If a reused connection closes within this many seconds after a request was sent on it, the engine is assumed to have
closed it before the request arrived.
"""


class Client(Protocol):
    """The connection of a client, which the server passes as the ASGI extension `fairlead.client`. Callbacks can write
    responses to it.
    """

    def begin(self, status: int, headers: bytes, length: int | None) -> None:
        """Send the status and the header lines. `length`: the body's bytes; None = the body is chunked."""

    def write(self, piece: bytes) -> bool:
        """Send a piece of the body. Return False if the caller must wait until the callback that it gave to
        `on_writable` is called.
        """

    def end(self, piece: bytes) -> None: ...

    def keeps(self, size: int) -> bool:
        """Count `size` bytes of the client's response that are buffered in the router. Return False if no further bytes
        may be buffered.
        """

    def accompany(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Add headers, from an engine or the router, to the client's response."""

    def abort(self) -> None:
        """Drop the connection, so that the client does not take the part that was sent for a complete response."""

    def on_writable(self, resume: Callable[[], None]) -> None: ...


class Change(NamedTuple):
    """A change in a request's body: at the byte `at`, the bytes `given` were replaced by the bytes `asked`."""

    at: int
    given: bytes
    asked: bytes

    def undone(self, body: bytes) -> bytes:
        """Return the body without the change. Later changes behind it are kept."""
        return b"".join((body[: self.at], self.given, memoryview(body)[self.at + len(self.asked) :]))


class Leg(NamedTuple):
    """The request for a call that one of two instances gets: `head` without `host` and the final empty line, and
    `body`.
    """

    head: bytes
    body: bytes


class CarriedAnswer:
    """An answer in progress that another instance shall continue.

    `head`, `body`: the client's original request. `handed_over`: the number of times that a draining instance handed
    the answer over. `rest`: the request for the current rest, made when the next instance is known; None before.
    """

    __slots__ = ("body", "ending", "handed_over", "head", "length", "rest")

    def __init__(self, head: bytes, length: int, body: bytes) -> None:
        self.head = head
        self.length = length
        """Number of bytes of the body according to the head."""
        self.body = body
        self.handed_over = 0
        self.rest: Rest | None = None
        self.ending = b""
        """The bytes with which the client's stream ends if no other instance can continue the answer."""


class Call:
    """One client request: the bytes for the engine (`head` without `host` and the final empty line, and then `body`),
    and its state.
    """

    __slots__ = (
        "_kept", "arrived_at", "asks_usage", "awaited_since", "body", "connection", "deadline", "dialect", "document", "generates",
        "give_up", "gone", "head", "hides_usage", "id", "losses", "model", "quiet_since", "received", "rest", "sent", "stays_until", "stream", "task",
        "ticket", "tokens",
    )  # fmt: skip

    def __init__(
        self, call_id: str, arrived_at: float, head: bytes, body: bytes, *, stream: bool, dialect: Dialect, deadline: float
    ) -> None:
        self.id = call_id
        self.arrived_at = arrived_at
        self.head = head
        self.body = body
        self.document: Document | None = None
        """The decoded body, if a prefill and a decode instance may compute the call together; otherwise None."""
        self.asks_usage: Change | None = None
        """The change in `body` that requests usage from the engine, because the client does not request it; None if
        there is no such change.
        """
        self.hides_usage = False
        """Whether the client must not get the engine's usage, because only the router requested it."""
        self.sent: list[bytes] | None = None
        """The pieces of the stream that the client has received and that `kept` has not parsed yet. None if no other
        engine may continue the answer.
        """
        self._kept: AnswerSoFar | None = None
        self.rest: CarriedAnswer | None = None
        """The broken-off answer that another engine shall continue; None if there is none."""
        self.generates = False
        """Whether the answer continues the prompt, so that later prompts may begin with both. False for an embedding or
        a score.
        """
        self.model = ""
        """The name of the call's model or adapter at the engines; "" for a call without a model."""
        self.stream = stream
        self.dialect = dialect
        self.deadline = deadline
        self.awaited_since = 0.0
        """The time, by the clock of `Silences`, at which the call was sent to the engine that shall answer it. 0 = the
        call does not wait for the beginning of an answer.
        """
        self.quiet_since = 0.0
        """The time, by the clock of `Silences`, at which the last piece of the answer arrived. 0 = the answer has not
        begun.
        """
        self.stays_until = 0.0
        """The Unix time before which the router does not check again whether another instance can continue the answer
        of a draining instance.
        """
        self.losses = 0
        """Number of engines that were lost while they had the call, or that failed in the middle of its answer."""
        self.received = 0
        self.tokens = 0
        """Number of tokens of the answer at the last `sweep`."""
        self.connection: UpstreamConnection | None = None
        self.give_up: Callable[[float], None] | None = None
        """A function that ends the call's wait for a dispatch, so that the call is refused. None while it does not
        wait.
        """
        self.gone = False
        self.task: asyncio.Task[None] | None = None
        self.ticket: Ticket | None = None
        """The account of a routed call; None for a call that bypasses the scheduler, and before the call is submitted.
        """

    @property
    def kept(self) -> AnswerSoFar | None:
        """The part of the stream that the client has received; None if no other engine may continue the answer. It is
        made at the first access, because few answers need it.
        """
        if self._kept is None and self.sent is not None:
            self._kept = answer_so_far(self.dialect, self.sent)
        return self._kept

    def client_gone(self) -> None:
        """Cancel the task of this call, because the client has closed its connection."""
        self.gone = True
        if self.task is not None:
            self.task.cancel()

    def drop_connection(self) -> None:
        """Drop the connection to the engine. Bytes that still arrive on it are ignored."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort()


class Calls:
    """All calls of this router that are in progress.

    `now`: the router's clock in Unix seconds, for the calls' time limits. `prefix`: the beginning of request ids.
    `moved`: is called with the addresses of engines that have generated tokens. `silences`: the silences of engines,
    and the clock that measures them.
    """

    def __init__(
        self,
        timeouts: Timeouts,
        silences: Silences,
        now: Callable[[], float],
        prefix: str,
        moved: Callable[[Collection[str]], None] = lambda addresses: None,
    ) -> None:
        self._timeouts = timeouts
        self._silences = silences
        self._moved = moved
        self._now = now
        self._prefix = prefix
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._calls: set[Call] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def next_id(self) -> str:
        """Return a request id that no other request of any router has."""
        return f"{self._prefix}-{next(self._numbers):x}"

    def new(self, call_id: str, arrived_at: float, head: bytes, body: bytes, *, stream: bool, dialect: Dialect) -> Call:
        """Make a call. Its total time counts from its arrival."""
        call = Call(call_id, arrived_at, head, body, stream=stream, dialect=dialect, deadline=arrived_at + self._timeouts.total)
        call.task = asyncio.current_task(self._loop)
        return call

    def seconds_left(self, call: Call) -> float:
        """Return the seconds that are left of the call's total time; 0 if it is over."""
        return max(0.0, call.deadline - self._now())

    def enter(self, call: Call) -> None:
        """Add a call that has begun."""
        if not self._calls:
            self._idle.clear()
        self._calls.add(call)

    def leave(self, call: Call) -> None:
        """Remove a call that has ended, and drop its connection to an engine if it still has one. If its client
        disconnects later, this has no effect on the call.
        """
        self._calls.discard(call)
        call.task = None
        if not self._calls:
            self._idle.set()
        if call.connection is not None:
            call.drop_connection()

    def await_answer(self, call: Call, connection: UpstreamConnection) -> None:
        """Record that the request is sent on this connection, and that its answer is awaited now."""
        call.connection = connection
        call.quiet_since = 0.0
        call.awaited_since = self._silences.awake()
        if call.ticket is not None:
            call.ticket.given = True

    def just_sent(self, call: Call) -> bool:
        """Return whether the request was sent so recently that the engine has probably not begun to compute it."""
        return self._silences.awake() - call.awaited_since < JUST_SENT_SECONDS

    def began(self, call: Call) -> None:
        """Record that the answer has begun. From now on the time between its pieces is limited."""
        call.awaited_since = 0.0
        call.quiet_since = self._silences.awake()
        if call.connection is not None:
            self._silences.heard(call.connection.address)

    def sweep(self) -> None:
        """End calls that exceed their first-byte, idle or total time, and calls at an engine that hangs. Runs a few
        times a second.

        An answer that is not streamed begins when it is computed completely, so its first byte may take the total time.
        Even such a call stops waiting for an engine that does not respond at all or makes no progress.
        """
        now, awake = self._now(), self._silences.awake()
        longest_ago = awake - self._timeouts.first_byte
        moved: set[str] = set()
        for call in tuple(self._calls):
            connection = call.connection
            if connection is not None and call.stream and 0 < call.awaited_since <= longest_ago:
                connection.abort(UpstreamFailure("timeout", f"sent nothing for {self._timeouts.first_byte:g} s", at=connection.address))
            elif connection is not None and call.awaited_since and self._silences.is_silent(connection.address, self._timeouts.first_byte):
                silent = awake - self._silences.since(connection.address)
                words = f"has sent nothing for {silent:.0f} s, not even its metrics"
                connection.abort(UpstreamFailure("timeout", words, at=connection.address))
            elif connection is not None and self._silences.stalls and self._hangs(call, connection):
                words = self._silences.stalls[connection.address].words
                connection.abort(UpstreamFailure("stalled", f"makes no progress: {words}", at=connection.address))
            elif call.deadline <= now:
                if connection is not None:
                    connection.abort(self._out_of_time(connection))
                elif call.give_up is not None:
                    call.give_up(now)
                if call.deadline + STALLED_CLIENT_SECONDS <= now:
                    call.client_gone()  # it does not even read the error
            elif connection is not None and call.quiet_since > 0:
                self._limit_silence(call, connection, awake, moved)
        if moved:
            self._moved(moved)

    def _out_of_time(self, connection: UpstreamConnection) -> UpstreamFailure:
        words = f"had not completed its answer when the request exceeded its total time of {self._timeouts.total:g} s"
        return UpstreamFailure("deadline", words, at=connection.address)

    def _hangs(self, call: Call, connection: UpstreamConnection) -> bool:
        """Return whether the call must stop waiting, because its engine is stalled. If a part of the answer has
        arrived, it must stop if no further piece arrives. Otherwise it must stop if another engine can answer.
        """
        stall = self._silences.stalls.get(connection.address)
        if stall is None or not stall.concerns(_rank(call, connection.address)):
            return False
        ticket = call.ticket
        has_part = call.quiet_since > 0 and (ticket is None or ticket.saw_first_token or ticket.passed_on)
        if has_part:
            return connection.received == call.received and not connection.is_held
        return stall.avoidable

    def _limit_silence(self, call: Call, connection: UpstreamConnection, now: float, moved: set[str]) -> None:
        """End an answer whose next piece takes too long. The answer may go on if the engine reports running requests,
        because the engine may delay pieces, for example until a tool's arguments can be parsed. The engine's progress
        then shows whether it hangs.
        """
        if connection.received != call.received or connection.is_held:
            call.received = connection.received
            call.quiet_since = now
            self._silences.heard(connection.address)
            stream = None if call.ticket is None else call.ticket.stream
            if stream is not None and stream.generated_tokens != call.tokens:
                call.tokens = stream.generated_tokens
                moved.add(connection.address)
        elif now - call.quiet_since >= self._timeouts.idle and not self._silences.works(connection.address):
            words = f"sent nothing for {self._timeouts.idle:g} s in the middle of its answer"
            connection.abort(UpstreamFailure("stalled", words, at=connection.address))

    def under_way(self) -> tuple[Call, ...]:
        """Return all calls in progress."""
        return tuple(self._calls)

    def active(self) -> int:
        """Return the number of calls in progress."""
        return len(self._calls)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until all calls have ended, for at most `seconds`. Return whether they have ended."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


def _rank(call: Call, address: str) -> int | None:
    """Return the data-parallel rank that has the call, of the engine at this address. None if the call names no rank,
    or if the engine ignores the rank, as vLLM and SGLang do for `/v1/responses`.
    """
    dispatch = None if call.ticket is None else call.ticket.verdict
    if not isinstance(dispatch, Dispatch) or call.dialect is Dialect.RESPONSES:
        return None
    target = dispatch.instance if dispatch.address == address else dispatch.decode
    return None if target is None else rank_of(target)
