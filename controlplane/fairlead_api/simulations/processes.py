"""Runs the queued simulations: claims one simulation at a time and gives its runs to simulator processes.

The API knows only the simulator's line protocol (`fairlead_client.simulation_jobs`); the caller passes the simulator's
command. A free process takes the next run. A simulator process that dies is restarted once, with the same run. When the
API process dies, its simulator processes end too. If the API process stops reporting, another API process, or the same
one after a restart, begins the simulation again.
"""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from math import inf

import msgspec

from fairlead.scaling.remedies import Reach, reach_of
from fairlead_api.infra.errors import StoreUnavailable
from fairlead_api.simulations.running import Claimed, RunningStore, Traffic, ended_policies, results_of, runs_of_policies, winner_of
from fairlead_api.simulations.sizing import Asked, further_runs
from fairlead_client.resources.simulations import SimulatedPolicy
from fairlead_client.simulation_jobs import JobLine, JobRun, RunFigures, SimulationJob, decode_line, encode_line

LOOK_SECONDS = 1.0
"""Seconds between two attempts to claim a simulation, and between two progress reports of the running simulation."""
MOST_SECONDS = 600.0
"""Maximum duration of a simulation in seconds. A simulation that takes longer is stopped."""
NICENESS = 5
"""Niceness of the simulator's processes. A simulator process gets a third of the CPU time that a serving process gets.
So simulations hardly slow down serving processes, and still make progress on a machine that is never idle.
"""
_STARTS = 2
_LONGEST_LINE = 1 << 20

_log = logging.getLogger(__name__)


class SimulationFailed(Exception):
    """The simulation is impossible; `str(error)` is one line of text for users."""


class Simulating:
    """Runs one simulation at a time, in at most `processes` processes of `command`. `runner` is the name under which it
    claims simulations.
    """

    def __init__(self, store: RunningStore, runner: str, processes: int, command: Sequence[str]) -> None:
        self._command = command
        self._store = store
        self._runner = runner
        self._processes = processes

    async def run(self) -> None:
        """Claim and run simulations until cancelled. While the database is unreachable, it tries again."""
        while True:
            claimed = None
            with suppress(StoreUnavailable):
                claimed = await self._store.claim(self._runner)
            if claimed is None:
                await asyncio.sleep(LOOK_SECONDS)
            else:
                await self._simulate(claimed)

    async def _simulate(self, claimed: Claimed) -> None:
        progress = _Progress()
        work = asyncio.ensure_future(self._work(claimed, progress))
        try:
            async with asyncio.timeout(MOST_SECONDS):
                while not (await asyncio.wait({work}, timeout=LOOK_SECONDS))[0]:
                    with suppress(StoreUnavailable):
                        if not await self._store.go_on(claimed, self._runner, progress.done):
                            return  # cancelled, or taken by another process
            await self._finish(claimed, await work, progress)
        except SimulationFailed as error:
            await self._store.fail(claimed, self._runner, str(error))
        except TimeoutError:
            await self._stop(claimed, progress)
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work

    async def _finish(self, claimed: Claimed, traffic: Traffic, progress: "_Progress") -> None:
        notes = progress.notes
        if claimed.sizing is not None:
            figures = [progress.figures[run.number] for run in progress.runs]
            reach = self._reach(claimed.sizing, traffic, progress)
            await self._store.finish_sizing(claimed, self._runner, progress.runs, figures, reach, traffic, notes)
            return
        if claimed.plan_runs is not None:
            figures = [progress.figures[run.number] for run in claimed.plan_runs]
            await self._store.finish_trial(claimed, self._runner, figures, traffic, notes)
            return
        await self._finish_policies(claimed, claimed.policies, progress)

    async def _finish_policies(self, claimed: Claimed, policies: Sequence[SimulatedPolicy], progress: "_Progress") -> None:
        """End the simulation, and store the results of these policies. All runs of these policies have ended."""
        results = results_of(runs_of_policies(claimed.runs, policies), progress.figures)
        winner = claimed.policies.index(policies[winner_of(policies, results)])
        await self._store.finish(claimed, self._runner, results, winner, progress.notes, progress.done)

    async def _stop(self, claimed: Claimed, progress: "_Progress") -> None:
        """Stop the simulation because it took too long. The results of a policy are stored if all its runs have ended;
        a note names the other policies. If no policy has results, the simulation fails.
        """
        ended = [] if claimed.sizing or claimed.plan_runs else ended_policies(claimed, progress.figures)
        if not ended:
            why = f"it took longer than {MOST_SECONDS:g} s; ask for fewer policies or rates, or a shorter window"
            await self._store.fail(claimed, self._runner, why)
            return
        late = ", ".join(one.policy for one in claimed.policies if one not in ended)
        progress.notes.append(f"It was stopped after {MOST_SECONDS:g} s. Policies that were not simulated to the end: {late}.")
        await self._finish_policies(claimed, ended, progress)

    async def _work(self, claimed: Claimed, progress: "_Progress") -> Traffic:
        """Simulate all runs of the simulation, and return the requests that they simulated."""
        traffic = await self._store.traffic(claimed)
        progress.notes += traffic.notes
        await self._batch(claimed, traffic, claimed.runs, progress)
        if claimed.sizing is not None:
            reach = self._reach(claimed.sizing, traffic, progress)
            await self._batch(claimed, traffic, further_runs(claimed.sizing, claimed.runs, progress.figures, reach), progress)
        return traffic

    @staticmethod
    def _reach(asked: Asked, traffic: Traffic, progress: "_Progress") -> Reach:
        sessions = [one.session_id for one in traffic.requests]
        return reach_of(progress.alone, traffic.unanswered, asked.slo_ttft_seconds, asked.goal, asked.prefill_tokens_per_second, sessions)

    async def _batch(self, claimed: Claimed, traffic: Traffic, runs: Sequence[JobRun], progress: "_Progress") -> None:
        """Run these runs in simulator processes, and wait until all of them have ended."""
        progress.runs += runs
        # more requests may have come since it was asked for
        await self._store.go_on(claimed, self._runner, progress.done, len(traffic.requests) * len(progress.runs))
        left = RunsLeft(runs)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._processes, len(runs))):
                    group.create_task(self._share(claimed, traffic, left, progress))
        except BaseExceptionGroup as group:
            failed = group.subgroup(SimulationFailed)
            if failed is None:
                raise
            raise failed.exceptions[0] from None

    async def _share(self, claimed: Claimed, traffic: Traffic, left: "RunsLeft", progress: "_Progress") -> None:
        """Run the runs in `left` in one simulator process, one after the other, until none is left."""
        job = SimulationJob(
            requests=traffic.requests,
            weight=traffic.weight,
            target=claimed.target,
            seed=claimed.seed,
            tells_alone=claimed.sizing is not None and not progress.alone,
        )
        for start in range(1, _STARTS + 1):
            taken = left.take()
            if taken is None:
                return
            ended = await _process(self._command, encode_line(job), taken, left, progress)
            if ended is None:
                return
            _log.warning("a process of the simulator ended early", extra={"simulation": claimed.id, "status": ended, "start": start})
        raise SimulationFailed(f"the simulator ended {_STARTS} times before its end ({ended}); see the log of the control API")


class RunsLeft:
    """Runs that no process has begun. Runs of the slowest policies come first, so that no slow run begins when all
    others have ended. A policy without a finished run counts as the slowest.
    """

    def __init__(self, runs: Sequence[JobRun]) -> None:
        self._runs = list(runs)
        self._seconds: dict[str, float] = {}

    def take(self) -> JobRun | None:
        """Remove and return the next run for a free process; None if no run is left."""
        if not self._runs:
            return None
        chosen = max(self._runs, key=lambda run: (self._seconds.get(_policy(run), inf), run.rate))
        self._runs.remove(chosen)
        return chosen

    def ended(self, run: JobRun, seconds: float) -> None:
        """Record the seconds that the run took, as a measure of the speed of its policy."""
        self._seconds[_policy(run)] = seconds

    def give_back(self, run: JobRun) -> None:
        """Add a run again after its process died."""
        self._runs.append(run)


def _policy(run: JobRun) -> str:
    return f"{run.policy} {run.parameters}"


class _Progress:
    """The reports of the simulator processes about one simulation: progress and figures."""

    def __init__(self) -> None:
        self.done = 0
        self.figures: dict[int, RunFigures] = {}
        self.notes: list[str] = []
        self.alone: list[float | None] = []
        self.runs: list[JobRun] = []
        """The runs of the simulation that have begun."""

    def take(self, line: JobLine) -> None:
        self.done += line.done
        if line.figures is not None:
            self.figures[line.figures.number] = line.figures
        self.alone = self.alone or line.alone
        self.notes += [note for note in line.notes if note not in self.notes]


async def _process(command: Sequence[str], job: bytes, run: JobRun, left: RunsLeft, progress: _Progress) -> str | None:
    """Start a simulator process, send it the job and then one run after the other, and read its output.

    Returns None if no run is left. If the process ends earlier, adds its run to `left` again and returns a description
    of the end. Raises SimulationFailed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment, limit=_LONGEST_LINE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    begun = 0
    under_way = run
    since = time.monotonic()
    try:
        with suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        await _give(process.stdin, job + encode_line(run))
        async for text in process.stdout:
            try:
                line = decode_line(text)
            except msgspec.DecodeError:
                break  # it died in the middle of a line
            if line.error is not None:
                raise SimulationFailed(line.error)
            begun = 0 if line.figures is not None else begun + line.done
            progress.take(line)
            if line.figures is not None:
                left.ended(under_way, time.monotonic() - since)
                since = time.monotonic()
                following = left.take()
                if following is None:
                    return None
                under_way = following
                await _give(process.stdin, encode_line(under_way))
        progress.done -= begun  # a run that began but did not end is simulated again
        left.give_back(under_way)
        status = await process.wait()
        return f"signal {-status}" if status < 0 else f"exit status {status}"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _give(stdin: asyncio.StreamWriter, content: bytes) -> None:
    """Write to the input of a process. A dead process is ignored here; the code that reads its output notices that it
    died.
    """
    if stdin.is_closing():  # uvloop raises RuntimeError for a write to the pipe of a process that ended
        return
    with suppress(ConnectionError):
        stdin.write(content)
        await stdin.drain()
