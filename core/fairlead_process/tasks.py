"""Background tasks of a process: activities that run forever, and work that repeats every few seconds.

A failure in one task does not end the process or other tasks: the failure is logged with its traceback, and the task
starts again. Stopping waits until all tasks have ended.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

RESTART_SECONDS = 1.0
"""Pause in seconds after a failure, so that a permanent fault does not fill the disk with tracebacks."""

LEAST_PAUSE_SECONDS = 0.005
"""Minimum pause, in seconds, between two runs of work that takes longer than its interval. Other tasks run in this
pause.
"""

LONG_BYTES = 256 * 1024
"""Size in bytes above which a document is read outside the event loop. Pure Python takes about 10 ms for a document of
this size.
"""

Taken = ParamSpec("Taken")
Made = TypeVar("Made")

logger = logging.getLogger(__name__)


class Tasks:
    """The background tasks of one process, by name. Use as an async context manager, or call `stop`."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, activity: Callable[[], Awaitable[None]]) -> None:
        """Run `activity`, which normally continues until it is cancelled.

        If it fails, it is started again; if it returns, it is finished.
        """
        self._tasks[name] = asyncio.create_task(_kept_going(name, activity), name=name)

    def every(self, seconds: float, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` at once and then every `seconds`, counted from one start to the next.

        Runs never overlap. If a run takes longer than the interval, the starts that it missed are skipped.
        """
        self._tasks[name] = asyncio.create_task(_repeated(seconds, name, work), name=name)

    async def stop(self, *names: str) -> None:
        """Cancel the tasks of these names, or all tasks, and wait until they have ended."""
        ending = [self._tasks.pop(name) for name in names or tuple(self._tasks) if name in self._tasks]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def __aenter__(self) -> "Tasks":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()


async def beside_the_loop(size: int, read: Callable[Taken, Made], *taken: Taken.args, **named: Taken.kwargs) -> Made:
    """Return the result of `read` for a document of `size` bytes that another party sent. A long document is read in a
    thread while the event loop continues; meanwhile the document must not change.
    """
    if size <= LONG_BYTES:
        return read(*taken, **named)
    return await asyncio.to_thread(read, *taken, **named)


async def _kept_going(name: str, activity: Callable[[], Awaitable[None]]) -> None:
    while True:
        if await _succeeds(name, activity):
            return
        await asyncio.sleep(RESTART_SECONDS)


async def _repeated(seconds: float, name: str, work: Callable[[], Awaitable[None]]) -> None:
    now = asyncio.get_running_loop().time
    while True:
        began = now()
        succeeded = await _succeeds(name, work)
        pause = began + seconds - now()
        await asyncio.sleep(max(pause, LEAST_PAUSE_SECONDS if succeeded else RESTART_SECONDS))


async def _succeeds(name: str, work: Callable[[], Awaitable[None]]) -> bool:
    try:
        await work()
    except Exception:
        logger.exception("background task failed, it is started again", extra={"task": name})
        return False
    return True
