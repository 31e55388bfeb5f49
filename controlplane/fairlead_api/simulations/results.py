"""From the figures of runs to results that can be compared, and the policy that did best. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf

from fairlead_client.resources.simulations import SimulatedPolicy, SimulationResult
from fairlead_client.simulation_jobs import JobRun, RunFigures


def runs_of(policies: Sequence[SimulatedPolicy], rates: Sequence[float]) -> list[JobRun]:
    """Every policy at every rate, rate by rate."""
    pairs = [(rate, one) for rate in rates for one in policies]
    return [JobRun(number=number, policy=one.policy, parameters=one.parameters, rate=rate) for number, (rate, one) in enumerate(pairs)]


def results_of(runs: Sequence[JobRun], figures: Mapping[int, RunFigures]) -> list[SimulationResult]:
    """The results in the runs' order, each compared with the first one at its rate."""
    results: list[SimulationResult] = []
    first: dict[float, float] = {}
    for run in runs:
        found = asdict(figures[run.number])
        del found["number"], found["sessions_moved"], found["parts"], found["session_parts"]
        baseline = first.setdefault(run.rate, found["attainment"])
        change = found["attainment"] - baseline
        results.append(SimulationResult(policy=run.policy, parameters=run.parameters, rate=run.rate, attainment_change=change, **found))
    return results


def winner_of(policies: Sequence[SimulatedPolicy], results: Sequence[SimulationResult]) -> int:
    """The place of the policy with the highest attainment, mean over the rates; of equals that with the lowest mean p90
    of TTFTs, then the first.
    """

    def standing(place: int) -> tuple[float, float, int]:
        mine = [one for one in results if (one.policy, one.parameters) == (policies[place].policy, policies[place].parameters)]
        attainment = sum(one.attainment for one in mine) / len(mine)
        latency = sum(inf if one.ttft_p90 is None else one.ttft_p90 for one in mine) / len(mine)
        return (-round(attainment, 9), latency, place)

    return min(range(len(policies)), key=standing)
