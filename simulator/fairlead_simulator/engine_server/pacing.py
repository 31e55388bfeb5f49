"""Couples a served engine to a clock: advances the engine, wakes the requests whose responses can continue, and sleeps
in between.
"""

import asyncio
import time
from collections.abc import Callable

from fairlead_simulator.engine_model.requests import Phase
from fairlead_simulator.engine_server.engine import ServedEngine
from fairlead_simulator.engine_server.requests import Generation

_LATE_SECONDS = 0.0005
"""Seconds by which timers are set too late on purpose. uvloop rounds to milliseconds, and a timer that fires too early
would have to be set again.
"""


class Turn:
    """A request's handle on its generation. At most one task at a time may wait on it."""

    __slots__ = ("_pacer", "_waiter", "generation", "gone", "streaming")

    def __init__(self, pacer: "EnginePacer", generation: Generation, streaming: bool) -> None:
        self._pacer = pacer
        self._waiter: asyncio.Future[None] | None = None
        self.generation = generation
        self.streaming = streaming
        self.gone = False
        """Whether the generation was given up, for example because the client disconnected."""

    @property
    def ended(self) -> bool:
        return self.gone or self.generation.phase is Phase.FINISHED

    def tokens(self) -> int:
        """Return the number of answer tokens produced so far."""
        return self._pacer.engine.instance.generated(self.generation)

    async def progress(self, seen_tokens: int) -> None:
        """Wait until the answer has more than `seen_tokens` tokens, or the generation has ended."""
        while not self.ended and self.tokens() <= seen_tokens:
            await self._wait()

    async def end(self) -> None:
        """Wait until the generation has ended."""
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
    """A pacer that runs `engine` at `time_scale` times the speed of `clock`. Engine time 0 is when the pacer is
    created.

    A request is woken when its prefill or its answer ends, within the timer's millisecond. Streaming requests that
    decode are woken together, every `stream_interval_seconds`. `moved` is called whenever the model has been advanced.
    """

    def __init__(
        self,
        engine: ServedEngine,
        time_scale: float,
        stream_interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.engine = engine
        self._moved = moved
        self._time_scale = time_scale
        self._interval = stream_interval_seconds
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._started_at = clock()
        self._tickets: dict[Generation, Turn] = {}
        self._streaming: dict[Turn, None] = {}
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        """Time at which `_timer` fires, in seconds of the event loop. It is stored here because uvloop's timer handle
        does not report it when the time is near.
        """
        self._next_tick = 0.0
        self._idle = asyncio.Event()

    def now(self) -> float:
        """Return the present engine time in seconds."""
        return max(self.engine.now, (self._clock() - self._started_at) * self._time_scale)

    def submit(self, generation: Generation, streaming: bool) -> Turn:
        """Queue a generation, and return the handle on it. Raises the errors of ServedEngine.submit."""
        try:
            self.engine.submit(generation, self.now())
        finally:
            self._deliver()
        ticket = Turn(self, generation, streaming)
        self._tickets[generation] = ticket
        self._arm()
        return ticket

    def abort(self, generation: Generation) -> None:
        """Abort a generation. Does nothing if the generation has already ended."""
        ticket = self._tickets.pop(generation, None)
        if ticket is not None:
            self._streaming.pop(ticket, None)
        self.engine.abort(generation, self.now())
        self._deliver()
        self._arm()

    def release(self, generation: Generation) -> None:
        """Free the KV blocks that the engine keeps for another engine after the generation has ended."""
        self.engine.release(generation, self.now())
        self._deliver()
        self._arm()

    def adopt(self, prompt: bytes, tokens: int) -> int:
        """Cache the whole blocks of a prompt's first `tokens` tokens, which arrived from another engine. Return the
        number of tokens that were not cached before.
        """
        fetched = self.engine.adopt(prompt, tokens, self.now())
        self._deliver()
        self._arm()
        return fetched

    def pause(self) -> None:
        """Hold all generations that are submitted from now on, until `resume` is called."""
        self.engine.pause()

    def resume(self) -> None:
        """End the pause, and begin the generations that were held."""
        self.engine.resume(self.now())
        self._deliver()
        self._arm()

    def end_all(self) -> None:
        """End all generations at once. Their clients get the tokens produced so far, with the finish reason `abort`.
        The step in progress ends at once, too.
        """
        ended = {turn: turn.tokens() for turn in self._tickets.values()}
        for turn, tokens in ended.items():
            self.abort(turn.generation)
            turn.generation.generated, turn.generation.finish_reason, turn.generation.phase = tokens, "abort", Phase.FINISHED
        while (ends := self.engine.next_event_at()) is not None:
            self.engine.advance(ends)
        self._deliver()
        for turn in ended:
            turn.wake()

    async def until_idle(self) -> None:
        """Wait until every generation has ended."""
        self._idle.clear()
        if self._tickets:
            await self._idle.wait()

    def forget_cache(self) -> bool:
        """Drop all cached blocks, and return True. If a generation holds blocks, drop nothing and return False."""
        lost = self.engine.memory.forget()
        self._moved()
        return lost

    def wall_seconds(self, engine_seconds: float) -> float:
        """Return the seconds of `clock` in which `engine_seconds` of engine time pass."""
        return engine_seconds / self._time_scale

    def advance(self) -> None:
        """Advance the model to the present time. Callers do this before they read the model's state."""
        self.engine.advance(self.now())
        self._deliver()

    def _deliver(self) -> None:
        self._moved()
        progress = self.engine.take_progress()
        for generation in progress.first_tokens:
            ticket = self._tickets.get(generation)
            if ticket is not None and ticket.streaming:
                self._streaming[ticket] = None
                ticket.wake()
        for generation in progress.finished:
            ticket = self._tickets.pop(generation, None)
            if ticket is not None:
                self._streaming.pop(ticket, None)
                ticket.wake()
        if not self._tickets:
            self._idle.set()

    def _on_timer(self) -> None:
        self._timer = None
        self.advance()
        now = self._loop.time()
        if self._streaming and now >= self._next_tick and self.engine.instance.decoding:
            self._next_tick = now + self._interval
            for ticket in self._streaming:
                ticket.wake()
        self._arm()

    def _arm(self) -> None:
        event_at = self.engine.next_event_at()
        if event_at is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        now = self._loop.time()
        wall = self._started_at + event_at / self._time_scale
        delay = max(0.0, wall - self._clock()) + _LATE_SECONDS
        if self._streaming and self.engine.instance.decoding:
            delay = min(delay, max(0.001, self._next_tick - now))
        due = now + delay
        if self._timer is not None:
            if abs(self._due - due) < _LATE_SECONDS:
                return
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._on_timer)
