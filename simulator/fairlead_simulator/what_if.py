"""`python -m fairlead_simulator.what_if`: simulates a job for the control API, which reads the lines that this process
prints.

The process reads the job and the requested runs from standard input (`fairlead_client.simulation_jobs`). When standard
input closes, nobody reads further figures, so the process ends at once.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import gcd
from queue import SimpleQueue

from fairlead.engine_specs import SimulatedSpec
from fairlead.errors import FairleadError
from fairlead.scaling.host_caches import HostCache
from fairlead_client.resources.simulations import TraceRequest
from fairlead_client.simulation_jobs import (
    PARTS,
    JobLine,
    JobRun,
    PartFigures,
    PoolChange,
    RunFigures,
    SimulatedTarget,
    SimulationJob,
    decode_job,
    decode_run,
    encode_line,
)
from fairlead_simulator.engine_fit.engine_files import with_costs
from fairlead_simulator.engine_model.costs import PrefillCost
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS
from fairlead_simulator.engine_model.presets import EnginePreset, preset, usual_load, with_measured_steps
from fairlead_simulator.errors import SimulatorError, WorkloadImpossible
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, arrivals, exchanged, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.host_caches import tried
from fairlead_simulator.experiments.measuring import Figures, Targets, measure
from fairlead_simulator.simulation.autoscaling import ScalingByRole, SimulatedScaling
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.run_results import RunResult
from fairlead_simulator.simulation.timeline import Drain, Override, ScaleTo, TimelineEvent
from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow

TELL_SECONDS = 0.25
PROMPT_TOKENS = 2_000
"""The prompt length in tokens for which a model's prefill speed is compared with the speed of a pool's instances."""
LONGEST_SECONDS = 30 * 86_400.0
_FULL = 0.98
"""Maximum share of an engine's KV memory that one request may need. Requests that need more are left out."""

Tell = Callable[[JobLine], None]


def run_job(job: SimulationJob, runs: Iterable[JobRun], tell: Tell) -> None:
    """Simulate the requested runs of a job, one after the other, and pass the results to `tell`. Each run sends the
    recorded requests; if its seed is not 0, the sessions exchange their start times. Raises WorkloadImpossible, and
    InvalidInput for parameters of a policy.
    """
    engine, words = engine_of(job.target)
    workload, notes = workload_of(job.requests, engine)
    ideal, _ = ideal_hits(workload)
    engine, decoding = with_steps_of(job.target, engine, workload, ideal, job.weight)
    notes.append(words + decoding)
    tell(JobLine(notes=notes, alone=alone_seconds(job.requests, workload, ideal, engine) if job.tells_alone else []))
    by_seed = {0: (workload, ideal)}
    for run in runs:
        seed = run.seed or 0
        if seed not in by_seed:
            other = exchanged(workload, seed)
            by_seed[seed] = (other, ideal_hits(other)[0])
        tell(JobLine(figures=_simulated(*by_seed[seed], job, engine, run, tell)))


def engine_of(target: SimulatedTarget) -> tuple[EnginePreset, str]:
    """Return an engine model with the KV cache size and the prefill speed of the pool's instances, and a description of
    the model for the user.

    If the pool's engines are simulated engines, the model has their settings.
    """
    base, known = preset(target.engine.value), target.prefill_tokens_per_second
    if target.simulated is not None:
        words = f"Engines: simulated as the pool declares them; they compute {known:,.0f} prompt tokens/s."
        return _as_served(base, target, target.simulated), words
    if target.fitted is not None:
        fitted = replace(with_costs(base, target.fitted), kv_tokens=target.kv_cache_tokens, dram_tokens=None)
        return replace(fitted, max_input_tokens=None), target.fit_words
    speed = target.prefill_tokens_per_second * base.prefill.seconds(PROMPT_TOKENS, PROMPT_TOKENS) / PROMPT_TOKENS
    sized = (
        replace(base, kv_tokens=target.kv_cache_tokens) if base.dram_tokens is None else replace(base, dram_tokens=target.kv_cache_tokens)
    )
    words = (
        f"Engines: model {base.name}, estimated from data sheets, at {speed:.3g} times its speed, as instances compute "
        f"{known:,.0f} prompt tokens/s ({target.speed_source or 'declared, not measured yet'})."
    )
    return replace(sized.at_speed(speed), max_input_tokens=None), words


def with_steps_of(
    target: SimulatedTarget, engine: EnginePreset, workload: Workload, ideal: Sequence[int], weight: float
) -> tuple[EnginePreset, str]:
    """Return the engine with its decode steps scaled to the time per token that was measured while these requests
    arrived, and a description of this change for the user.

    The engine does not change, and the description is "", in three cases: no time was measured; the decode steps are
    fitted; or the pool's engines are simulated.
    """
    step, instances = target.decode_step_seconds, target.decoding_instances
    if step is None or not instances or target.fitted is not None or target.simulated is not None:
        return engine, ""
    measured = f"A token after the first took {1000 * step:.1f} ms ({target.decode_source})"
    load = usual_load(workload.rows, ideal, engine, workload.native_rate * weight / instances)
    found = with_measured_steps(engine, step, load, prefills=not target.prefill_instances)
    if found is None:
        return engine, f" {measured}, which is too far from the model; the model's own decode steps are simulated."
    return found, f" {measured}, and the model's decode steps are scaled to this time."


def _as_served(base: EnginePreset, target: SimulatedTarget, spec: SimulatedSpec) -> EnginePreset:
    """Return an engine model that behaves like a simulated engine with the settings `spec`."""
    at_one = replace(
        base,
        block_tokens=gcd(spec.block_size, PREFIX_BLOCK_TOKENS),  # prompts are known in prefix blocks, which engine blocks divide
        kv_tokens=target.kv_cache_tokens,
        max_sequences=spec.max_running,
        prefill=PrefillCost(per_token=spec.time_scale / target.prefill_tokens_per_second),
        decode=replace(base.decode, fixed=spec.decode_step_seconds),
    )
    return at_one.at_speed(spec.time_scale)


def workload_of(requests: Sequence[TraceRequest], engine: EnginePreset) -> tuple[Workload, list[str]]:
    """Return the requests that one engine can serve, as a workload, and descriptions of the changes for the user.
    Raises WorkloadImpossible.
    """
    fitting = [one for one in requests if _fits(one, engine)]
    notes = []
    if len(fitting) < len(requests):
        notes.append(
            f"{len(requests) - len(fitting)} requests are left out: they need more than an engine's {engine.kv_tokens:,} KV tokens."
        )
    workload = load_workload((_row(number, one) for number, one in enumerate(fitting)), requests=None, max_input=None, infer_sessions=True)
    if len(workload.rows) < 2 or workload.native_rate <= 0:
        raise WorkloadImpossible("there must be two requests or more, at different times; choose a longer window or another trace")
    if workload.found_sessions is not None and workload.found_sessions.inferred:
        notes.append(f"Sessions: {workload.found_sessions.words}.")
    return workload, notes


def _fits(one: TraceRequest, engine: EnginePreset) -> bool:
    return one.input_length + one.output_length <= engine.capacity_blocks * engine.block_tokens * _FULL


def alone_seconds(requests: Sequence[TraceRequest], workload: Workload, ideal: Sequence[int], engine: EnginePreset) -> list[float | None]:
    """Return `JobLine.alone`: for each request, the prefill seconds on an idle engine with the hits of an unlimited
    shared cache. The value is None for a request that does not fit the engine. The workload's rows are the requests
    that fit.
    """
    fitting = iter(
        engine.prefill.seconds(max(1, row.input_length - hit), row.input_length) for row, hit in zip(workload.rows, ideal, strict=True)
    )
    return [round(next(fitting), 6) if _fits(one, engine) else None for one in requests]


def _row(number: int, one: TraceRequest) -> TraceRow:
    """Return the trace row of a request. A block without an id gets an id that no other block has."""
    missing = -(-one.input_length // BLOCK_TOKENS) - len(one.hash_ids)
    own = tuple(-(number * 4096 + place + 1) for place in range(missing))
    return TraceRow(
        timestamp_ms=one.timestamp,
        input_length=one.input_length,
        output_length=one.output_length,
        hash_ids=(*one.hash_ids, *own),
        session=one.session_id,
    )


def _simulated(workload: Workload, ideal: Sequence[int], job: SimulationJob, engine: EnginePreset, run: JobRun, tell: Tell) -> RunFigures:
    target = job.target
    rate = workload.native_rate * job.weight * run.rate
    if len(workload.rows) > rate * LONGEST_SECONDS:
        raise WorkloadImpossible(f"{len(workload.rows):,} requests at {rate:.2g} a second take more than 30 days; choose a higher rate")
    spec = SimulatedPool(
        preset=engine,
        instances=target.instances,
        prefill_instances=target.prefill_instances,
        decode_instances=target.decode_instances,
        policy=run.policy,
        parameters=run.parameters,
        early_rejection=target.early_rejection,
        headroom=target.headroom,
        prefills_in_flight=target.prefills_in_flight,
        anchors=target.anchors,
        weights=tuple(target.weights),
        slo_ttft_seconds=target.slo_ttft_seconds,
        slo_tpot_seconds=target.slo_tpot_seconds,
        prefill_tokens_per_second=target.prefill_tokens_per_second,
        session_ttl_seconds=target.session_ttl_seconds,
        seed=job.seed if run.seed is None else run.seed,
    )
    if run.host_cache_tokens is not None:
        one = _host_cache(workload, job, spec, run.host_cache_tokens)
        _Progress(tell).finish(len(job.requests))
        return _nothing_but(one, run, rate)
    targets = Targets(ttft_seconds=target.slo_ttft_seconds, tpot_seconds=target.slo_tpot_seconds)
    plan = ArrivalPlan(rate=rate, spread="even", seed=spec.seed)  # recorded stamps stay; those of a trace may be whole seconds
    half = 0 if run.change is None else len(workload.rows) // 2
    timeline, scaling = ((), None) if run.change is None else changes_of(run.change, arrivals(workload, plan)[half])
    cell = Cell(label=run.policy, spec=spec, plan=plan, timeline=timeline, scaling=scaling, targets=targets)
    progress = _Progress(tell)
    result, outcome = simulate_cell(workload, ideal, cell, on_progress=progress.add)
    progress.finish(len(job.requests))
    if run.change is None:
        return _figures(run, rate, result.figures)
    targets = replace(targets, ttft_seconds=run.change.slo_ttft_seconds or targets.ttft_seconds)
    changed_at = outcome.jobs[half].arrives_at
    migrations = [move for move in outcome.migrations if move.at >= changed_at]
    return replace(
        _figures(run, rate, measure(outcome, ideal, half, targets)),
        migrations=len(migrations),
        reroutes=sum(move.at >= changed_at for move in outcome.reroutes),
        sessions_moved=round(len({move.session for move in migrations}) * job.weight),
        parts=_parts(outcome, ideal, targets, parts_by_time(half, len(outcome.jobs))),
        session_parts=_parts(outcome, ideal, targets, parts_by_session(outcome.jobs[half:])),
    )


_WHOLE = 1.001
"""A job has a weight: the number of real requests per recorded request. Up to this weight, all requests count as
recorded.
"""
LOADED_TIMES = 10.0
"""Assumed ratio of two speeds of an engine: loading tokens from host memory, and computing tokens."""


def _host_cache(workload: Workload, job: SimulationJob, spec: SimulatedPool, tokens: int) -> HostCache | None:
    """Return the gain of a cache in host memory; None if it cannot be estimated. No estimate is possible for pools of
    prefill and decode instances, or if the prefix cache is not on the GPU. No estimate is possible either if only some
    sessions were recorded, because the prompts of the other sessions also fill the cache.
    """
    if not spec.instances or spec.preset.dram_tokens is not None or job.weight > _WHOLE:
        return None
    (one,) = tried(workload, spec, LOADED_TIMES * spec.prefill_tokens_per_second, [tokens])
    return one


def _nothing_but(one: HostCache | None, run: JobRun, rate: float) -> RunFigures:
    return RunFigures(
        number=run.number,
        requests_per_second=rate,
        requests=0,
        served=0,
        failed=0,
        attainment=0.0,
        refused_share=0.0,
        ttft_p50=None,
        ttft_p90=None,
        ttft_p99=None,
        tpot_p90=None,
        hit_rate=0.0,
        ideal_hit_rate=0.0,
        migrations=0,
        reroutes=0,
        host_cache=one,
    )


def parts_by_time(begin: int, end: int) -> list[range]:
    """Return the indexes of the jobs from `begin` to `end` (excluded), divided in order of time into `PARTS` ranges."""
    return [range(*pair) for pair in pairwise(begin + (end - begin) * part // PARTS for part in range(PARTS + 1))]


def parts_by_session(jobs: Sequence[Job]) -> list[set[int]]:
    """Return the indexes of the jobs, divided into `PARTS` sets such that all jobs of a session are in the same set. A
    job without a session counts as a session. Empty if there are fewer sessions than sets.
    """
    places: dict[str | int, int] = {}
    parts: list[set[int]] = [set() for _ in range(PARTS)]
    for job in jobs:
        place = places.setdefault(job.index if job.session is None else job.session, len(places))
        parts[place % PARTS].add(job.index)
    return parts if len(places) >= PARTS else []


def _parts(outcome: RunResult, ideal: Sequence[int], targets: Targets, parts: Sequence[Container[int]]) -> list[PartFigures]:
    measured = (measure(outcome, ideal, 0, targets, among) for among in parts)
    return [PartFigures(attainment=one.attainment, refused_share=one.rejected_share, hit_rate=one.hit_rate) for one in measured]


def changes_of(change: PoolChange, at: float) -> tuple[tuple[TimelineEvent, ...], SimulatedScaling | None]:
    """Return the events that make the change to a pool at `at` seconds, and the rules by which the pool is scaled
    during the whole run (None = the pool is not scaled).
    """
    events: list[TimelineEvent] = []
    startup = change.startup_seconds
    if change.replicas is not None:
        events.append(ScaleTo(at=at, instances=change.replicas, role=change.role, startup_seconds=startup, victims="cheapest"))
    if change.drained is not None:
        events.append(Drain(at=at, place=change.drained, role=change.role, is_replaced=change.is_replaced, startup_seconds=startup))
    override = Override(
        at=at,
        slo_ttft_seconds=change.slo_ttft_seconds,
        early_rejection=change.early_rejection,
        headroom=change.headroom,
        prefills_in_flight=change.prefills_in_flight,
        policy=change.policy,
        parameters=change.parameters or {},
    )
    if override != Override(at=at):
        events.append(override)
    rules = change.autoscaled
    if rules is None:
        return tuple(events), None
    scaling = ScalingByRole(
        scaling=rules.scaling,
        ratio=rules.ratio,
        min_replicas=rules.min_replicas,
        max_replicas=rules.max_replicas,
        ranges={one.role: (one.min_replicas, one.max_replicas) for one in rules.roles},
        startup_seconds=startup,
    )
    return tuple(events), scaling


def _figures(run: JobRun, rate: float, found: Figures) -> RunFigures:
    return RunFigures(
        number=run.number,
        requests_per_second=rate,
        requests=found.requests,
        served=found.served,
        failed=found.failed,
        attainment=found.attainment,
        refused_share=found.rejected_share,
        ttft_p50=found.ttft_p50,
        ttft_p90=found.ttft_p90,
        ttft_p99=found.ttft_p99,
        tpot_p90=found.tpot_p90,
        hit_rate=found.hit_rate,
        ideal_hit_rate=found.ideal_hit_rate,
        migrations=found.migrations,
        reroutes=found.reroutes,
    )


class _Progress:
    """Reports how many requests were simulated since the previous report, at most every `TELL_SECONDS`."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._told = self._untold = 0
        self._next = time.monotonic() + TELL_SECONDS

    def add(self, count: int) -> None:
        self._untold += count
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_SECONDS
            self._give()

    def finish(self, total: int) -> None:
        self._untold = total - self._told
        self._give()

    def _give(self) -> None:
        self._tell(JobLine(done=self._untold))
        self._told += self._untold
        self._untold = 0


def main() -> None:
    """Read the job, simulate each requested run, and end when standard input closes."""
    gc.disable()  # reading makes millions of objects and no cycles
    lines = os.fdopen(sys.stdin.fileno(), "rb", closefd=False)  # not sys.stdin's, which Python closes when it ends
    line = lines.readline()
    if not line:
        return
    runs: SimpleQueue[JobRun] = SimpleQueue()
    reading = threading.Thread(target=_read_runs, args=(lines, runs), daemon=True)
    reading.start()
    out = sys.stdout.buffer

    def tell(one: JobLine) -> None:
        out.write(encode_line(one))
        out.flush()

    try:
        run_job(decode_job(line), _asked(runs), tell)
    except (SimulatorError, FairleadError) as error:
        tell(JobLine(error=str(error)))
        reading.join()


def _asked(runs: "SimpleQueue[JobRun]") -> Iterator[JobRun]:
    gc.freeze()  # what all runs have in common stays
    while True:
        yield runs.get()
        gc.collect()


def _read_runs(lines: Iterable[bytes], runs: "SimpleQueue[JobRun]") -> None:
    for line in lines:
        runs.put(decode_run(line))
    os._exit(0)


if __name__ == "__main__":
    main()
