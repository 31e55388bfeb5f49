"""Starts a table of processes and steps, keeps the processes running, and stops them in reverse order.

The supervisor knows nothing about Fairlead. Each entry starts as soon as the entries it needs are ready. When a start
fails, the processes that had started are stopped.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fairlead_sandbox.errors import SandboxError, StartFailed
from fairlead_sandbox.log_streams import Console, ProcessLog
from fairlead_sandbox.processes import Node, ProcessSpec, Step, in_start_order
from fairlead_sandbox.state_directory import ProcessNote
from fairlead_sandbox.supervised_process import RESTARTS, SupervisedProcess
from processkube.backoff import Backoff


class Supervisor:
    """Runs one table of processes and steps.

    `changed`: is called when a note has changed, at most once per turn of the event loop. `environment`: the variables
    for every process; the variables of its spec are added.

    Use: `await start()`, wait for a reason to stop, `await stop()`.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        logs: Path,
        console: Console,
        changed: Callable[[], None],
        environment: Mapping[str, str] | None = None,
        backoff: Backoff = RESTARTS,
    ) -> None:
        self._nodes = in_start_order(nodes)
        self._changed = changed
        self._scheduled = False
        self._console = console
        base = dict(os.environ if environment is None else environment)
        self._processes = {
            node.name: SupervisedProcess(
                node,
                log=ProcessLog(logs, node.name, console if node.console else None),
                environment=base,
                changed=self._schedule_change,
                backoff=backoff,
            )
            for node in self._nodes
            if isinstance(node, ProcessSpec)
        }
        self._steps = {node.name: ProcessNote(name=node.name) for node in self._nodes if isinstance(node, Step)}
        self._done: dict[str, asyncio.Event] = {
            node.name: self._processes[node.name].ready if node.name in self._processes else asyncio.Event() for node in self._nodes
        }
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    @property
    def notes(self) -> tuple[ProcessNote, ...]:
        """The notes on each process and step, in start order."""
        return tuple(self._processes[node.name].note if node.name in self._processes else self._steps[node.name] for node in self._nodes)

    async def start(self) -> None:
        """Start everything; return when every process was ready once and every step is done.

        Raises StartFailed; the caller must call `stop` in that case, too.
        """
        for node in self._nodes:
            self._tasks[node.name] = asyncio.create_task(self._bring_up(node), name=node.name)
        ready = asyncio.create_task(self._until_all_done())
        try:
            waiting = {ready, *self._tasks.values()}
            while not ready.done():
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # raises what the task raised
        finally:
            ready.cancel()

    async def until_failure(self) -> None:
        """Wait until the supervision of a process ends with an error, and raise the error. Call it after `start`."""
        working = {task for name, task in self._tasks.items() if name in self._processes}
        done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """Stop everything; an entry is stopped before the entries it needs.

        Safe at any moment after `start` was called.
        """
        self._stopping = True
        stopped = {node.name: asyncio.Event() for node in self._nodes}
        dependants: dict[str, list[str]] = {
            node.name: [other.name for other in self._nodes if node.name in other.needs] for node in self._nodes
        }

        async def stop_one(node: Node) -> None:
            for name in dependants[node.name]:
                await stopped[name].wait()
            task = self._tasks.get(node.name)
            process = self._processes.get(node.name)
            if process is not None:
                await process.stop()
            if task is not None:
                if process is None or process.note.state == "waiting":  # else its task ends without that
                    task.cancel()
                await asyncio.wait({task})
            if process is not None:
                process.log.close()
            stopped[node.name].set()

        await asyncio.gather(*(stop_one(node) for node in self._nodes))
        self._changed()

    async def _bring_up(self, node: Node) -> None:
        for need in node.needs:
            await self._done[need].wait()
        if self._stopping:
            return
        if isinstance(node, ProcessSpec):
            await self._processes[node.name].live()
        else:
            await self._do(node)

    async def _do(self, step: Step) -> None:
        self._steps[step.name] = ProcessNote(name=step.name, state="starting")
        self._schedule_change()
        try:
            await step.run()
        except SandboxError as problem:
            self._steps[step.name] = ProcessNote(name=step.name, state="failed", detail=str(problem))
            raise StartFailed(f"{step.name} failed: {problem}") from None
        self._steps[step.name] = ProcessNote(name=step.name, state="done")
        self._done[step.name].set()
        self._schedule_change()

    async def _until_all_done(self) -> None:
        for event in self._done.values():
            await event.wait()

    def _schedule_change(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._report_change)

    def _report_change(self) -> None:
        self._scheduled = False
        self._changed()
