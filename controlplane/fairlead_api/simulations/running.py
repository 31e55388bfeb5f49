"""The data with which a process runs a simulation: the simulation's inputs and its requests. Also computes the results
and the best policy from the figures of the runs. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, Protocol

from fairlead.scaling.remedies import Reach
from fairlead_api.simulations.sizing import Asked
from fairlead_client.resources.simulations import SimulatedPolicy, SimulationResult, TraceRequest
from fairlead_client.simulation_jobs import JobRun, RunFigures, SimulatedTarget


def runs_of(policies: Sequence[SimulatedPolicy], rates: Sequence[float]) -> list[JobRun]:
    """Return one run for every policy at every request rate, ordered by rate."""
    pairs = [(rate, one) for rate in rates for one in policies]
    return [JobRun(number=number, policy=one.policy, parameters=one.parameters, rate=rate) for number, (rate, one) in enumerate(pairs)]


def results_of(runs: Sequence[JobRun], figures: Mapping[int, RunFigures]) -> list[SimulationResult]:
    """Return the results in the order of the runs. Each result is compared with the first result at the same request
    rate.
    """
    results: list[SimulationResult] = []
    first: dict[float, float] = {}
    for run in runs:
        found = asdict(figures[run.number])
        del found["number"], found["sessions_moved"], found["parts"], found["session_parts"], found["host_cache"]
        baseline = first.setdefault(run.rate, found["attainment"])
        change = found["attainment"] - baseline
        results.append(SimulationResult(policy=run.policy, parameters=run.parameters, rate=run.rate, attainment_change=change, **found))
    return results


def winner_of(policies: Sequence[SimulatedPolicy], results: Sequence[SimulationResult]) -> int:
    """Return the index of the policy with the highest attainment, as a mean over the request rates. Among equal
    policies, the policy with the lowest mean p90 TTFT is chosen; if this is equal too, the first policy.
    """

    def standing(place: int) -> tuple[float, float, int]:
        mine = [one for one in results if (one.policy, one.parameters) == (policies[place].policy, policies[place].parameters)]
        attainment = sum(one.attainment for one in mine) / len(mine)
        latency = sum(inf if one.ttft_p90 is None else one.ttft_p90 for one in mine) / len(mine)
        return (-round(attainment, 9), latency, place)

    return min(range(len(policies)), key=standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A simulation that this process has claimed and runs. `window` is None if the simulation uses an uploaded
    trace.
    """

    id: str
    pool_id: int
    policies: list[SimulatedPolicy]
    rates: list[float]
    seed: int
    target: SimulatedTarget
    window: tuple[datetime, datetime] | None
    plan_runs: list[JobRun] | None = None
    """The runs of a plan's simulation, or the first runs of a simulation for advice; None for a simulation that a
    person requested.
    """
    sizing: Asked | None = None
    """For a simulation for advice: the question that it answers. None for all other simulations. Which runs such a
    simulation needs after its first runs depends on their results.
    """

    @property
    def runs(self) -> list[JobRun]:
        """The runs of the simulation; for advice, only the first runs."""
        return runs_of(self.policies, self.rates) if self.plan_runs is None else self.plan_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The requests to simulate in order of time, the number of real requests that each of them represents (`weight`),
    and notes about the assumptions that were made.
    """

    requests: list[TraceRequest]
    weight: float
    notes: list[str]
    begun_at: datetime | None = None
    """Time at which the first request was recorded; None for an uploaded trace."""
    unanswered: list[bool] = field(default_factory=list)
    """For each request, True if no response was recorded, for example because the request was refused. Empty for an
    uploaded trace.
    """

    @property
    def second_half(self) -> tuple[datetime, datetime] | None:
        """The range of time in which the later half of the requests was recorded; None for an uploaded trace."""
        if self.begun_at is None or not self.requests:
            return None
        half, last = (
            self.begun_at + timedelta(milliseconds=one.timestamp) for one in (self.requests[len(self.requests) // 2], self.requests[-1])
        )
        return half, last

    @staticmethod
    def uploaded(trace: list[TraceRequest]) -> "Traffic":
        """Return the traffic of an uploaded trace."""
        return Traffic(requests=trace, weight=1.0, notes=[])

    @staticmethod
    def recorded(rows: Sequence[Any]) -> "Traffic":
        """Return the traffic from rows of `recorded_requests`, oldest first. A response of unknown length is assumed to
        have the mean of the known lengths.
        """
        known = [row.output_tokens for row in rows if row.output_tokens is not None]
        mean = round(sum(known) / len(known)) if known else 1
        begin = rows[0].at if rows else None
        requests = [
            TraceRequest(
                timestamp=(row.at - begin).total_seconds() * 1e3,
                input_length=max(1, row.prompt_tokens),
                output_length=mean if row.output_tokens is None else row.output_tokens,
                hash_ids=list(row.blocks),
                session_id=None if row.session is None else str(row.session),
            )
            for row in rows
        ]
        weight = sum(1 / row.sample_rate for row in rows) / len(rows) if rows else 1.0
        notes = []
        if len(known) < len(rows):
            why = "Requests without a recorded answer, such as refused ones"
            notes.append(f"{why}: {len(rows) - len(known)}. Each is simulated with the mean length, {mean} tokens.")
        if weight > 1.001:
            notes.append(f"1 in {weight:.3g} sessions was recorded; their requests are replayed {weight:.3g} times as fast.")
        return Traffic(
            requests=requests, weight=weight, notes=notes, begun_at=begin, unanswered=[row.output_tokens is None for row in rows]
        )


def runs_of_policies(runs: Sequence[JobRun], policies: Sequence[SimulatedPolicy]) -> list[JobRun]:
    """Return the runs that belong to one of the policies."""
    chosen = [(one.policy, one.parameters) for one in policies]
    return [run for run in runs if (run.policy, run.parameters) in chosen]


def ended_policies(claimed: Claimed, figures: Mapping[int, RunFigures]) -> list[SimulatedPolicy]:
    """Return the policies for which all runs have figures."""
    return [one for one in claimed.policies if all(run.number in figures for run in runs_of_policies(claimed.runs, [one]))]


class RunningStore(Protocol):
    """The port to the database for a runner of simulations. Methods change nothing if the runner's claim of the
    simulation has been lost.
    """

    async def claim(self, runner: str) -> Claimed | None: ...

    async def traffic(self, claimed: Claimed) -> Traffic: ...

    async def go_on(self, claimed: Claimed, runner: str, done: int, total: int | None = None) -> bool:
        """Record that the runner is alive, with `done` runs finished. Returns False if the simulation was cancelled or
        is claimed by another runner.
        """

    async def finish(
        self, claimed: Claimed, runner: str, results: Sequence[SimulationResult], winner: int, notes: Sequence[str], done: int
    ) -> None: ...

    async def finish_trial(
        self, claimed: Claimed, runner: str, figures: Sequence[RunFigures], traffic: Traffic, notes: Sequence[str]
    ) -> None:
        """Store the results of a plan's simulation: the figures of its runs, in the order of the runs."""

    async def finish_sizing(
        self,
        claimed: Claimed,
        runner: str,
        runs: Sequence[JobRun],
        figures: Sequence[RunFigures],
        reach: Reach,
        traffic: Traffic,
        notes: Sequence[str],
    ) -> None:
        """Store the results of a simulation for advice: the figures of all its runs, in the order of `runs`."""

    async def fail(self, claimed: Claimed, runner: str, why: str) -> None: ...
