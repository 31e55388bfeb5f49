"""Supervises one process: starts it, waits until it is ready, and restarts it when it ends, until `stop`."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from fairlead_sandbox.errors import SandboxError, StartFailed
from fairlead_sandbox.lifelines import die_with_parent
from fairlead_sandbox.log_streams import LineSplitter, ProcessLog
from fairlead_sandbox.processes import Asked, HttpAnswer, PrintedLine, ProcessSpec, Started
from fairlead_sandbox.settings import handed_on
from fairlead_sandbox.state_directory import ProcessNote
from processkube.backoff import Backoff
from processkube.identities import ProcessIdentity, cpu_seconds, identity_of, send_signal, until_end
from processkube.probing import ask_url

ASK_EVERY_SECONDS = 0.1
START_ATTEMPTS = 5
"""The start has failed if the process has ended this many times without ever becoming ready.

A process that was ready once is restarted without limit.
"""

RESTARTS = Backoff(first_seconds=0.25, longest_seconds=15.0, forgive_after_seconds=30.0)


@dataclass(slots=True)
class _Run:
    """One run of the process: its handle, and an event that is set when the process prints the line of its readiness
    check.
    """

    popen: subprocess.Popen[bytes]
    identity: ProcessIdentity
    pump: asyncio.Task[None]
    printed: asyncio.Event
    started_at: float


ENOUGH_CPU_SECONDS = 60.0
"""CPU seconds after which a process that is not ready is assumed to wait for something other than the CPU."""
STILL_SECONDS = 30.0
STILL_CPU_SECONDS = 0.1
"""A process that uses fewer CPU seconds than this within STILL_SECONDS counts as idle."""
LONGEST_LOOK_SECONDS = 5.0


class StartingTime:
    """The time within which a process must become ready. It is `least_seconds`, and longer on a busy machine as long as
    the process makes progress. All times are seconds of one clock.
    """

    def __init__(self, least_seconds: float) -> None:
        self._least = least_seconds
        self._began: float | None = None
        self._moved_at = 0.0
        self._cpu_then = 0.0

    def passed(self, now: float) -> float:
        """Return the seconds since the first call of `is_over`; 0 before."""
        return 0.0 if self._began is None else now - self._began

    def is_over(self, now: float, cpu_seconds: float) -> bool:
        """Return whether the time is over. `cpu_seconds` is the CPU time that the process has used so far; a new
        process begins at 0.
        """
        if self._began is None:
            self._began = self._moved_at = now
        if cpu_seconds < self._cpu_then or cpu_seconds - self._cpu_then >= STILL_CPU_SECONDS:
            self._moved_at, self._cpu_then = now, cpu_seconds
        has_time = now - self._began < self._least
        return not has_time and (cpu_seconds >= ENOUGH_CPU_SECONDS or now - self._moved_at >= min(STILL_SECONDS, self._least))

    def next_look(self, now: float) -> float:
        """Return the seconds until the next call of `is_over`."""
        return min(LONGEST_LOOK_SECONDS, max(0.05, self._least - self.passed(now)))


class SupervisedProcess:
    """Keeps the process of one ProcessSpec running.

    `note` has its current state; `ready` is set when it is ready for the first time and stays set.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        log: ProcessLog,
        environment: Mapping[str, str],
        changed: Callable[[], None],
        backoff: Backoff = RESTARTS,
    ) -> None:
        self.spec = spec
        self.log = log
        self.ready = asyncio.Event()
        self.note = ProcessNote(name=spec.name, probe=spec.readiness.url if isinstance(spec.readiness, HttpAnswer) else None)
        self._environment = handed_on(environment, spec.reads)
        self._changed = changed
        self._backoff = backoff
        self._stopping = asyncio.Event()
        self._run: _Run | None = None

    async def live(self) -> None:
        """Run the process until `stop` is called. Raises StartFailed when it never becomes ready."""
        attempts = 0
        starting = StartingTime(self.spec.start_timeout_seconds)
        while not self._stopping.is_set():
            run = await self._start()
            if run is not None:
                await self._watch(run, starting)
                ran, how = time.monotonic() - run.started_at, _ending(run.popen.wait())
            else:
                ran, how = 0.0, self.note.detail
            if self._stopping.is_set():
                break
            attempts += 1
            if not self.ready.is_set() and attempts >= START_ATTEMPTS:
                raise StartFailed(self._complaint(f"ended {attempts} times before it was ready, last with {how}"))
            self._backoff, delay = self._backoff.after_exit(ran)
            self._note(state="backing-off", pid=None, started_ticks=None, detail=f"{how}; starts again in {delay:.2g} s")
            self.log.write(f"[supervisor] {self.spec.name} ended: {how}; starting again in {delay:.2g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
            self._note(restarts=self.note.restarts + 1)
        self._note(state="stopped", pid=None, started_ticks=None, detail="")

    async def stop(self) -> None:
        """End the process with its stop signal, and with SIGKILL after the grace period.

        Returns when the process is gone; safe to call twice.
        """
        self._stopping.set()
        run = self._run
        if run is None:
            return
        self._note(state="stopping")
        send_signal(run.identity, self.spec.stop_signal)
        try:
            await asyncio.wait_for(until_end(run.identity), self.spec.stop_grace_seconds)
        except TimeoutError:
            self.log.write(f"[supervisor] {self.spec.name} did not stop within {self.spec.stop_grace_seconds:g} s and is killed")
            send_signal(run.identity, signal.SIGKILL)
            await until_end(run.identity)

    async def _start(self) -> _Run | None:
        """Fork and begin to read the output.

        Return None, with the reason in the note, if the process cannot be started at all.
        """
        self._note(state="starting", detail="")
        try:
            if self.spec.before_start is not None:
                await asyncio.to_thread(self.spec.before_start)
            if self._stopping.is_set():
                return None
            read_end, write_end = os.pipe()
            try:
                # asyncio's subprocesses wait for pipes that grandchildren may hold open.
                popen = subprocess.Popen(  # noqa: ASYNC220 - see above
                    self.spec.command,
                    stdin=subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=write_end,
                    env={**self._environment, **self.spec.environment},
                    start_new_session=True,  # a Ctrl-C at the terminal must reach the supervisor only
                    preexec_fn=die_with_parent(self.spec.orphan_signal),
                )
            except BaseException:
                os.close(read_end)
                raise
            finally:
                os.close(write_end)
        except (OSError, subprocess.SubprocessError, SandboxError) as problem:
            self._note(detail=f"cannot start: {problem}")
            return None
        identity = identity_of(popen.pid) or ProcessIdentity(pid=popen.pid, started_ticks=-1)
        printed = asyncio.Event()
        self._run = _Run(popen, identity, asyncio.create_task(self._pump(read_end, printed)), printed, time.monotonic())
        self._note(pid=popen.pid, started_ticks=identity.started_ticks)
        return self._run

    async def _watch(self, run: _Run, starting: StartingTime) -> None:
        """Wait for readiness, then for the end of the process. Its last output is read before this returns."""
        ended = asyncio.create_task(until_end(run.identity))
        becoming = asyncio.create_task(self._until_ready(run))
        try:
            done: set[asyncio.Task[None]] = set()
            while not done:
                now = time.monotonic()
                if not self.ready.is_set() and starting.is_over(now, cpu_seconds(run.identity.pid)):
                    raise StartFailed(self._complaint(f"was not ready within {starting.passed(now):.3g} s"))
                timeout = None if self.ready.is_set() else starting.next_look(now)
                done, _ = await asyncio.wait({ended, becoming}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if becoming in done and ended not in done:
                becoming.result()
                self.ready.set()
                self._note(state="ready", detail="")
            await ended
        finally:
            becoming.cancel()
            ended.cancel()
            if self.note.state != "stopping" and not ended.done():
                send_signal(run.identity, signal.SIGKILL)
                run.popen.wait()
            await asyncio.wait({run.pump}, timeout=0.5)  # a grandchild may hold the pipe open
            run.pump.cancel()
            self._run = None

    async def _until_ready(self, run: _Run) -> None:
        match self.spec.readiness:
            case PrintedLine():
                await run.printed.wait()
            case HttpAnswer(url=url):
                await _until(lambda: _answers(url))
            case Asked(check=check):
                await _until(check)
            case Started():
                pass

    async def _pump(self, read_end: int, printed: asyncio.Event) -> None:
        """Copy the output to the log, and look for the line of the readiness check."""
        awaited = self.spec.readiness.prefix if isinstance(self.spec.readiness, PrintedLine) else None
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
        )
        splitter = LineSplitter()
        try:
            while chunk := await reader.read(65536):
                for line in splitter.feed(chunk):
                    self.log.write(line)
                    if awaited is not None and line.startswith(awaited):
                        printed.set()
        finally:
            for line in splitter.rest():
                self.log.write(line)
            transport.close()

    def _note(self, **changes: object) -> None:
        self.note = replace(self.note, **changes)  # type: ignore[arg-type]  # ProcessNote's fields, as its tests check
        self._changed()

    def _complaint(self, what: str) -> str:
        last = next((line for line in reversed(self.log.last_lines) if line.strip() and not line.startswith("[supervisor]")), "")
        said = f"; it last said: {last.strip()}" if last else ""
        return f"{self.spec.name} {what}{said} (log: {self.log.path})"


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    while not await check():  # noqa: ASYNC110 - another process cannot set our event
        await asyncio.sleep(ASK_EVERY_SECONDS)


async def _answers(url: str) -> bool:
    return (await ask_url(url, timeout_seconds=2.0)).ok


def _ending(status: int) -> str:
    """Describe how a process ended, from its wait status. A negative status is the number of a signal."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
