"""The trainer as the router sees it: a process that may die or hang at any time, and is then restarted."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable

import msgspec

from fairlead_router.training.frames import LENGTH, Learnt, Lesson, framed

ROUND_SECONDS = 300.0
"""Seconds without a result after which a trainer counts as hanging and is killed."""

PAUSE_SECONDS = 5.0
"""Seconds from the loss of a trainer to the start of the next one."""

END_SECONDS = 5.0
"""Seconds for which the router waits for the end of a killed trainer."""

LARGEST_ANSWER = 256 * 1024 * 1024

COMMAND = (sys.executable, "-m", "fairlead_router.training.child")


class TrainerLost(Exception):
    """An exception: the trainer died, hangs, or cannot be started. Its lesson is lost too. The message is one line."""


class Trainer:
    """The process of the trainer. It is started when it is first needed, and takes one lesson at a time."""

    def __init__(self, now: Callable[[], float], command: tuple[str, ...] = COMMAND, *, round_seconds: float = ROUND_SECONDS) -> None:
        self._now = now
        self._command = command
        self._round_seconds = round_seconds
        self._process: Process | None = None
        self._not_before = 0.0

    @property
    def pid(self) -> int | None:
        """The id of the process; None while there is no process."""
        return None if self._process is None else self._process.pid

    @property
    def rests(self) -> bool:
        """Whether the trainer was lost a short time ago, so that it must not be started again yet."""
        return self._process is None and self._now() < self._not_before

    async def learn(self, lesson: Lesson) -> Learnt:
        """Send a lesson to the trainer, and return its result. Raises TrainerLost."""
        try:
            async with asyncio.timeout(self._round_seconds):
                return await self._exchange(lesson)
        except (OSError, EOFError, TimeoutError, msgspec.DecodeError) as error:
            await self.close()
            self._not_before = self._now() + PAUSE_SECONDS
            raise TrainerLost(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None

    async def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(TimeoutError):  # asyncio waits for its pipes too, forever if an answer stays unread
            async with asyncio.timeout(END_SECONDS):
                await process.wait()

    async def _exchange(self, lesson: Lesson) -> Learnt:
        process = self._process
        if process is None:
            process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
            self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdin.is_closing():  # uvloop raises RuntimeError for a write to the pipe of a process that ended
            raise EOFError("the trainer's process ended")
        process.stdin.write(framed(lesson))
        await process.stdin.drain()
        (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        if length > LARGEST_ANSWER:
            raise msgspec.DecodeError(f"an answer of {length} bytes")
        return msgspec.msgpack.decode(await process.stdout.readexactly(length), type=Learnt)
