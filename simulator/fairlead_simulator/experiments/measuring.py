"""Computes the figures of a finished run.

The measured requests are selected by their index, so that all policies are judged by the same requests.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from fairlead.reports.bindings import BindingReason
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.run_results import RunResult
from fairlead_simulator.traces.descriptions import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets that a request must meet to be in time, in seconds. Its TTFT must be below `ttft_seconds`, and its
    TPOT at most `tpot_seconds`; None = no target for TPOT.
    """

    ttft_seconds: float
    tpot_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a run over its measured requests. Shares are shares of these requests, 0 to 1. Latencies are in
    seconds, over the served requests; None if no request was served.
    """

    requests: int
    served: int
    failed: int
    rate_achieved: float
    """Arrival rate of the measured requests, in requests per second."""
    attainment: float
    """Share of the requests that were served within both targets; refused and failed requests count as missed."""
    ttft_attainment: float
    """Share of the requests that were served within the TTFT target; refused and failed requests count as missed."""
    rejected_share: float
    ttft_p50: float | None
    ttft_p90: float | None
    ttft_p99: float | None
    tpot_p90: float | None
    e2e_p50: float | None
    e2e_p90: float | None
    hit_rate: float
    """Share of the prompt tokens of served requests that the engines did not have to compute."""
    ideal_hit_rate: float
    """The hit rate that an unlimited cache shared by all instances would have reached with all measured requests."""
    belief_exact: float | None
    """Share of served requests whose number of cached tokens the router predicted exactly when it sent them; None
    without such requests. Neither this figure nor `belief_error` includes requests that fetched tokens from another
    instance.
    """
    belief_error: float | None
    """The sum of the absolute errors in the predicted numbers of cached tokens, divided by all cached tokens; None if
    no token was cached.
    """
    load_cv: float
    """Imbalance of load: the coefficient of variation of the instances' pending prefill tokens. It is averaged over all
    samples of the measured time in which tokens were pending; 0 if there are no such samples.
    """
    migrations: int
    reroutes: int
    preemptions: int
    output_tokens_per_second: float
    """Output tokens per second from the first arrival to the last arrival of the measured requests. Tokens of earlier
    requests in this time are included. The time ends at the last arrival and not at the end of the last answer, because
    the length of that answer would then change the figure.
    """

    @property
    def moves(self) -> int:
        return self.migrations + self.reroutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The figures of one tenant's requests with one priority class; see `Figures`."""

    tenant: str
    priority_class: str
    requests: int
    attainment: float
    rejected_share: float
    ttft_p90: float | None


def measure_parts(result: RunResult, warmup: int, targets: Targets) -> tuple[Part, ...]:
    """Return the figures of the jobs from index `warmup` on, by tenant and priority class; empty if all these jobs have
    the same tenant and the same class.
    """
    parts: dict[tuple[str, str], list[Job]] = {}
    for job in result.jobs:
        if job.index >= warmup:
            parts.setdefault((job.tenant, job.priority_class), []).append(job)
    if len(parts) < 2:
        return ()
    return tuple(_part(tenant, of_class, jobs, targets) for (tenant, of_class), jobs in sorted(parts.items()))


def _part(tenant: str, of_class: str, jobs: Sequence[Job], targets: Targets) -> Part:
    served = [job for job in jobs if job.phase is Phase.FINISHED]
    return Part(
        tenant=tenant,
        priority_class=of_class,
        requests=len(jobs),
        attainment=sum(in_time(job, targets) for job in served) / len(jobs),
        rejected_share=sum(job.phase is Phase.REFUSED for job in jobs) / len(jobs),
        ttft_p90=_percentile(sorted(job.first_token_at - job.arrives_at for job in served), 90),
    )


def measure(result: RunResult, ideal: Sequence[int], warmup: int, targets: Targets, among: Container[int] | None = None) -> Figures:
    """Return the figures of the jobs from index `warmup` on. If `among` is given, only jobs with these indexes count.
    `ideal` has, for each job, the number of its prompt tokens that an unlimited shared cache would hold.
    """
    measured = [job for job in result.jobs if job.index >= warmup and (among is None or job.index in among)]
    served = [job for job in measured if job.phase is Phase.FINISHED]
    arrived = [job.arrives_at for job in measured if job.arrives_at >= 0]
    begin, end = (min(arrived), max(arrived)) if arrived else (0.0, 0.0)
    ttft = sorted(job.first_token_at - job.arrives_at for job in served)
    tpot = sorted((job.finished_at - job.first_token_at) / (job.output_tokens - 1) for job in served if job.output_tokens > 1)
    e2e = sorted(job.finished_at - job.arrives_at for job in served)
    total = len(measured)
    prompt_tokens = sum(job.input_tokens for job in served)
    all_tokens = sum(job.input_tokens for job in measured)
    believed = [(job.believed_tokens, job.hit_tokens) for job in served if job.believed_tokens is not None]
    cached = sum(hit for _, hit in believed)
    return Figures(
        requests=total,
        served=len(served),
        failed=sum(job.phase is Phase.FAILED for job in measured),
        rate_achieved=(len(arrived) - 1) / (end - begin) if end > begin else 0.0,
        attainment=sum(in_time(job, targets) for job in served) / total if total else 0.0,
        ttft_attainment=sum(one < targets.ttft_seconds for one in ttft) / total if total else 0.0,
        rejected_share=sum(job.phase is Phase.REFUSED for job in measured) / total if total else 0.0,
        ttft_p50=_percentile(ttft, 50),
        ttft_p90=_percentile(ttft, 90),
        ttft_p99=_percentile(ttft, 99),
        tpot_p90=_percentile(tpot, 90),
        e2e_p50=_percentile(e2e, 50),
        e2e_p90=_percentile(e2e, 90),
        hit_rate=sum(job.hit_tokens for job in served) / prompt_tokens if prompt_tokens else 0.0,
        ideal_hit_rate=sum(ideal[job.index] for job in measured) / all_tokens if all_tokens else 0.0,
        belief_exact=sum(told == hit for told, hit in believed) / len(believed) if believed else None,
        belief_error=sum(abs(told - hit) for told, hit in believed) / cached if cached else None,
        load_cv=result.variations.mean(begin, end),
        migrations=len(result.migrations),
        reroutes=sum(move.trigger is not BindingReason.PREFIX_COPIED for move in result.reroutes),
        preemptions=result.preemptions,
        output_tokens_per_second=_output_rate((job for job in result.jobs if among is None or job.index in among), begin, end),
    )


def _output_rate(jobs: Iterable[Job], begin: float, end: float) -> float:
    if end <= begin:
        return 0.0
    return sum(_tokens_within(job, begin, end) for job in jobs if job.phase is Phase.FINISHED) / (end - begin)


def _tokens_within(job: Job, begin: float, end: float) -> float:
    """Return the number of an answer's tokens between two times in seconds. The tokens after the first are assumed to
    follow at equal distances.
    """
    first, last = job.first_token_at, job.finished_at
    lasted = min(last, end) - max(first, begin)
    later = (job.output_tokens - 1) * lasted / (last - first) if last > first and lasted > 0 else 0.0
    return later + (begin <= first <= end)


def in_time(job: Job, targets: Targets) -> bool:
    if job.first_token_at - job.arrives_at >= targets.ttft_seconds:
        return False
    if targets.tpot_seconds is None or job.output_tokens < 2:
        return True
    return (job.finished_at - job.first_token_at) / (job.output_tokens - 1) <= targets.tpot_seconds


def _percentile(ordered: Sequence[float], percent: float) -> float | None:
    return percentile(ordered, percent) if ordered else None
