"""Mooncake's testbed in the simulator: pools of prefill and decode instances of the A800 preset under the conversation
trace, and the figures of a run.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from math import fsum
from multiprocessing import get_context
from typing import Any

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.measuring import Figures, Targets
from fairlead_simulator.experiments.saturation import believed_speed
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from reproductions.runs import workload
from reproductions.sections import Context

ENGINE = preset("mooncake-a800-llama70b")
PREFILL_INSTANCES = 8
TTFT_SECONDS = 30.0
TPOT_SECONDS = 0.05
HEADROOM = 0.9
"""The share of `TPOT_SECONDS` up to which pools admit, so that a request admitted at the limit is still in time."""
MODES = ("AfterPrefill", "Load", "Predicted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run to be made. `rate` is in requests per second.

    With seed 0, requests with equal timestamps arrive at once, as recorded. With other seeds they arrive at random
    times before the next timestamp. Seeds change nothing else, except in the policy `random`.
    """

    decode_instances: int
    rate: float
    mode: str = "Disabled"
    policy: str = "mooncake"
    parameters: tuple[tuple[str, Any], ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """The mean loads of a pool's prefill and decode instances at a second, as the router sees them, in units of the
    SLO.
    """

    at: float
    prefill: float
    decode: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of a trial.

    Times are in seconds. Shares are of all requests, if their docstrings do not say otherwise.
    """

    trial: Trial
    figures: Figures
    refused: int
    refused_prefilled: int
    """Number of requests that were refused only after their prefill."""
    wasted_share: float
    """Share of all computed prompt tokens that belongs to requests that were refused afterwards."""
    ttft_mean: float
    fetched_tokens: int
    """Number of prefix tokens that were sent from one prefill instance to another."""
    served_prompt: float
    refused_prompt: float
    """Mean number of prompt tokens of the refused requests; 0 if none was refused."""
    older_share: float
    """Share of the decodes running at a random moment that have run for longer than the mean duration of a decode."""
    loads: tuple[LoadSample, ...] = field(repr=False)


def requests_of(context: Context, requests: int) -> Workload:
    """Return the first requests of the conversation trace, or generated requests; only a few if quick."""
    return workload("conversation", requests=250 if context.quick else requests, max_input=None, recorded=context.conversation)


def run_trials(context: Context, loaded: Workload, trials: Sequence[Trial]) -> list[Outcome]:
    """Return all outcomes, in the trials' order."""
    found: list[Outcome] = []
    for outcome in _outcomes(context, loaded, trials):
        found.append(outcome)
        trial = outcome.trial
        context.say(
            f"mooncake: {len(found)}/{len(trials)}  {PREFILL_INSTANCES}P+{trial.decode_instances}D {trial.policy} {trial.mode}, {trial.rate:g}/s, "
            f"seed {trial.seed}: {outcome.figures.rejected_share:.1%} refused, {outcome.figures.attainment:.1%} in time"
        )
    return found


def _outcomes(context: Context, loaded: Workload, trials: Sequence[Trial]) -> Iterator[Outcome]:
    ideal, _ = ideal_hits(loaded)
    if context.jobs == 1:
        yield from (run_trial(loaded, ideal, trial) for trial in trials)
        return
    with ProcessPoolExecutor(max_workers=context.jobs, mp_context=get_context("spawn")) as pool:
        yield from (future.result() for future in [pool.submit(run_trial, loaded, ideal, trial) for trial in trials])


def run_trial(loaded: Workload, ideal: Sequence[int], trial: Trial) -> Outcome:
    """Simulate a trial and return its outcome."""
    spec = SimulatedPool(
        preset=ENGINE,
        instances=0,
        prefill_instances=PREFILL_INSTANCES,
        decode_instances=trial.decode_instances,
        policy=trial.policy,
        parameters=dict(trial.parameters),
        early_rejection=trial.mode,
        slo_ttft_seconds=TTFT_SECONDS,
        slo_tpot_seconds=HEADROOM * TPOT_SECONDS,
        prefill_tokens_per_second=believed_speed(loaded, ideal, ENGINE),
        fetching=True,
        knows_decode_times=True,
        seed=trial.seed,
    )
    cell = Cell(
        label=trial.policy,
        spec=spec,
        plan=ArrivalPlan(rate=trial.rate, spread="random" if trial.seed else "none", seed=trial.seed),
        targets=Targets(ttft_seconds=TTFT_SECONDS, tpot_seconds=TPOT_SECONDS),
    )
    loads: list[LoadSample] = []

    def sample(simulation: Simulation, now: float) -> None:
        found = simulation.scheduler.pool_loads(now)
        loads.append(LoadSample(at=now, prefill=found.prefill_mean, decode=found.decode_mean))

    result, run = simulate_cell(loaded, ideal, cell, probe=sample)
    last = max(job.arrives_at for job in run.jobs)
    return outcome_of(trial, result.figures, run.jobs, run.transferred_tokens, tuple(one for one in loads if 0.15 * last <= one.at <= last))


def outcome_of(trial: Trial, figures: Figures, jobs: Sequence[Job], transferred_tokens: int, loads: tuple[LoadSample, ...]) -> Outcome:
    """Return the outcome of a run in which no instance failed."""
    served = [job for job in jobs if job.phase is Phase.FINISHED]
    refused = [job for job in jobs if job.phase is Phase.REFUSED]
    prefilled = [job for job in refused if job.prefilled > 0]
    wasted, useful = (sum(job.input_tokens - job.hit_tokens for job in some) for some in (prefilled, served))
    handed_over = sum(job.input_tokens for job in (*served, *prefilled) if job.output_tokens > 1)
    decodes = [job.finished_at - job.first_token_at for job in served]
    return Outcome(
        trial=trial,
        figures=figures,
        refused=len(refused),
        refused_prefilled=len(prefilled),
        wasted_share=wasted / max(1, wasted + useful),
        ttft_mean=average([job.first_token_at - job.arrives_at for job in served]),
        fetched_tokens=transferred_tokens - handed_over,
        served_prompt=average([job.input_tokens for job in served]),
        refused_prompt=average([job.input_tokens for job in refused]),
        older_share=older_than_mean(decodes),
        loads=loads,
    )


def older_than_mean(seconds: Sequence[float]) -> float:
    """Return the share of running things that, at a random moment, have run for longer than the mean duration.

    `seconds` are durations. The chance that a thing runs at that moment is proportional to its duration.
    """
    mean = average(seconds)
    return fsum(max(0.0, one - mean) for one in seconds) / fsum(seconds) if mean else 0.0


def average(values: Sequence[float]) -> float:
    """Return the mean of the values; 0 if there are none."""
    return fsum(values) / len(values) if values else 0.0
