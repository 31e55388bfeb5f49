"""The open loop, which sends every row when it is due, even if earlier responses are slow."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from urllib.parse import quote

from fairlead_simulator.replay.outcomes import RequestOutcome, Tally
from fairlead_simulator.replay.prompts import BodyWriter, PromptWriter
from fairlead_simulator.replay.sending import Planned, Sender, given_up
from fairlead_simulator.traces.arrivals import arrival_times
from fairlead_simulator.traces.descriptions import IdealCache
from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.traces.sessions import Sessions


class NobodyListens(Exception):
    """Raised when no router accepted a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """Settings of a replay. `speed` is the factor by which rows are sent faster than their timestamps say."""

    speed: float = 1.0
    bursts: bool = False
    max_in_flight: int = 4096
    cancel_share: float = 0.0
    session_prefix: str = "trace"
    seed: int = 0


@dataclass(slots=True, kw_only=True)
class Replay:
    """The replay of some rows; `sessions` has the session of each row. `on_outcome`, if given, is called for every
    request that ends.
    """

    rows: Sequence[TraceRow]
    sessions: Sessions
    prompts: PromptWriter
    bodies: BodyWriter
    sender: Sender
    tally: Tally
    settings: ReplaySettings
    clock: Callable[[], float]
    ideal: IdealCache | None = None
    on_outcome: Callable[[RequestOutcome], None] | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """An event that ends the replay when it is set. No further requests are sent, and requests in flight are
    abandoned.
    """
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _refused: str = ""
    _number: int = 0
    _error: BaseException | None = None

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    async def run(self, repeat: bool, patient: bool = False) -> None:
        """Send all rows and wait for the responses. If `repeat`, send the rows again and again until `stop` is set.

        Raises NobodyListens if no router accepts a connection, unless `patient`.
        """
        rng = Random(self.settings.seed)
        repetition = 0
        while not self.stop.is_set():
            start = self.clock()
            timed = arrival_times(self.rows, self.settings.speed, self.settings.bursts)
            for (due, row), session in zip(timed, self.sessions.names, strict=True):
                if not await self._wait_until(start + due):
                    break
                self._send(row, session, repetition, due, max(0.0, self.clock() - start - due), rng, patient)
            if not repeat:
                break
            repetition += 1
        while self._tasks and not self.stop.is_set():
            self._room.clear()
            await self._first_of(self._room, self.stop)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._error is not None:
            raise self._error
        if self._refused:
            raise NobodyListens(self._refused)

    async def _wait_until(self, due: float) -> bool:
        """Wait until the time `due`, and until there are fewer requests in flight than allowed. Return False if the
        replay was stopped.
        """
        while not self.stop.is_set():
            if len(self._tasks) >= self.settings.max_in_flight:
                self._room.clear()
                await self._first_of(self._room, self.stop)
                continue
            wait = due - self.clock()
            if wait <= 0:
                if self._number % 16 == 0:
                    await asyncio.sleep(0)  # when behind, let answers in between
                return not self.stop.is_set()
            try:
                async with asyncio.timeout(wait):
                    await self.stop.wait()
            except TimeoutError:
                continue
        return False

    def _send(self, row: TraceRow, session: str, repetition: int, due: float, lag: float, rng: Random, patient: bool) -> None:
        settings = self.settings
        name = quote(session, safe="")  # a header has not every sign
        session = f"{settings.session_prefix}-{name}" + (f"-r{repetition}" if repetition else "")
        planned = Planned(
            index=self._number,
            session=session,
            due_seconds=due,
            lag_seconds=lag,
            body=self.bodies.body(self.prompts.prompt(row, repetition), max(1, row.output_length)),
            first_origin=self._number,
            cancel=settings.cancel_share > 0 and rng.random() < settings.cancel_share,
        )
        self._number += 1
        if self.ideal is not None:
            self.ideal.add(row)
        self.tally.send()
        task = asyncio.get_running_loop().create_task(self._follow(planned, patient))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, planned))

    async def _follow(self, planned: Planned, patient: bool) -> None:
        outcome = await self.sender.send(planned)
        if not self.sender.connected and not patient:
            self._refused = outcome.reason
            self.stop.set()
        self._account(outcome)

    def _account(self, outcome: RequestOutcome) -> None:
        self.tally.end(outcome)
        if self.on_outcome is not None and not self._refused:
            self.on_outcome(outcome)

    def _ended(self, planned: Planned, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.set()
        if task.cancelled():
            self._account(given_up(planned))
        elif (error := task.exception()) is not None:
            self._error = error
            self.stop.set()

    @staticmethod
    async def _first_of(one: asyncio.Event, other: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(one.wait()), asyncio.ensure_future(other.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
