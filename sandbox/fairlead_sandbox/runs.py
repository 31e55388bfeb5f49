"""One run of a table of processes in a state directory, from taking the lock to the end of the last process."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TextIO

from fairlead.errors import FairleadError
from fairlead_sandbox.command_lines import command_line
from fairlead_sandbox.ending import sweep
from fairlead_sandbox.errors import AlreadyRunning, SandboxError, StartFailed
from fairlead_sandbox.log_streams import Console
from fairlead_sandbox.marks import MARK
from fairlead_sandbox.ports import PortClaims
from fairlead_sandbox.processes import Node
from fairlead_sandbox.state_directory import RunNote, StateDirectory
from fairlead_sandbox.supervisor import Supervisor
from processkube.identities import identity_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """The processes of a run. `ports` and `urls` are written to the note for the other commands; the port claims are
    released at the end.

    `summary` returns the text shown when everything is ready, coloured for the terminal or plain for the note; it
    raises SandboxError.
    """

    nodes: tuple[Node, ...]
    ports: Mapping[str, int]
    urls: Mapping[str, str]
    claims: PortClaims
    summary: Callable[[], Awaitable[Callable[[bool], str]]]


Prepare = Callable[[Mapping[str, int]], Awaitable[PreparedRun]]
"""A function that prepares a run: it gets the ports of the last run, by name, and returns the processes to start.
Raises SandboxError.
"""


class SupervisedRun:
    """One run. `output` gets progress, summary and the merged log; it is None if detached."""

    def __init__(self, directory: StateDirectory, environment: Mapping[str, str], output: TextIO | None, prepare: Prepare) -> None:
        self._environment = environment
        self._directory = directory
        self._output = output
        self._prepare = prepare
        self._coloured = output is not None and output.isatty() and "NO_COLOR" not in environment
        self._note = RunNote(phase="starting")
        self._supervisor: Supervisor | None = None
        self._claims: PortClaims | None = None
        self._shown: set[str] = set()
        self._began = time.monotonic()

    async def run(self) -> None:
        """Start everything, serve until SIGINT or SIGTERM, stop everything.

        Raises AlreadyRunning when the directory is held, SandboxError or StartFailed when the start fails;
        nothing is left running then.
        """
        if sys.platform != "linux":
            raise SandboxError(
                "this needs Linux, whose kernel ends every process with its supervisor; use a container or a virtual machine"
            )
        self._directory.create()
        lock = self._directory.lock()
        if lock is None:
            raise AlreadyRunning(_already_running(self._directory))
        try:
            await self._run_locked()
        finally:
            if self._claims is not None:
                self._claims.release()
            lock.release()

    async def _run_locked(self) -> None:
        me = identity_of(os.getpid())
        previous = self._directory.read_run()
        sweep(self._directory)  # ends processes that a killed supervisor may have left
        self._note = replace(
            self._note,
            supervisor_pid=os.getpid(),
            supervisor_started_ticks=me.started_ticks if me else None,
            ports=previous.ports if previous else {},
        )
        self._save()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:
            prepared = await self._prepare(self._note.ports)
        except FairleadError as problem:
            self._save(phase="failed", problem=str(problem))
            raise
        nodes, self._claims = prepared.nodes, prepared.claims
        self._save(ports=dict(prepared.ports), urls=dict(prepared.urls))
        console = Console(None, names=tuple(node.name for node in nodes), coloured=self._coloured)
        environment = process_environment(self._environment, self._directory)
        self._supervisor = Supervisor(nodes, logs=self._directory.logs, console=console, changed=self._changed, environment=environment)
        starting = asyncio.create_task(self._supervisor.start())
        stopping = asyncio.create_task(stop.wait())
        failure = ""
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await self._announce(prepared)
                console.open(self._output)
                failing = asyncio.create_task(self._supervisor.until_failure())
                await asyncio.wait({failing, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if failing.done():
                    failing.result()
                failing.cancel()
        except StartFailed as problem:
            failure = str(problem)
            raise
        finally:
            starting.cancel()
            stopping.cancel()
            self._say("stopping …")
            self._save(phase="stopping")
            await self._supervisor.stop()
            sweep(self._directory)
            self._save(
                phase="failed" if failure else "stopped", problem=failure, summary="", supervisor_pid=None, supervisor_started_ticks=None
            )
            self._say("stopped; nothing is left running")

    async def _announce(self, prepared: PreparedRun) -> None:
        try:
            render = await prepared.summary()
        except SandboxError as problem:
            raise StartFailed(str(problem)) from None
        self._say(f"everything is ready after {time.monotonic() - self._began:.1f} s")
        self._save(phase="ready", summary=render(False))
        self._say("\n" + render(self._coloured))

    def _changed(self) -> None:
        """Save the notes on all processes after a change, and print each entry of the table that has become ready or
        done.
        """
        if self._supervisor is None:
            return
        self._save(processes=self._supervisor.notes)
        for note in self._supervisor.notes:
            if note.state in {"ready", "done"} and note.name not in self._shown:
                self._shown.add(note.name)
                if self._note.phase == "starting":
                    self._say(f"  {time.monotonic() - self._began:5.1f} s  {note.name} {note.state}")

    def _save(self, **changes: object) -> None:
        self._note = replace(self._note, **changes)  # type: ignore[arg-type]  # the callers name RunNote's own fields
        try:
            self._directory.write_run(self._note)
        except OSError as problem:  # a full disk must not stop the processes that still run
            self._say(f"{self._directory.run_file} cannot be written: {problem.strerror}")

    def _say(self, text: str) -> None:
        if self._output is None:
            return
        try:
            print(text, file=self._output, flush=True)
        except (OSError, ValueError):  # a closed pipe, or a terminal that has gone (EIO)
            self._output = None


def process_environment(inherited: Mapping[str, str], directory: StateDirectory) -> dict[str, str]:
    """Return the environment of every process: the user's environment with the sandbox's mark, and with no HTTP proxy
    between the sandbox's own processes.
    """
    direct = ",".join(part for part in (inherited.get("NO_PROXY") or inherited.get("no_proxy"), "127.0.0.1,localhost") if part)
    return {**inherited, MARK: str(directory.root), "PYTHONUNBUFFERED": "1", "NO_PROXY": direct, "no_proxy": direct}


def _already_running(directory: StateDirectory) -> str:
    note = directory.read_run()
    where = ", ".join(f"{name} {url}" for name, url in note.urls.items()) if note else ""
    status, down = command_line("status", directory.root), command_line("down", directory.root)
    return f"a sandbox is already running in {directory.root} ({where or 'still starting'}); `{status}` shows it, `{down}` stops it"
