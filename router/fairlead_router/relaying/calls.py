"""Calls, each of which is one client request on its way through the router; all calls have the same time limits."""

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
"""Seconds after the total time within which a client may read the end; then its connection is dropped."""
JUST_SENT_SECONDS = 1.0
"""Seconds after sending on an idle connection within which it shows whether the engine had closed that connection."""


class Client(Protocol):
    """The client's connection, given by the server as the ASGI extension `fairlead.client`; answers are
    written to it from callbacks.
    """

    def begin(self, status: int, headers: bytes, length: int | None) -> None:
        """Send the status and header lines; without `length` the body is chunked."""

    def write(self, piece: bytes) -> bool:
        """Send a piece. False: pause until the callback of `on_writable` is called."""

    def end(self, piece: bytes) -> None: ...

    def keeps(self, size: int) -> bool:
        """Count bytes of the client's answer that wait in the router. False: no more bytes should wait."""

    def accompany(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Add headers, from an engine or the router, to the client's answer."""

    def abort(self) -> None:
        """Drop the connection, so that the client does not take the sent part for a whole answer."""

    def on_writable(self, resume: Callable[[], None]) -> None: ...


class Change(NamedTuple):
    """A change in a body: at byte `at`, the bytes `asked` have replaced `given`."""

    at: int
    given: bytes
    asked: bytes

    def undone(self, body: bytes) -> bytes:
        """Return the original body, also if something was added after the change."""
        return b"".join((body[: self.at], self.given, memoryview(body)[self.at + len(self.asked) :]))


class Leg(NamedTuple):
    """The part of a call for one of two instances: `head` without `host` and the closing empty line, and `body`."""

    head: bytes
    body: bytes


class CarriedAnswer:
    """An answer in progress that another instance is to continue: the client's request as it was made, the number of
    times that draining engines handed it over, and the request for the current rest, which is made once the next
    instance is known.
    """

    __slots__ = ("body", "ending", "handed_over", "head", "length", "rest")

    def __init__(self, head: bytes, length: int, body: bytes) -> None:
        self.head = head
        self.length = length
        """The body's length as the head says it."""
        self.body = body
        self.handed_over = 0
        self.rest: Rest | None = None
        self.ending = b""
        """How the client's stream would have ended if no other instance had been asked to continue it."""


class Call:
    """One client request: the bytes for the engine (`head` without `host` and the closing empty line, then `body`) and
    what is known of it so far.
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
        """The decoded body, if a prefill and a decode instance may compute the call together."""
        self.asks_usage: Change | None = None
        """The change in `body` that asks the engine for usage, if the client did not ask; None without a change."""
        self.hides_usage = False
        """Whether the engine was asked for usage that the client did not ask for, so that it must not reach
        the client.
        """
        self.sent: list[bytes] | None = None
        """The pieces of its stream that the client has received since `kept` read them, if another engine may continue
        the answer.
        """
        self._kept: AnswerSoFar | None = None
        self.rest: CarriedAnswer | None = None
        """The answer in progress for whose rest another engine is asked; None if there is none."""
        self.generates = False
        """Whether the answer continues its prompt, so that a later prompt may too; False for an embedding or
        a score.
        """
        self.model = ""
        """The name by which engines know the call's model or adapter; "" for a call without one."""
        self.stream = stream
        self.dialect = dialect
        self.deadline = deadline
        self.awaited_since = 0.0
        """The time when the call was sent to the engine whose answer it awaits, by the clock of `Silences`; 0 = it
        awaits no answer.
        """
        self.quiet_since = 0.0
        """The time of the last piece of an answer that has begun, by the clock of `Silences`; 0 = the answer has not
        begun.
        """
        self.stays_until = 0.0
        """Unix time until which the router does not check again whether a draining engine can hand the answer over."""
        self.losses = 0
        """Number of engines that were lost while they had the call, or failed in the middle of its answer."""
        self.received = 0
        self.tokens = 0
        """The number of the answer's tokens at the last sweep."""
        self.connection: UpstreamConnection | None = None
        self.give_up: Callable[[float], None] | None = None
        """Ends the wait for an instance, so that the call is refused; None while the call does not wait for an
        instance.
        """
        self.gone = False
        self.task: asyncio.Task[None] | None = None
        self.ticket: Ticket | None = None
        """The account of a routed call."""

    @property
    def kept(self) -> AnswerSoFar | None:
        """The part of its stream that the client has received, if another engine may continue the answer. Few answers
        need it, so it is made at the first access.
        """
        if self._kept is None and self.sent is not None:
            self._kept = answer_so_far(self.dialect, self.sent)
        return self._kept

    def client_gone(self) -> None:
        """Stop all waiting for the client, because it closed its connection."""
        self.gone = True
        if self.task is not None:
            self.task.cancel()

    def drop_connection(self) -> None:
        """Drop the connection to the engine; whatever still arrives on it is ignored."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort()


class Calls:
    """All calls of this router. `now` is the router's clock in Unix seconds; request ids begin with `prefix`. `moved`
    is called with the addresses of engines that produced tokens.

    Calls' time limits use `now`, the silence of an engine the clock of `silences`.
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
        """Make a call whose total time runs from its arrival."""
        call = Call(call_id, arrived_at, head, body, stream=stream, dialect=dialect, deadline=arrived_at + self._timeouts.total)
        call.task = asyncio.current_task(self._loop)
        return call

    def seconds_left(self, call: Call) -> float:
        """Return the rest of the call's total time in seconds; 0 when it is over."""
        return max(0.0, call.deadline - self._now())

    def enter(self, call: Call) -> None:
        """Add a call that has begun."""
        if not self._calls:
            self._idle.clear()
        self._calls.add(call)

    def leave(self, call: Call) -> None:
        """Remove a call that has ended, and drop its connection, if it still has one. A client that leaves after this
        interrupts nothing.
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
        """Return whether the request was sent so recently that its engine can hardly have begun to compute."""
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

        An answer that is not streamed begins when all of it is computed, so its first byte may take the total time. But
        a call stops waiting for an engine that answers nothing at all, or that makes no progress.
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
        """Return whether the call's engine is stalled and the call should stop waiting: the engine has begun the answer
        and sends nothing more, or it has not begun and another engine can answer.
        """
        stall = self._silences.stalls.get(connection.address)
        if stall is None or not stall.concerns(_rank(call, connection.address)):
            return False
        ticket = call.ticket
        has_part = call.quiet_since > 0 and (ticket is None or ticket.saw_first_token or ticket.passed_on)
        if has_part:
            return connection.received == call.received and not connection.paused
        return stall.avoidable

    def _limit_silence(self, call: Call, connection: UpstreamConnection, now: float, moved: set[str]) -> None:
        """End an answer that is silent for too long. An engine that reports that it computes may hold pieces back, for
        instance a tool's arguments until they can be parsed; its progress shows whether it does compute.
        """
        if connection.received != call.received or connection.paused:
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
        """Return all calls."""
        return tuple(self._calls)

    def active(self) -> int:
        """Return the number of unfinished calls."""
        return len(self._calls)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no call is in progress, at most `seconds`; return whether all calls have ended."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


def _rank(call: Call, address: str) -> int | None:
    """Return the data-parallel rank at this address that has the call. None if the call names no rank, or where engines
    ignore the named rank, as vLLM and SGLang do for `/v1/responses`.
    """
    dispatch = None if call.ticket is None else call.ticket.verdict
    if not isinstance(dispatch, Dispatch) or call.dialect is Dialect.RESPONSES:
        return None
    target = dispatch.instance if dispatch.address == address else dispatch.decode
    return None if target is None else rank_of(target)
