"""The runner of simulations, with a fake store and processes that print one line."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
import uvloop

from fairlead_api.infra.errors import StoreUnavailable
from fairlead_api.simulations import processes
from fairlead_api.simulations.processes import RunsLeft, Simulating
from fairlead_api.simulations.running import Claimed, Traffic, ended_policies, results_of, runs_of, runs_of_policies
from fairlead_client.resources.simulations import EngineModel, SimulatedPolicy, SimulationResult, TraceRequest
from fairlead_client.simulation_jobs import JobLine, JobRun, RunFigures, SimulatedTarget, encode_line

TARGET = SimulatedTarget(
    engine=EngineModel.DUALMAP_7B,
    instances=2,
    prefill_tokens_per_second=6250.0,
    kv_cache_tokens=100_000,
    prefills_in_flight=1,
    anchors=1,
    session_ttl_seconds=600.0,
    early_rejection="Disabled",
    headroom=1.0,
    slo_ttft_seconds=5.0,
    slo_tpot_seconds=0.1,
)
REFUSING = (sys.executable, "-c", """print('{"error": "no such engine"}')""")
FIGURES = RunFigures(
    number=0,
    requests_per_second=1.0,
    requests=3,
    served=3,
    failed=0,
    attainment=1.0,
    refused_share=0.0,
    ttft_p50=0.1,
    ttft_p90=0.1,
    ttft_p99=0.1,
    tpot_p90=0.1,
    hit_rate=0.0,
    ideal_hit_rate=0.0,
    migrations=0,
    reroutes=0,
)
LAST_WORDS = f"import os, time; time.sleep(0.3); os.write(1, {encode_line(JobLine(figures=FIGURES))!r})"
DEAD = (
    sys.executable,
    "-c",
    f"import subprocess, sys; subprocess.Popen((sys.executable, '-c', {LAST_WORDS!r}), stdin=subprocess.DEVNULL); sys.exit(3)",
)
"""A process that exits with 3 while a child of it still writes its last words."""


class AllDone(Exception):
    """An exception that ends the runner, which otherwise looks for simulations forever."""


class OneSimulation:
    """A store with one simulation of three requests. When the simulation has ended, it ends the runner."""

    def __init__(self, *policies: str) -> None:
        self._policies = [SimulatedPolicy(policy=name) for name in policies or ("fairlead", "ear")]
        self.totals: list[int] = []
        self.problem = ""

    async def claim(self, runner: str) -> Claimed | None:
        if self.problem:
            raise AllDone
        return Claimed(id="1", pool_id=1, policies=self._policies, rates=[1.0], seed=0, target=TARGET, window=None)

    async def traffic(self, claimed: Claimed) -> Traffic:
        row = TraceRequest(timestamp=0.0, input_length=1, output_length=1, hash_ids=[1])
        return Traffic.uploaded([row] * 3)

    async def go_on(self, claimed: Claimed, runner: str, done: int, total: int | None = None) -> bool:
        if total is not None:
            self.totals.append(total)
        return True

    async def finish(
        self, claimed: Claimed, runner: str, results: Sequence[SimulationResult], winner: int, notes: Sequence[str], done: int
    ) -> None:
        raise StoreUnavailable("it does not end well")

    async def finish_trial(
        self, claimed: Claimed, runner: str, figures: Sequence[RunFigures], traffic: Traffic, notes: Sequence[str]
    ) -> None:
        raise AssertionError("no plan is simulated here")

    async def finish_sizing(self, claimed: Claimed, runner: str, *found: object) -> None:
        raise AssertionError("nothing is simulated for advice here")

    async def fail(self, claimed: Claimed, runner: str, why: str) -> None:
        self.problem = why


async def test_what_is_to_be_done_is_counted_when_it_begins_as_more_may_have_come_since_it_was_asked_for() -> None:
    store = OneSimulation()
    with pytest.raises(AllDone):
        await Simulating(store, "runner", 1, REFUSING).run()
    assert (store.totals, store.problem) == ([3 * 2], "no such engine")


def test_a_process_that_cannot_be_given_its_next_run_is_one_that_ended_early() -> None:
    store = OneSimulation("fairlead", "ear", "dualmap")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(AllDone):
        runner.run(Simulating(store, "runner", 1, DEAD).run())
    assert "ended 2 times before its end (exit status 3)" in store.problem


def test_the_runs_of_a_policy_that_takes_long_are_not_left_for_the_end() -> None:
    policies = [SimulatedPolicy(policy=name) for name in ("least-loaded", "dualmap", "fairlead")]
    seconds = {"least-loaded": 10.0, "dualmap": 10.0, "fairlead": 18.0}
    left, free_at, order = RunsLeft(runs_of(policies, [1.0, 1.5])), [0.0, 0.0], []
    at_work: list[JobRun | None] = [None, None]
    while True:
        process = free_at.index(min(free_at))
        ended = at_work[process]
        if ended is not None:
            left.ended(ended, seconds[ended.policy])
        run = at_work[process] = left.take()
        if run is None:
            break
        order.append((run.policy, run.rate))
        free_at[process] += seconds[run.policy]
    assert order[:2] == [("least-loaded", 1.5), ("dualmap", 1.5)], "nothing is known yet: the highest rate first"
    assert {policy for policy, _ in order[2:4]} == {"fairlead"}
    assert max(free_at) == sum(2 * one for one in seconds.values()) / 2, "both end at once"


def test_a_run_whose_process_died_is_taken_again() -> None:
    left = RunsLeft(runs_of([SimulatedPolicy(policy="ear")], [1.0]))
    run = left.take()
    assert run is not None
    assert left.take() is None
    left.give_back(run)
    assert left.take() == run


SLOW = (
    sys.executable,
    "-c",
    f"import sys, time; sys.stdin.readline(); sys.stdin.readline(); print({encode_line(JobLine(figures=FIGURES)).decode()!r}, end='', flush=True); "
    "time.sleep(600)",
)
"""A process that prints the figures of its first run at once, and never ends the next one."""


class Stopped(OneSimulation):
    """A store that keeps the results of the ended simulation."""

    def __init__(self, *policies: str) -> None:
        super().__init__(*policies)
        self.ended: tuple[list[str], int, list[str]] | None = None

    async def claim(self, runner: str) -> Claimed | None:
        if self.ended is not None:
            raise AllDone
        return await super().claim(runner)

    async def finish(
        self, claimed: Claimed, runner: str, results: Sequence[SimulationResult], winner: int, notes: Sequence[str], done: int
    ) -> None:
        self.ended = ([one.policy for one in results], winner, list(notes))


async def test_a_simulation_whose_time_is_over_has_the_policies_that_ended_and_names_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(processes, "MOST_SECONDS", 2.0)
    store = Stopped("fairlead", "ear")
    with pytest.raises(AllDone):
        await Simulating(store, "runner", 1, SLOW).run()
    assert store.ended == (["fairlead"], 0, ["It was stopped after 2 s. Policies that were not simulated to the end: ear."])


def test_only_a_policy_all_of_whose_runs_ended_has_results() -> None:
    policies = [SimulatedPolicy(policy="fairlead"), SimulatedPolicy(policy="ear"), SimulatedPolicy(policy="ear", parameters={"a": 1})]
    claimed = Claimed(id="1", pool_id=1, policies=policies, rates=[1.0, 2.0], seed=0, target=TARGET, window=None)
    for missing in claimed.runs:
        figures = {run.number: replace(FIGURES, number=run.number) for run in claimed.runs if run != missing}
        expected = [one for one in policies if (one.policy, one.parameters) != (missing.policy, missing.parameters)]
        assert ended_policies(claimed, figures) == expected
        assert len(results_of(runs_of_policies(claimed.runs, expected), figures)) == 4
