"""Chooses the simulation runs that show the remedies for a pool (other numbers of instances, or other TTFT targets),
and evaluates them. Pure.

There are two rounds of runs. The first round simulates numbers of instances far apart, under one seed. The second round
simulates the numbers around the smallest sufficient one, and TTFT targets, in the same way as a plan
(`plan_changes.Trial`): under two seeds, and at two other request rates.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean
from typing import Any

from fairlead.instances import Role
from fairlead.scaling.remedies import Reach, Simulated, Tried, drop_of, first_numbers, further_numbers, nice
from fairlead.tables import PoolKey
from fairlead_api.simulations.expected_figures import Trialled, figures_of, sampling_error, unlike_recorded
from fairlead_api.simulations.plan_changes import RATES, SEEDS
from fairlead_client.resources.expectations import Quantity
from fairlead_client.resources.simulations import MOST_INSTANCES
from fairlead_client.simulation_jobs import JobRun, PoolChange, RunFigures, SimulatedTarget

MOST_TRIED = 64
"""Largest number of instances that is simulated, unless the pool already has more. The number is bounded because
simulating many instances takes long.
"""
MOST_SIZED = 5_000
"""Usual maximum number of recorded requests in each of the about thirty runs of a simulation for advice; the newest
requests of the window are used. If these requests cover too little time, more are simulated.
"""
HOST_CACHES = 4
"""Size of the simulated cache in host memory, as a multiple of an instance's KV cache."""
AS_IT_IS = PoolChange()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The question of a simulation for advice: how many instances of a role would serve a pool's recorded requests
    within the objectives? The role has `present` instances and may have at most `most`. `estimate` is the number
    computed from rates and means, and `held` is the number in the last advice; None = unknown.
    """

    role: Role
    present: int
    most: int
    goal: float
    slo_ttft_seconds: float
    slo_tpot_seconds: float
    policy: str
    parameters: dict[str, Any] = field(default_factory=dict)
    startup_seconds: float
    estimate: int | None = None
    held: int | None = None
    prefill_tokens_per_second: float | None = None
    """The measured prefill speed of an instance in tokens per second; None = unknown."""
    requests: int = MOST_SIZED
    """Maximum number of recorded requests that are simulated; the newest requests are used."""

    @property
    def allowed(self) -> int:
        """The largest number of instances to simulate."""
        return min(self.most, max(MOST_TRIED, self.present), MOST_INSTANCES)

    def scaled(self, replicas: int) -> PoolChange:
        """Return the change to this number of instances. All instances serve from the beginning of the simulation,
        because the time to start instances does not affect whether their number suffices.
        """
        return PoolChange(role=self.role, replicas=replicas)


def first_runs(asked: Asked, kv_cache_tokens: int | None = None) -> list[JobRun]:
    """Return the runs of the first round: the present pool under each seed, and numbers of instances far apart. If the
    size of an instance's KV cache is given, one more run simulates an additional cache in host memory.
    """
    runs = [(AS_IT_IS, seed, 1.0) for seed in SEEDS]
    numbers = first_numbers(asked.present, asked.estimate, asked.allowed)
    found = _numbered(asked, 0, [*runs, *((asked.scaled(number), SEEDS[0], 1.0) for number in numbers)])
    if kv_cache_tokens is not None and asked.role is Role.BOTH:
        host = HOST_CACHES * kv_cache_tokens
        found.append(JobRun(number=len(found), policy=asked.policy, parameters=asked.parameters, rate=1.0, host_cache_tokens=host))
    return found


def further_runs(asked: Asked, runs: Sequence[JobRun], found: Mapping[int, RunFigures], reach: Reach) -> list[JobRun]:
    """Return the runs of the second round, without runs that were already in the first round: numbers of instances
    around the smallest sufficient number, and TTFT targets if the present target is out of reach for some prompts.
    """
    first = {one.change.replicas: found[one.number].attainment for one in runs if one.change and one.change.replicas is not None}
    changes = [asked.scaled(number) for number in further_numbers(asked.present, first, asked.goal)]
    if reach.ttft_seconds is not None:
        changes += [PoolChange(slo_ttft_seconds=one) for one in (reach.ttft_seconds, nice(1.5 * reach.ttft_seconds))]
    done = {(repr(one.change), one.seed, one.rate) for one in runs}
    wanted = [(change, *at) for change in changes for at in (*((seed, 1.0) for seed in SEEDS), *((SEEDS[0], rate) for rate in RATES))]
    return _numbered(asked, len(runs), [one for one in wanted if (repr(one[0]), *one[1:]) not in done])


def _numbered(asked: Asked, begin: int, wanted: Iterable[tuple[PoolChange, int, float]]) -> list[JobRun]:
    return [
        JobRun(number=number, policy=asked.policy, parameters=asked.parameters, rate=rate, seed=seed, change=change)
        for number, (change, seed, rate) in enumerate(wanted, begin)
    ]


def of_change(change: PoolChange, runs: Sequence[JobRun], found: Trialled) -> tuple[list[JobRun], Trialled] | None:
    """Return the runs that show the effect of `change`, in the order of a plan's runs, with their figures. None if such
    a run is missing.
    """
    wanted = [(one, seed, 1.0) for seed in SEEDS for one in (AS_IT_IS, change)] + [(change, SEEDS[0], rate) for rate in RATES]
    places = {(repr(one.change), one.seed, one.rate): place for place, one in enumerate(runs)}
    chosen = [places.get((repr(one), seed, rate)) for one, seed, rate in wanted]
    taken = [place for place in chosen if place is not None]
    if len(taken) < len(wanted):
        return None
    figures = [found.figures[place] for place in taken]
    return [runs[place] for place in taken], Trialled(figures=figures, recorded=found.recorded, measured_seconds=found.measured_seconds)


def simulated(
    asked: Asked, simulation: str, runs: Sequence[JobRun], found: Trialled, reach: Reach, requests: int, seconds: float
) -> Simulated:
    """Return the result of a simulation for advice, from the figures of all its runs."""
    as_it_is = [one for run, one in zip(runs, found.figures, strict=True) if run.change == AS_IT_IS]
    changes = {repr(one.change): one.change for one in runs if one.change not in (None, AS_IT_IS)}
    tried = [one for change in changes.values() if change is not None and (one := _tried(change, runs, found, reach)) is not None]
    return Simulated(
        simulation=simulation,
        role=asked.role,
        present=asked.present,
        goal=asked.goal,
        ttft_seconds=asked.slo_ttft_seconds,
        tpot_seconds=asked.slo_tpot_seconds,
        requests=requests,
        seconds=seconds,
        before=sum(one.attainment for one in as_it_is) / len(as_it_is),
        numbers=tuple(one for change, one in tried if change.replicas is not None),
        ttfts=tuple(one for change, one in tried if change.slo_ttft_seconds is not None),
        reach=reach,
        unlike=unlike_recorded(as_it_is, found.recorded),
        host_cache=next((one.host_cache for one in found.figures if one.host_cache is not None), None),
        held=asked.held,
    )


def _tried(change: PoolChange, runs: Sequence[JobRun], found: Trialled, reach: Reach) -> tuple[PoolChange, Tried] | None:
    of_it = of_change(change, runs, found)
    if of_it is None:
        return None
    figures = of_it[1].figures
    (expected,) = [one for one in figures_of(of_it[1]) if one.quantity is Quantity.ATTAINMENT]
    value = change.slo_ttft_seconds if change.replicas is None else change.replicas
    seeded = figures[1 : 2 * len(SEEDS) : 2]
    drop = drop_of(fmean(one.attainment for one in seeded), figures[-1].attainment, RATES[-1], reach.swing)
    return change, Tried(
        value=float(value or 0),
        attainments=tuple(one.attainment for one in seeded),
        fewer=figures[-2].attainment,
        more=figures[-1].attainment,
        error=max(drop, *(sampling_error(one) for one in seeded)),
        unknown=expected.unknown,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingTrial:
    """A simulation for advice that is to be queued. With a `refusal`, only the reason for not simulating is stored."""

    id: str
    pool: PoolKey
    asked: Asked
    runs: Sequence[JobRun]
    target: SimulatedTarget | None
    window: tuple[datetime, datetime]
    total: int
    refusal: str | None
