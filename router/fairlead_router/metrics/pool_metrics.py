"""Metrics of each pool: its counters, its current and measured values, and the progress of a learning policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from fairlead.capabilities import Figure
from fairlead.predictors.reports import LearningReport
from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.routing.knowledge.token_sizes import TokenSizeReport
from fairlead_router.metrics.pool_counters import PoolCounters


class PoolReading(NamedTuple):
    """The gauges of one pool at the time of a scrape."""

    pool: str
    held: int
    token_sizes: TokenSizeReport
    speed: Figure
    prefill: EstimateReport
    decode: EstimateReport
    assumed_routers: int = 1


def pool_families(pools: Mapping[str, PoolCounters], tables: Mapping[str, int]) -> Iterator[Metric]:
    """Yield the counters of each pool, and the version of its routing table (`tables`)."""
    requests = CounterMetricFamily("fairlead_router_requests", "Requests by how they ended.", labels=["pool", "outcome"])
    submitted = CounterMetricFamily(
        "fairlead_router_submitted", "Requests handed to the scheduler; each ends in exactly one outcome.", labels=["pool"]
    )
    direct = CounterMetricFamily(
        "fairlead_router_direct_requests",
        "Requests sent to an instance without the scheduler, by how they ended.",
        labels=["pool", "outcome"],
    )
    refused = CounterMetricFamily("fairlead_router_refusals", "Refused requests by reason.", labels=["pool", "reason"])
    errors = CounterMetricFamily("fairlead_router_upstream_errors", "Engine failures by kind.", labels=["pool", "kind"])
    retries = CounterMetricFamily(
        "fairlead_router_retries", "Attempts repeated on another instance before the answer had content.", labels=["pool"]
    )
    carried = CounterMetricFamily(
        "fairlead_router_continued_answers",
        "Answers that another instance continued in the same stream, by reason: how the engine failed, or drained.",
        labels=["pool", "why"],
    )
    uncarried = CounterMetricFamily(
        "fairlead_router_uncontinued_answers",
        "Answers that broke off after they had begun and were not continued, by the obstacle.",
        labels=["pool", "obstacle"],
    )
    handed_over = CounterMetricFamily(
        "fairlead_router_handed_over_sessions",
        "Sessions of leaving instances whose last prompt another instance was asked to compute, by outcome: warmed, or failed.",
        labels=["pool", "outcome"],
    )
    handed_over_tokens = CounterMetricFamily(
        "fairlead_router_handed_over_tokens",
        "Tokens that other instances computed for sessions of leaving instances, before the sessions' next turns.",
        labels=["pool"],
    )
    recomputed = CounterMetricFamily(
        "fairlead_router_continuation_tokens",
        "Tokens of prompts and answers computed again for answers that another instance continued, as predicted.",
        labels=["pool"],
    )
    carrying = HistogramMetricFamily(
        "fairlead_router_continuation_gap_seconds",
        "Seconds from the moment when an answer broke off to its next content, from another instance.",
        labels=["pool"],
    )
    unkept = CounterMetricFamily(
        "fairlead_router_decisions_unkept",
        "Decisions of late, refused, failed, retried or moved requests that were not kept, because there were too many (limit: 10 a second in a pool).",
        labels=["pool"],
    )
    lost = CounterMetricFamily(
        "fairlead_router_lost_moves",
        "Moves of sessions by this router that the control API did not accept, because another router's earlier move counts.",
        labels=["pool"],
    )
    canaries = CounterMetricFamily(
        "fairlead_router_canaries",
        "Idle engines asked for one token, by outcome: answered, hung, late (it had other work by then), or the kind of failure.",
        labels=["pool", "outcome"],
    )
    stalls = CounterMetricFamily(
        "fairlead_router_engine_stalls", "Times that an engine with requests of this router was found to make no progress.", labels=["pool"]
    )
    odd = CounterMetricFamily(
        "fairlead_router_implausible_usages",
        "Impossible token counts and cache usages that engines reported; treated as unknown, or as the largest possible value.",
        labels=["pool"],
    )
    tokens = CounterMetricFamily(
        "fairlead_router_tokens", "Tokens of requests that were sent to engines, also of answers that broke off.", labels=["pool", "kind"]
    )
    ttft = HistogramMetricFamily(
        "fairlead_router_ttft_seconds", "Seconds from arrival to the first generated content, of streamed requests.", labels=["pool"]
    )
    queued = HistogramMetricFamily("fairlead_router_queued_seconds", "Arrival to dispatch.", labels=["pool"])
    decode_only = CounterMetricFamily(
        "fairlead_router_decode_only",
        "Requests that a decode instance computed whole: no prefill instance could take them, or they cannot be divided.",
        labels=["pool", "cause"],
    )
    unfetched = CounterMetricFamily(
        "fairlead_router_prefills_without_blocks",
        "Prefills whose engine named no KV blocks, so that the decode instance computed the prompt again.",
        labels=["pool"],
    )
    cache_moves = CounterMetricFamily(
        "fairlead_router_cache_moves",
        "Attempts to bring KV blocks from one instance to another, by outcome: moved, or why not (late, lost, refused, unnamed).",
        labels=["pool", "fate"],
    )
    moved_tokens = CounterMetricFamily(
        "fairlead_router_cache_moved_tokens", "Tokens whose KV blocks went from one instance to another.", labels=["pool"]
    )
    moving = HistogramMetricFamily(
        "fairlead_router_cache_move_seconds", "Seconds from the request for KV blocks until the other instance had them.", labels=["pool"]
    )
    prefill = HistogramMetricFamily(
        "fairlead_router_prefill_seconds", "Seconds from sending to a prefill instance to its answer with the KV blocks.", labels=["pool"]
    )
    handover = HistogramMetricFamily(
        "fairlead_router_handover_seconds",
        "Seconds from sending to the decode instance to the first token of a streamed answer: transfer of KV blocks and wait.",
        labels=["pool"],
    )
    version = GaugeMetricFamily("fairlead_router_table_version", "Version of the routing table in force.", labels=["pool"])
    for pool, counters in pools.items():
        submitted.add_metric([pool], counters.submitted)
        for outcome, count in (
            ("served", counters.served),
            ("failed", counters.failed),
            ("cancelled", counters.cancelled),
            ("rejected-by-engine", counters.rejected_by_engine),
        ):
            requests.add_metric([pool, outcome], count)
        requests.add_metric([pool, "refused"], sum(counters.refused.values()))
        for reason, count in counters.refused.items():
            refused.add_metric([pool, reason], count)
        for kind, count in counters.upstream_errors.items():
            errors.add_metric([pool, kind], count)
        for outcome, count in counters.direct.items():
            direct.add_metric([pool, outcome], count)
        retries.add_metric([pool], counters.retries)
        for why, count in counters.carried.items():
            carried.add_metric([pool, why], count)
        for obstacle, count in counters.uncarried.items():
            uncarried.add_metric([pool, obstacle], count)
        for outcome, count in counters.handed_over.items():
            handed_over.add_metric([pool, outcome], count)
        handed_over_tokens.add_metric([pool], counters.handed_over_tokens)
        recomputed.add_metric([pool], counters.recomputed_tokens)
        carrying.add_metric([pool], counters.carrying.cumulative(), counters.carrying.total)
        for fate, count in counters.transfers.items():
            cache_moves.add_metric([pool, fate], count)
        moved_tokens.add_metric([pool], counters.transferred_tokens)
        moving.add_metric([pool], counters.transferring.cumulative(), counters.transferring.total)
        lost.add_metric([pool], counters.lost_moves)
        unkept.add_metric([pool], counters.unkept_decisions)
        stalls.add_metric([pool], counters.engine_stalls)
        for outcome, count in counters.canaries.items():
            canaries.add_metric([pool, outcome], count)
        odd.add_metric([pool], counters.implausible_usages)
        for kind, count in (("prompt", counters.prompt_tokens), ("hit", counters.hit_tokens), ("output", counters.output_tokens)):
            tokens.add_metric([pool, kind], count)
        for cause, count in counters.decode_only.items():
            decode_only.add_metric([pool, cause], count)
        unfetched.add_metric([pool], counters.unfetched)
        prefill.add_metric([pool], counters.prefill.cumulative(), counters.prefill.total)
        handover.add_metric([pool], counters.handover.cumulative(), counters.handover.total)
        ttft.add_metric([pool], counters.ttft.cumulative(), counters.ttft.total)
        queued.add_metric([pool], counters.queued.cumulative(), counters.queued.total)
    for pool, number in tables.items():
        version.add_metric([pool], number)
    yield from (
        submitted,
        requests,
        direct,
        refused,
        errors,
        retries,
        carried,
        uncarried,
        handed_over,
        handed_over_tokens,
        recomputed,
        carrying,
        cache_moves,
        moved_tokens,
        moving,
        unkept,
        lost,
        stalls,
        canaries,
        odd,
        tokens,
        decode_only,
        unfetched,
        prefill,
        handover,
        ttft,
        queued,
        version,
    )


def class_families(pools: Mapping[str, PoolCounters]) -> Iterator[Metric]:
    """Yield the counters of each pool and priority class."""
    labels = ["pool", "priority_class"]
    submitted = CounterMetricFamily(
        "fairlead_router_class_submitted", "Requests handed to the scheduler, in pools with priority classes.", labels=labels
    )
    refused = CounterMetricFamily("fairlead_router_class_refusals", "Refused requests, in pools with priority classes.", labels=labels)
    ttft = HistogramMetricFamily(
        "fairlead_router_class_ttft_seconds",
        "Seconds from arrival to the first token of streamed requests, in pools with priority classes.",
        labels=labels,
    )
    for pool, counters in pools.items():
        for name, of_class in counters.classes.items():
            submitted.add_metric([pool, name], of_class.submitted)
            refused.add_metric([pool, name], of_class.refused)
            ttft.add_metric([pool, name], of_class.ttft.cumulative(), of_class.ttft.total)
    yield from (submitted, refused, ttft)


def reading_families(readings: Iterable[PoolReading]) -> Iterator[Metric]:
    """Yield the gauges of each pool."""
    held = GaugeMetricFamily(
        "fairlead_router_held", "Requests that wait because the pool has no instance that accepts requests.", labels=["pool"]
    )
    size = GaugeMetricFamily(
        "fairlead_router_bytes_per_token", "Bytes of prompt text counted as one token, as declared or as measured.", labels=["pool"]
    )
    kinds = GaugeMetricFamily(
        "fairlead_router_kind_bytes_per_token",
        "Bytes of a prompt counted as one token, by kind of prompt. `by` is the source of the figure: the kind's own prompts, the"
        " figure for plain text, or the declared figure.",
        labels=["pool", "kind", "by"],
    )
    error = GaugeMetricFamily(
        "fairlead_router_prompt_tokens_error",
        "Mean absolute error of the router's token counts against the engines' counts, over the last 500 prompts (0.1 = 10 %), with the bytes per"
        " token in use and with the declared ones.",
        labels=["pool", "bytes_per_token"],
    )
    seconds = GaugeMetricFamily(
        "fairlead_router_seconds_per_token",
        "Mean seconds per token over the last few hundred prefills (uncached prompt tokens) or answers (output tokens), by phase.",
        labels=["pool", "phase"],
    )
    off = GaugeMetricFamily(
        "fairlead_router_time_estimate_error",
        "Mean absolute error of predicted times over the last few hundred prefills or answers (0.1 = 10 %), when predicted by the measured speed"
        " and by the declared speed (spec.engine.prefillTokensPerSecond).",
        labels=["pool", "phase", "by"],
    )
    speeds = GaugeMetricFamily(
        "fairlead_router_prefill_tokens_per_second",
        "Uncached prompt tokens per second of an instance or data-parallel rank: the speed that predictions use; `source` is the origin of the figure.",
        labels=["pool", "source"],
    )
    assumed = GaugeMetricFamily(
        "fairlead_router_assumed_routers",
        "Routers that are assumed to have the same load in the pool as this router, itself included: the other live routers that do not report their requests.",
        labels=["pool"],
    )
    for pool, waiting, sizes, speed, *estimates, routers in readings:
        assumed.add_metric([pool], routers)
        held.add_metric([pool], waiting)
        speeds.add_metric([pool, speed.source.value], speed.value or 0.0)
        size.add_metric([pool], sizes.bytes_per_token)
        for of_kind in sizes.kinds:
            kinds.add_metric([pool, of_kind.kind, of_kind.by], of_kind.bytes_per_token)
        for phase, report in zip(("prefill", "decode"), estimates, strict=True):
            if report.seconds_per_token is not None:
                seconds.add_metric([pool, phase], report.seconds_per_token)
            for by, value in (("learnt", report.error), ("declared", report.declared_error)):
                if value is not None:
                    off.add_metric([pool, phase, by], value)
        for of, value in (("in-use", sizes.error), ("declared", sizes.declared_error)):
            if value is not None:
                error.add_metric([pool, of], value)
    yield from (held, assumed, size, kinds, error, speeds, seconds, off)


class TrainingCounters:
    """Counts the results of a router's exchanges with the trainer of learning policies, since the router started."""

    __slots__ = ("refused", "rounds", "trainers_lost")

    def __init__(self) -> None:
        self.trainers_lost = 0
        self.rounds: Counter[str] = Counter()
        """Number of trained models that were adopted, by pool."""
        self.refused: Counter[tuple[str, str]] = Counter()
        """Number of trained models that were refused, by pool and fault."""

    def forget_pool(self, pool: str) -> None:
        """Drop the counters of a deleted pool."""
        self.rounds.pop(pool, None)
        for key in [key for key in self.refused if key[0] == pool]:
            del self.refused[key]


def learning_families(counters: TrainingCounters, reports: Mapping[str, LearningReport]) -> Iterator[Metric]:
    """Yield the metrics of each pool's learning policy. The families have no samples if no pool's policy learns."""
    choices = CounterMetricFamily(
        "fairlead_router_learning_choices",
        "Choices of a learning policy: by its model, or by its heuristic, with the reason.",
        labels=["pool", "by"],
    )
    samples = CounterMetricFamily(
        "fairlead_router_learning_samples", "Samples for learning: requests whose TTFT the router has seen.", labels=["pool"]
    )
    dropped = CounterMetricFamily(
        "fairlead_router_learning_samples_dropped", "Samples that were lost before a trainer took them.", labels=["pool"]
    )
    rounds = CounterMetricFamily("fairlead_router_learning_models", "Models adopted.", labels=["pool"])
    refused = CounterMetricFamily(
        "fairlead_router_learning_models_refused", "Models refused, by fault; the previous model stays in use.", labels=["pool", "fault"]
    )
    behind = GaugeMetricFamily("fairlead_router_learning_samples_behind", "Samples since the model in use was adopted.", labels=["pool"])
    error = GaugeMetricFamily(
        "fairlead_router_learning_error_seconds",
        "Mean absolute error of predicted TTFTs over the last 500 requests, of the model and of the router's formula; also the mean TTFT of these requests.",
        labels=["pool", "of"],
    )
    drift = GaugeMetricFamily(
        "fairlead_router_learning_drift",
        "Distance between the mean features of recent requests and of the training samples, in standard deviations of the training samples.",
        labels=["pool"],
    )
    for pool, report in reports.items():
        choices.add_metric([pool, "model"], report.learned_choices)
        for reason, count in report.heuristic_choices.items():
            choices.add_metric([pool, reason.value], count)
        samples.add_metric([pool], report.samples)
        dropped.add_metric([pool], report.dropped_samples)
        rounds.add_metric([pool], counters.rounds[pool])
        behind.add_metric([pool], report.samples_behind)
        figures = {"prediction": report.error_seconds, "formula": report.formula_error_seconds, "mean-ttft": report.mean_ttft_seconds}
        for of, seconds in figures.items():
            if seconds is not None:
                error.add_metric([pool, of], seconds)
        if report.drift is not None:
            drift.add_metric([pool], report.drift)
    for (pool, fault), count in counters.refused.items():
        refused.add_metric([pool, fault], count)
    lost = CounterMetricFamily(
        "fairlead_router_trainers_lost", "Trainer processes that died or hung, and were restarted.", value=counters.trainers_lost
    )
    yield from (choices, samples, dropped, rounds, refused, behind, error, drift, lost)
