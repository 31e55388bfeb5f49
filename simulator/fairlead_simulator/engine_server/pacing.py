"""Couples an engine model to the wall clock: advances it, wakes the requests that have something to send, and sleeps otherwise."""

import asyncio
import time

from fairlead_simulator.engine_requests import EngineRequest, EventKind, Generation
from fairlead_simulator.engines import Engine


class Ticket:
    """A request's view of its generation. One task may wait at a time."""

    __slots__ = ("_pacer", "_waiter", "generation", "gone", "streaming")

    def __init__(self, pacer: "EnginePacer", generation: Generation, streaming: bool) -> None:
        self._pacer = pacer
        self._waiter: asyncio.Future[None] | None = None
        self.generation = generation
        self.streaming = streaming
        self.gone = False
        """The client went away or the request was given up."""

    @property
    def ended(self) -> bool:
        return self.gone or self.generation.ended

    def tokens(self) -> int:
        """Answer tokens produced so far."""
        return self._pacer.engine.generated(self.generation)

    async def progress(self, seen_tokens: int) -> None:
        """Return when there are more tokens than `seen_tokens` to show, or the request ended."""
        while not self.ended and self.tokens() <= seen_tokens:
            await self._wait()

    async def end(self) -> None:
        """Return when the request ended."""
        while not self.ended:
            await self._wait()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def give_up(self) -> None:
        """Abort the generation and wake the task that waits for it."""
        if not self.gone:
            self.gone = True
            self._pacer.abort(self.generation)
            self.wake()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class EnginePacer:
    """Drives `engine` at `time_scale` times the wall clock, from its creation on.

    Prefill ends and completions wake their request at once (to the timer's millisecond); requests that are decoding and stream are woken
    together, every `stream_interval_seconds`.
    """

    def __init__(self, engine: Engine, time_scale: float, stream_interval_seconds: float) -> None:
        self.engine = engine
        self._time_scale = time_scale
        self._interval = stream_interval_seconds
        self._loop = asyncio.get_running_loop()
        self._started_ns = time.monotonic_ns()
        self._tickets: dict[Generation, Ticket] = {}
        self._streaming: dict[Ticket, None] = {}
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        """When `_timer` fires. uvloop's own handles tell it only of timers that are some way off."""
        self._next_tick = 0.0

    def now_ns(self) -> int:
        """Engine time now."""
        return max(self.engine.now_ns, int((time.monotonic_ns() - self._started_ns) * self._time_scale))

    def submit(self, request: EngineRequest, streaming: bool) -> Ticket:
        """Queue a request. Raises what Engine.submit raises."""
        try:
            generation = self.engine.submit(request, self.now_ns())
        finally:
            self._deliver()
        ticket = Ticket(self, generation, streaming)
        self._tickets[generation] = ticket
        self._arm()
        return ticket

    def abort(self, generation: Generation) -> None:
        """Drop a generation, unless it has ended."""
        ticket = self._tickets.pop(generation, None)
        if ticket is not None:
            self._streaming.pop(ticket, None)
        self.engine.abort(generation, self.now_ns())
        self._deliver()
        self._arm()

    def advance(self) -> None:
        """Bring the model up to now (before its state is read)."""
        self.engine.advance(self.now_ns())
        self._deliver()

    def _deliver(self) -> None:
        for event in self.engine.take_events():
            ticket = self._tickets.get(event.generation)
            if ticket is None:
                continue
            if event.kind is EventKind.FINISHED:
                del self._tickets[event.generation]
                self._streaming.pop(ticket, None)
                ticket.wake()
            elif ticket.streaming:
                self._streaming[ticket] = None
                ticket.wake()

    def _on_timer(self) -> None:
        self._timer = None
        self.advance()
        now = self._loop.time()
        if self._streaming and now >= self._next_tick and self.engine.decoding:
            self._next_tick = now + self._interval
            for ticket in self._streaming:
                ticket.wake()
        self._arm()

    def _arm(self) -> None:
        event_ns = self.engine.next_event_ns()
        if event_ns is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        now = self._loop.time()
        wall_ns = self._started_ns + int(event_ns / self._time_scale)
        delay = max(0.0, (wall_ns - time.monotonic_ns()) * 1e-9) + 0.0005  # uvloop rounds timers to milliseconds
        if self._streaming and self.engine.decoding:
            delay = min(delay, max(0.001, self._next_tick - now))
        due = now + delay
        if self._timer is not None:
            if abs(self._due - due) < 0.0005:
                return
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._on_timer)
