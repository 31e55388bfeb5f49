"""The causes of missed targets when the routers of a pool cannot ask each other: whether a late request waited for
prompts of its own router or of other routers.

    .venv/bin/python -m benchmarks.apart_losses [--conversation TRACE] [--requests 2000] [--warmup 200] [--seed 0]

Runs the cells of the section `apart` of docs/benchmarks.md. In these cells, a router knows only its own prompts. For
each request that missed a target, the benchmark says whether the request was refused, late or slow. It also says which
share of a time the instance spent on prompts of the request's own router, and which share on prompts of other routers.
For a late request, this is the time that it waited; for a slow request, it is the time of its answer.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command_line import a_file, count, zero_or_more
from reproductions.apart import ARMS, LOADS, PRESET, REQUESTS, Arm, cell_of
from reproductions.runs import table, workload
from reproductions.sections import Context

from fairlead_simulator.experiments.arrival_plans import ideal_hits
from fairlead_simulator.experiments.cells import simulate_cell
from fairlead_simulator.simulation.jobs import Job, Phase

HEADING = ("", "share of requests, %", "on own router's prompts, %", "on other routers' prompts, %")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """The period in which an instance computed the prompt of a request, in seconds of the run, and the router of the
    request.
    """

    begin: float
    end: float
    router: int
    job: Job


def prefills_of(jobs: Iterable[Job]) -> dict[str, list[Prefill]]:
    """Return each instance's prefills in order.

    A prefill begins when its request is admitted, or when the prefill before it ends if that is later.
    """
    found: dict[str, list[Prefill]] = {}
    for job in sorted((job for job in jobs if job.first_token_at >= 0), key=lambda job: job.first_token_at):
        before = found.setdefault(job.instance, [])
        begin = max(job.admitted_at, before[-1].end) if before else job.admitted_at
        before.append(Prefill(begin=begin, end=job.first_token_at, router=job.router, job=job))
    return found


def spent(prefills: Iterable[Prefill], job: Job, begin: float, end: float) -> tuple[float, float]:
    """Return two shares (0-1) of this period: the share that the instance spent on other prompts of the request's own
    router, and the share that it spent on prompts of other routers. Both are 0 if the period is empty.
    """
    own = others = 0.0
    for one in prefills:
        seconds = min(end, one.end) - max(begin, one.begin)
        if seconds > 0 and one.job is not job:
            own, others = (own + seconds, others) if one.router == job.router else (own, others + seconds)
    return (own / (end - begin), others / (end - begin)) if end > begin else (0.0, 0.0)


def losses(jobs: Sequence[Job], warmup: int, ttft_seconds: float, tpot_seconds: float) -> Iterator[tuple[str, float, float]]:
    """Yield, for each request that missed a target, its outcome and the shares from `spent`.

    For a late request, they are shares of the time that it waited; for other requests, shares of the time of its
    answer.
    """
    prefills = prefills_of(jobs)
    for job in jobs:
        if job.index < warmup:
            continue
        if job.phase is not Phase.FINISHED:
            yield "refused", 0.0, 0.0
        elif job.first_token_at - job.arrives_at >= ttft_seconds:
            yield "late", *spent(prefills[job.instance], job, job.arrives_at, job.first_token_at)
        else:
            slow = job.finished_at - job.first_token_at > tpot_seconds * (job.output_tokens - 1) > 0
            yield "slow" if slow else "in time", *spent(prefills[job.instance], job, job.first_token_at, job.finished_at)


def _rows(name: str, jobs: Sequence[Job], warmup: int) -> Iterator[tuple[str, ...]]:
    found = list(losses(jobs, warmup, PRESET.slo_ttft_seconds, PRESET.slo_tpot_seconds))
    for fate in ("in time", "slow", "late", "refused"):
        parts = [(own, others) for what, own, others in found if what == fate]
        served = parts if fate != "refused" else []
        means = [f"{100 * sum(each) / len(served):.0f}" for each in zip(*served, strict=True)] or ["–", "–"]
        yield (f"{name}, {fate}", f"{100 * len(parts) / len(found):.1f}", *means)


def _run(context: Context, requests: int, load: float, arm: Arm, seed: int) -> list[Job]:
    loaded = workload("conversation", requests=requests, max_input=PRESET.max_input_tokens, recorded=context.conversation)
    _, result = simulate_cell(loaded, ideal_hits(loaded)[0], cell_of(context, loaded, load, arm, seed))
    return list(result.jobs)


def main() -> None:
    """Run each cell and print its rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--conversation", type=a_file, help="Mooncake's conversation trace; without this option, conversations are generated"
    )
    parser.add_argument("--requests", type=count, default=REQUESTS)
    parser.add_argument("--warmup", type=zero_or_more, default=200, help="first requests, which are not measured")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    context = Context(docs=Path("docs"), conversation=options.conversation)
    rows: list[tuple[str, ...]] = []
    for load in LOADS:
        for arm in ARMS:
            jobs = _run(context, options.requests, load, arm, options.seed)
            rows += _rows(f"{load:g}×, {arm.name}", jobs, int(options.warmup))
    print(table(HEADING, rows))
    sys.exit(0)


if __name__ == "__main__":
    main()
