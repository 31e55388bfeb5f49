"""A call is one client request on its way through the router; all calls have the same time limits."""

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
"""Seconds after the total time that a client has for reading the end; then its connection is dropped."""
JUST_SENT_SECONDS = 1.0
"""If an engine closed an idle connection, that shows within this time after something is sent on it."""


class Client(Protocol):
    """The client's connection, given by the server as the ASGI extension `fairlead.client`; answers are
    written to it from callbacks.
    """

    def begin(self, status: int, headers: bytes, length: int | None) -> None:
        """Status and header lines; without `length` the body is chunked."""

    def write(self, piece: bytes) -> bool:
        """Pass on a piece. False: pause until `on_writable` calls."""

    def end(self, piece: bytes) -> None: ...

    def keeps(self, size: int) -> bool:
        """Count bytes of its answer that wait here. False: no more should wait."""

    def accompany(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Headers that its answer gets, from an engine or the router."""

    def abort(self) -> None:
        """Drop the connection, so that the client does not take the sent part for a whole answer."""

    def on_writable(self, resume: Callable[[], None]) -> None: ...


class Change(NamedTuple):
    """A change in a body: at byte `at` the bytes `asked` replaced `given`."""

    at: int
    given: bytes
    asked: bytes

    def undone(self, body: bytes) -> bytes:
        """The original body, also when something was added behind the change."""
        return b"".join((body[: self.at], self.given, memoryview(body)[self.at + len(self.asked) :]))


class Leg(NamedTuple):
    """The part of a call for one of two instances: `head` without `host` and the closing empty line, and `body`."""

    head: bytes
    body: bytes


class CarriedAnswer:
    """An answer that had begun and goes on elsewhere: the call's request as its client made it, how often it was handed
    over by engines that drain, and the request for the present rest, which is made once it is known who is asked.
    """

    __slots__ = ("body", "ending", "handed_over", "head", "length", "rest")

    def __init__(self, head: bytes, length: int, body: bytes) -> None:
        self.head = head
        self.length = length
        """The length of a body that the head tells."""
        self.body = body
        self.handed_over = 0
        self.rest: Rest | None = None
        self.ending = b""
        """How its client's stream would have ended, had nobody been asked to go on."""


class Call:
    """One client request: the bytes for the engine (`head` without `host` and the closing empty line, then `body`) and
    what is known so far.
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
        """The body decoded, if a prefill and a decode instance may compute the call together."""
        self.asks_usage: Change | None = None
        """The change in `body` that asks the engine for usage, where the client did not."""
        self.hides_usage = False
        """Whether the engine was asked for it: its client must not get what it did not ask for."""
        self.sent: list[bytes] | None = None
        """The pieces that its client has had of its stream since `kept` read them, if another engine may go on with
        that.
        """
        self._kept: AnswerSoFar | None = None
        self.rest: CarriedAnswer | None = None
        """Its answer had begun, and another engine is asked for the rest."""
        self.generates = False
        """Whether its answer goes on with its prompt, as a later prompt then may: not so an embedding or a score."""
        self.model = ""
        """The name by which engines know the call's model or adapter; "" for a call without one."""
        self.stream = stream
        self.dialect = dialect
        self.deadline = deadline
        self.awaited_since = 0.0
        """When it was sent to the engine whose answer it awaits, by the clock of `Silences`; 0 = it awaits none."""
        self.quiet_since = 0.0
        """Time of the last piece of an answer that has begun, by the same clock; 0 = it has not begun."""
        self.stays_until = 0.0
        """Until when it is not looked at again whether an engine that drains can hand its answer over; Unix seconds."""
        self.losses = 0
        """How many engines were lost while they had it, or failed in the middle of its answer."""
        self.received = 0
        self.tokens = 0
        """The tokens of its answer at the last sweep."""
        self.connection: UpstreamConnection | None = None
        self.give_up: Callable[[float], None] | None = None
        """Ends the wait for an instance, so that the call is refused; None while it does not wait for one."""
        self.gone = False
        self.task: asyncio.Task[None] | None = None
        self.ticket: Ticket | None = None
        """The account of a routed call."""

    @property
    def kept(self) -> AnswerSoFar | None:
        """What its client has had of its stream, if another engine may go on with that. Few answers need it, so it is
        made when it is asked for.
        """
        if self._kept is None and self.sent is not None:
            self._kept = answer_so_far(self.dialect, self.sent)
        return self._kept

    def client_gone(self) -> None:
        """The client closed its connection: stop all waiting for it."""
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

    A client's time runs by `now`, the silence of an engine by the clock of `silences`.
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
        """An id no other request of any router has."""
        return f"{self._prefix}-{next(self._numbers):x}"

    def new(self, call_id: str, arrived_at: float, head: bytes, body: bytes, *, stream: bool, dialect: Dialect) -> Call:
        """A call whose total time runs from its arrival."""
        call = Call(call_id, arrived_at, head, body, stream=stream, dialect=dialect, deadline=arrived_at + self._timeouts.total)
        call.task = asyncio.current_task(self._loop)
        return call

    def seconds_left(self, call: Call) -> float:
        """The rest of its total time in seconds; 0 when that is over."""
        return max(0.0, call.deadline - self._now())

    def enter(self, call: Call) -> None:
        """The call has begun."""
        self._calls.add(call)
        self._idle.clear()

    def leave(self, call: Call) -> None:
        """The call ended: forget it and drop its connection, if it still has one. A client that leaves now interrupts
        nothing.
        """
        self._calls.discard(call)
        call.task = None
        if not self._calls:
            self._idle.set()
        call.drop_connection()

    def await_answer(self, call: Call, connection: UpstreamConnection) -> None:
        """The request is on its way on this connection."""
        call.connection = connection
        call.quiet_since = 0.0
        call.awaited_since = self._silences.awake()
        if call.ticket is not None:
            call.ticket.given = True

    def just_sent(self, call: Call) -> bool:
        """Whether the request was sent so recently that its engine can hardly have begun to compute."""
        return self._silences.awake() - call.awaited_since < JUST_SENT_SECONDS

    def began(self, call: Call) -> None:
        """The answer has begun: from now on the time between its pieces is limited."""
        call.awaited_since = 0.0
        call.quiet_since = self._silences.awake()
        if call.connection is not None:
            self._silences.heard(call.connection.address)

    def sweep(self) -> None:
        """Runs a few times a second: ends calls that exceed their first-byte, idle or total time, and calls at an
        engine that hangs.

        An answer that is not streamed begins when all of it is computed, so its first byte may take the total time. But
        a call stops waiting for an engine that is silent to everything, or that makes no progress.
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
        """Whether its engine is stalled and should not be waited for: it has begun the answer and sends nothing more,
        or has not begun and another engine can.
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
        """End an answer that is silent for too long. An engine that says it computes may hold pieces back, as it does
        with a tool's arguments until they can be parsed; its progress shows whether it does compute.
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
        """All calls."""
        return tuple(self._calls)

    def active(self) -> int:
        """Calls not finished yet."""
        return len(self._calls)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no call is in progress, at most `seconds`; returns whether that happened."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


def _rank(call: Call, address: str) -> int | None:
    """The data-parallel rank at this address that has the call. None if the call names no rank, or where engines
    ignore the named one, as vLLM and SGLang do for `/v1/responses`.
    """
    dispatch = None if call.ticket is None else call.ticket.verdict
    if not isinstance(dispatch, Dispatch) or call.dialect is Dialect.RESPONSES:
        return None
    target = dispatch.instance if dispatch.address == address else dispatch.decode
    return None if target is None else rank_of(target)
