"""The effect of a policy on agents: how many of their tasks are completed, how long tasks take, and how many turns are
refused.

`python -m benchmarks.agent_tasks --trace coding_agents.jsonl` runs the sessions of a trace as tasks on a simulated
pool, with each of several policies. In an open loop, turns arrive at the trace's times. In a closed loop, a turn
arrives when the turn before has ended and the tool has run. Without a trace, coding agents are generated. A task is
complete if none of its turns was refused. In a closed loop a refused turn ends its task, because clients do not repeat
it.

Rates are multiples of the open loop's saturation, which is estimated for an endless cache. A trace with few sessions
does not fill a pool in a closed loop. Therefore `--copies` repeats the trace, and each copy gets texts of its own.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import islice
from math import fsum
from pathlib import Path
from random import Random

from benchmarks.command_line import a_file, above_zero, count, names_of

from fairlead.errors import FairleadError
from fairlead.tables import EARLY_REJECTION_MODES
from fairlead_simulator.engine_model.presets import PRESETS, preset
from fairlead_simulator.errors import SimulatorError
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, exchanged, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.choices import PolicyChoice, parse_policies
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.descriptions import percentile
from fairlead_simulator.traces.rows import TraceRow, read_trace
from fairlead_simulator.workloads.kinds import KINDS

POLICIES = "fairlead,fairlead:keep_weight=3,fairlead:unfinished_first=true,fairlead:keep_weight=3;unfinished_first=true,ear,min-ttft,preble"
LOOPS = ("open", "closed")
ANSWER_SECONDS = 0.02
"""Assumed seconds per output token. They are needed for a trace that does not record for how long tools ran."""
COPY_BLOCKS = 1 << 40
"""Difference between the block ids of one copy of a trace and the block ids of the next copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """The figures of one run. Shares are shares of all tasks.

    The duration of a task is the sum over its turns: the seconds from the turn's arrival to the end of its answer.
    """

    complete: float
    refused: float
    """Refused turns per task."""
    begun: float
    """Refused turns per task. A refusal of a task's first turn is not counted, because the task had not begun."""
    seconds_p50: float
    seconds_p90: float
    hits: float
    first_tokens: float
    output_tokens_per_second: float
    complete_tokens_per_second: float
    """Output tokens of complete tasks, per second of the whole run."""
    computed_in_vain: float
    """The share of all computed tokens that was computed for tasks that were not completed."""


def agent_rows(trace: Path | None, requests: int, copies: int) -> list[TraceRow]:
    """Return the turns of the trace or, without a trace, generated turns. Each turn has the time that tools ran before
    it.
    """
    rows = read_trace(trace) if trace is not None else KINDS["coding-agents"].rows(None, None, 0)
    return repeated(list(with_pauses(islice(rows, requests))), copies)


def with_pauses(rows: Iterator[TraceRow]) -> Iterator[TraceRow]:
    """Yield the rows, each with the pause before it. If a row has no pause, the pause is computed from timestamps.

    Raises SimulatorError for a row without a session.
    """
    last: dict[str, TraceRow] = {}
    for number, row in enumerate(rows, 1):
        if row.session is None:
            raise SimulatorError(f"request {number} has no session_id; give a trace in which every request has one")
        before = last.get(row.session)
        last[row.session] = row
        if before is None or row.pause_ms is not None:
            yield row
        else:
            answered_ms = before.timestamp_ms + 1e3 * ANSWER_SECONDS * before.output_length
            yield replace(row, pause_ms=max(0.0, row.timestamp_ms - answered_ms))


def repeated(rows: Sequence[TraceRow], copies: int) -> list[TraceRow]:
    """Return a workload with `copies` copies of each session, in a random order. Each copy has block ids of its own.

    Sessions begin at the same rate as in `rows`.
    """
    if copies == 1:
        return list(rows)
    began: dict[str | None, float] = {}
    for row in rows:
        began.setdefault(row.session, row.timestamp_ms)
    sessions = [(copy, session) for copy in range(copies) for session in began]
    Random(0).shuffle(sessions)
    span = copies * (max(began.values()) - min(began.values()))
    begins = {one: span * place / len(sessions) for place, one in enumerate(sessions)}
    made = [
        replace(
            row,
            session=f"{row.session}.{copy}",
            hash_ids=tuple(block + copy * COPY_BLOCKS for block in row.hash_ids),
            timestamp_ms=begins[copy, row.session] + row.timestamp_ms - began[row.session],
        )
        for copy in range(copies)
        for row in rows
    ]
    return sorted(made, key=lambda row: row.timestamp_ms)


def run(options: argparse.Namespace, policy: PolicyChoice, rate: float, loop: str, seed: int) -> Tasks:
    """Simulate a policy at a rate in an open or closed loop with a seed, and return the figures of its tasks."""
    engine = preset(options.preset)
    copies = options.copies if loop == "closed" else 1
    workload, ideal, saturation = _loaded(options.trace, options.requests, copies, options.preset, options.instances, seed)
    pool = SimulatedPool(
        preset=engine,
        instances=options.instances,
        policy=policy.name,
        parameters=policy.parameters,
        prefill_tokens_per_second=believed_speed(workload, ideal, engine),
        slo_ttft_seconds=options.ttft or engine.slo_ttft_seconds,
        slo_tpot_seconds=options.tpot or engine.slo_tpot_seconds,
        early_rejection=options.early_rejection,
        seed=seed,
    )
    targets = Targets(ttft_seconds=pool.slo_ttft_seconds, tpot_seconds=pool.slo_tpot_seconds)
    plan = ArrivalPlan(rate=rate * saturation, seed=seed, closed_loop=loop == "closed")
    kept, result = simulate_cell(workload, ideal, Cell(label=policy.name, spec=pool, plan=plan, targets=targets))
    figures = kept.figures
    return measured(result.jobs, result.ended_at, figures.hit_rate, figures.ttft_attainment, figures.output_tokens_per_second)


@lru_cache(maxsize=4)
def _loaded(
    trace: Path | None, requests: int, copies: int, engine: str, instances: int, seed: int
) -> tuple[Workload, tuple[int, ...], float]:
    rows = agent_rows(trace, requests, copies)
    longest = preset(engine).max_input_tokens
    loaded = exchanged(load_workload(rows, requests=None, max_input=longest, infer_sessions=False), seed)
    ideal = tuple(ideal_hits(loaded)[0])
    return loaded, ideal, estimate_saturation(loaded, ideal, preset(engine), instances, 0, 0).requests_per_second


def measured(jobs: Sequence[Job], ended_at: float, hits: float, first_tokens: float, output_tokens_per_second: float) -> Tasks:
    """Return the figures of a run's tasks."""
    tasks: dict[str | None, list[Job]] = {}
    for job in jobs:
        tasks.setdefault(job.session, []).append(job)
    complete = [turns for turns in tasks.values() if all(job.phase is Phase.FINISHED for job in turns)]
    seconds = sorted(fsum(job.finished_at - job.arrives_at for job in turns) for turns in complete)
    refused = [job for job in jobs if job.phase is Phase.REFUSED and job.request is not None]
    first = {turns[0].index for turns in tasks.values()}
    computed = [(job.index, job.input_tokens - job.hit_tokens + job.output_tokens) for job in jobs if job.phase is Phase.FINISHED]
    useful = {job.index for turns in complete for job in turns}
    everything = sum(tokens for _, tokens in computed)
    return Tasks(
        complete=len(complete) / len(tasks),
        refused=len(refused) / len(tasks),
        begun=sum(job.index not in first for job in refused) / len(tasks),
        seconds_p50=percentile(seconds, 50) if seconds else 0.0,
        seconds_p90=percentile(seconds, 90) if seconds else 0.0,
        hits=hits,
        first_tokens=first_tokens,
        output_tokens_per_second=output_tokens_per_second,
        complete_tokens_per_second=sum(job.output_tokens for turns in complete for job in turns) / ended_at,
        computed_in_vain=sum(tokens for index, tokens in computed if index not in useful) / everything if everything else 0.0,
    )


def mean(runs: Sequence[Tasks]) -> Tasks:
    """Return the mean of each figure over runs."""
    return Tasks(**{one.name: fsum(getattr(run, one.name) for run in runs) / len(runs) for one in fields(Tasks)})


def line(loop: str, rate: float, policy: str, tasks: Tasks) -> str:
    """Return a row of the table."""
    return (
        f"| {loop}, {rate:g}× | `{policy}` | {100 * tasks.complete:.1f} % | {tasks.refused:.2f} | {tasks.begun:.2f} | "
        f"{tasks.seconds_p50:.0f} / {tasks.seconds_p90:.0f} | {100 * tasks.hits:.1f} % | {100 * tasks.first_tokens:.1f} % | "
        f"{tasks.output_tokens_per_second:,.0f} | {tasks.complete_tokens_per_second:,.0f} | {100 * tasks.computed_in_vain:.1f} % |"
    )


HEADING = (
    "| | policy | tasks complete | refused turns a task | not the first | a task's seconds P50 / P90 | hits | first tokens in time | "
    "output tokens/s | of complete tasks | computed in vain |\n| --- | --- |" + " ---: |" * 9
)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--trace", type=a_file, help="trace of sessions in Mooncake's format, with session_id; without this option, one is generated"
    )
    parser.add_argument("--requests", type=count, default=3000, help="maximum number of turns that are used of the trace")
    parser.add_argument("--copies", type=count, default=1, help="copies of the trace in a closed loop")
    parser.add_argument("--preset", type=str, choices=sorted(PRESETS), default="vllm-h100-8b", help="the engine")
    parser.add_argument("--instances", type=count, default=8)
    parser.add_argument("--ttft", type=above_zero, help="target in seconds; without this option, the preset's")
    parser.add_argument("--tpot", type=above_zero, help="target in seconds; without this option, the preset's")
    parser.add_argument("--early-rejection", choices=EARLY_REJECTION_MODES[:-1], default="Disabled", help="the pool's mode")
    parser.add_argument("--loops", type=names_of(LOOPS), default=list(LOOPS), help="open,closed")
    parser.add_argument("--rates", default="0.75,1,1.25", help="rates, as multiples of the saturation")
    parser.add_argument("--policies", default=POLICIES, help="policies, such as fairlead,fairlead:keep_weight=3,ear")
    parser.add_argument("--seeds", type=count, default=3)
    options = parser.parse_args()
    try:
        options.rates = [above_zero(part) for part in options.rates.split(",")]
        options.policies = list(zip(options.policies.split(","), parse_policies(options.policies), strict=True))
    except (argparse.ArgumentTypeError, FairleadError, SimulatorError) as error:
        parser.error(str(error))
    return options


def main() -> None:
    """Print the table, each line as soon as it is measured."""
    options = _options()
    print(HEADING, flush=True)
    for loop in options.loops:
        for rate in options.rates:
            for name, policy in options.policies:
                runs = [run(options, policy, rate, loop, seed) for seed in range(options.seeds)]
                print(line(loop, rate, name, mean(runs)), flush=True)


if __name__ == "__main__":
    main()
