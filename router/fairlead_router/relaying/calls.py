"""Calls: each is one client request on its way through the router. Also the time limits of calls."""

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
"""Seconds after the end of a call's total time within which a slow client can read the end of its response; then its
connection is dropped.
"""
JUST_SENT_SECONDS = 1.0
"""If an idle connection closes within this many seconds after a request was sent on it, the engine is assumed to have
closed the connection before it received the request.
"""


class Client(Protocol):
    """The connection of a client, from the server's ASGI extension `fairlead.client`. Responses are written to it from
    callbacks.
    """

    def begin(self, status: int, headers: bytes, length: int | None) -> None:
        """Send the status and header lines. A `length` of None means that the body is chunked."""

    def write(self, piece: bytes) -> bool:
        """Send a piece of the body. Return False if the caller must wait until the callback of `on_writable` is
        called.
        """

    def end(self, piece: bytes) -> None: ...

    def keeps(self, size: int) -> bool:
        """Count bytes of the client's response that are buffered in the router. Return False if no more bytes may be
        buffered.
        """

    def accompany(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Add headers, from an engine or the router, to the client's response."""

    def abort(self) -> None:
        """Drop the connection, so that the client does not take the sent part for a complete response."""

    def on_writable(self, resume: Callable[[], None]) -> None: ...


class Change(NamedTuple):
    """A change in a request's body: at byte `at`, the bytes `given` were replaced by the bytes `asked`."""

    at: int
    given: bytes
    asked: bytes

    def undone(self, body: bytes) -> bytes:
        """Return the body without the change, also if something was appended later."""
        return b"".join((body[: self.at], self.given, memoryview(body)[self.at + len(self.asked) :]))


class Leg(NamedTuple):
    """The request that one of two instances gets for a call: `head` without `host` and the final empty line, and
    `body`.
    """

    head: bytes
    body: bytes


class CarriedAnswer:
    """An answer in progress that another instance is to continue: the client's original request, the number of times
    that draining engines handed the answer over, and the request for the current rest, which is made once the next
    instance is known.
    """

    __slots__ = ("body", "ending", "handed_over", "head", "length", "rest")

    def __init__(self, head: bytes, length: int, body: bytes) -> None:
        self.head = head
        self.length = length
        """The body's length in bytes, as the head says it."""
        self.body = body
        self.handed_over = 0
        self.rest: Rest | None = None
        self.ending = b""
        """The bytes that would have ended the client's stream if no other instance could continue it."""


class Call:
    """One client request: the bytes for the engine (`head` without `host` and the final empty line, then `body`), and
    its state.
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
        """The change in `body` that requests usage from the engine, if the client did not request it; None if nothing
        was changed.
        """
        self.hides_usage = False
        """Whether the client must not get the engine's usage, because only the router requested it."""
        self.sent: list[bytes] | None = None
        """The pieces of the stream that the client has received since they were last parsed by `kept`; None if no other
        engine may continue the answer.
        """
        self._kept: AnswerSoFar | None = None
        self.rest: CarriedAnswer | None = None
        """The answer in progress that another engine is asked to continue; None if there is none."""
        self.generates = False
        """Whether the answer is a continuation of the prompt, so that later prompts may begin with both; False for an
        embedding or a score.
        """
        self.model = ""
        """The engines' name for the call's model or adapter; "" for a call without a model."""
        self.stream = stream
        self.dialect = dialect
        self.deadline = deadline
        self.awaited_since = 0.0
        """Time, by the clock of `Silences`, at which the call was sent to the engine from which it awaits an answer; 0
        = it awaits no answer.
        """
        self.quiet_since = 0.0
        """The time, by the clock of `Silences`, of the last piece of an answer that has begun; 0 = the answer has not
        begun.
        """
        self.stays_until = 0.0
        """The Unix time until which the router does not check again whether another instance can continue the answer of
        a draining engine.
        """
        self.losses = 0
        """Number of engines that were lost while they had the call, or failed in the middle of its answer."""
        self.received = 0
        self.tokens = 0
        """The number of the answer's tokens at the last `sweep`."""
        self.connection: UpstreamConnection | None = None
        self.give_up: Callable[[float], None] | None = None
        """A function that ends the call's wait for an instance, so that the call is refused; None while it does not
        wait.
        """
        self.gone = False
        self.task: asyncio.Task[None] | None = None
        self.ticket: Ticket | None = None
        """The account of a routed call; None for a call that bypasses the scheduler."""

    @property
    def kept(self) -> AnswerSoFar | None:
        """The part of the stream that the client has received; None if no other engine may continue the answer. Few
        answers need it, so it is made at the first access.
        """
        if self._kept is None and self.sent is not None:
            self._kept = answer_so_far(self.dialect, self.sent)
        return self._kept

    def client_gone(self) -> None:
        """Stop everything that waits for this client, because it closed its connection."""
        self.gone = True
        if self.task is not None:
            self.task.cancel()

    def drop_connection(self) -> None:
        """Drop the connection to the engine; bytes that still arrive on it are ignored."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort()


class Calls:
    """All calls of this router.

    `now`: the router's clock in Unix seconds, for the calls' time limits.
    `prefix`: the beginning of request ids.
    `moved`: is called with the addresses of engines that generated tokens.
    `silences`: its clock measures the silence of engines.
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
        """Return an id that no other request of any router has."""
        return f"{self._prefix}-{next(self._numbers):x}"

    def new(self, call_id: str, arrived_at: float, head: bytes, body: bytes, *, stream: bool, dialect: Dialect) -> Call:
        """Make a call; its total time begins with its arrival."""
        call = Call(call_id, arrived_at, head, body, stream=stream, dialect=dialect, deadline=arrived_at + self._timeouts.total)
        call.task = asyncio.current_task(self._loop)
        return call

    def seconds_left(self, call: Call) -> float:
        """Return the remaining seconds of the call's total time; 0 if it is over."""
        return max(0.0, call.deadline - self._now())

    def enter(self, call: Call) -> None:
        """Add a call that has begun."""
        if not self._calls:
            self._idle.clear()
        self._calls.add(call)

    def leave(self, call: Call) -> None:
        """Remove a call that has ended, and drop its connection to an engine, if it still has one. A later
        disconnection of its client then has no effect.
        """
        self._calls.discard(call)
        call.task = None
        if not self._calls:
            self._idle.set()
        if call.connection is not None:
            call.drop_connection()

    def await_answer(self, call: Call, connection: UpstreamConnection) -> None:
        """Record that the request was sent on this connection."""
        call.connection = connection
        call.quiet_since = 0.0
        call.awaited_since = self._silences.awake()
        if call.ticket is not None:
            call.ticket.given = True

    def just_sent(self, call: Call) -> bool:
        """Return whether the request was sent so recently that its engine can hardly have begun to compute it."""
        return self._silences.awake() - call.awaited_since < JUST_SENT_SECONDS

    def began(self, call: Call) -> None:
        """Record that the answer has begun: from now on the time between its pieces is limited."""
        call.awaited_since = 0.0
        call.quiet_since = self._silences.awake()
        if call.connection is not None:
            self._silences.heard(call.connection.address)

    def sweep(self) -> None:
        """End calls that exceed their first-byte, idle or total time, and calls at an engine that hangs. Runs a few
        times a second.

        An answer that is not streamed begins after it has been computed completely, so its first byte may take the
        total time. Nevertheless, a call stops waiting for an engine that does not respond at all, or that makes no
        progress.
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
                words = f"has answered nothing for {silent:.0f} s, its metrics included"
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
        words = f"had not answered in full when the request took longer than {self._timeouts.total:g} s"
        return UpstreamFailure("deadline", words, at=connection.address)

    def _hangs(self, call: Call, connection: UpstreamConnection) -> bool:
        """Return whether the call must stop waiting because its engine is stalled: the answer has begun and no further
        piece arrives, or it has not begun and another engine can answer.
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
        """End an answer whose next piece takes too long. An engine that reports running requests may delay pieces, for
        instance until a tool's arguments can be parsed; then the engine's progress shows whether it computes.
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
        """Return the number of unfinished calls."""
        return len(self._calls)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until all calls have ended, at most `seconds`; return whether they have."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


def _rank(call: Call, address: str) -> int | None:
    """Return the data-parallel rank at this address that has the call. None if the call names no rank, or if the engine
    ignores it, as vLLM and SGLang do for `/v1/responses`.
    """
    dispatch = None if call.ticket is None else call.ticket.verdict
    if not isinstance(dispatch, Dispatch) or call.dialect is Dialect.RESPONSES:
        return None
    target = dispatch.instance if dispatch.address == address else dispatch.decode
    return None if target is None else rank_of(target)
