"""Prometheus metrics of the router, `fairlead_router_*`.

Counting on the request path is plain integer arithmetic on the objects here; text is only made when scraped. Labels are
bounded: pools and instances come from routing tables, everything else from enums. No session, model string or header a
client chose becomes a label.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlead.predictors.reports import LearningReport
from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.routing.knowledge.token_sizes import TokenSizeReport
from fairlead_router.engine_pages import EnginePage
from fairlead_router.kv_events.instances import EventReading
from fairlead_router.kv_events.metrics import Belief, belief_families, event_families, token_families
from fairlead_router.training.metrics import TrainingCounters, learning_families

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Distribution:
    """A histogram over BUCKETS, in seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        rows, running = [], 0
        for bound, count in zip((*(str(b) for b in BUCKETS), "+Inf"), self.counts, strict=True):
            running += count
            rows.append((bound, float(running)))
        return rows


class ClassCounters:
    """What happened to the requests of one priority class."""

    __slots__ = ("refused", "submitted", "ttft")

    def __init__(self) -> None:
        self.submitted = 0
        self.refused = 0
        self.ttft = Distribution()


class PoolCounters:
    """What happened in one pool since the router started."""

    __slots__ = (
        "beliefs",
        "cancelled",
        "classes",
        "decode_only",
        "direct",
        "failed",
        "handover",
        "hit_tokens",
        "implausible_usages",
        "known_prompts",
        "lost_moves",
        "output_tokens",
        "prefill",
        "prompt_tokens",
        "queued",
        "refused",
        "rejected_by_engine",
        "retries",
        "served",
        "submitted",
        "tokenizing",
        "ttft",
        "unfetched",
        "upstream_errors",
    )

    def __init__(self) -> None:
        self.submitted = 0
        self.served = 0
        self.failed = 0
        self.cancelled = 0
        self.rejected_by_engine = 0
        self.classes: defaultdict[str, ClassCounters] = defaultdict(ClassCounters)
        """By priority class, of a pool that declares some."""
        self.direct: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.retries = 0
        self.upstream_errors: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.hit_tokens = 0
        self.output_tokens = 0
        self.implausible_usages = 0
        self.lost_moves = 0
        self.decode_only: Counter[str] = Counter()
        self.unfetched = 0
        self.beliefs: defaultdict[tuple[str, str], Belief] = defaultdict(Belief)
        """By instance, and by what the belief came from: `events` or `history`."""
        self.known_prompts: Counter[str] = Counter()
        """Requests to a pool with KV events, by how much of the prompt's tokens was known."""
        self.tokenizing: Counter[str] = Counter()
        """Questions for a prompt's tokens, by outcome."""
        self.prefill = Distribution()
        self.handover = Distribution()
        self.ttft = Distribution()
        self.queued = Distribution()


class InstanceReading:
    """Gauges of one instance, taken when scraped."""

    __slots__ = ("engine", "in_flight", "instance", "kv_usage", "pool", "waiting")

    def __init__(
        self, pool: str, instance: str, in_flight: int, waiting: int, kv_usage: float | None, engine: EnginePage | None = None
    ) -> None:
        self.pool = pool
        self.instance = instance
        self.in_flight = in_flight
        self.waiting = waiting
        self.kv_usage = kv_usage
        self.engine = EnginePage() if engine is None else engine
        """What its metrics said last."""


class PoolReading(NamedTuple):
    """Gauges of one pool, taken when scraped."""

    pool: str
    held: int
    token_sizes: TokenSizeReport
    prefill: EstimateReport
    decode: EstimateReport


class RouterMetrics(Collector):
    """All counters of the process; register it once and scrape."""

    def __init__(self) -> None:
        self.pools: dict[str, PoolCounters] = {}
        self.tables: dict[str, int] = {}
        self.readings: list[InstanceReading] = []
        self.pool_readings: list[PoolReading] = []
        self.event_readings: Callable[[], Mapping[tuple[str, str], Sequence[EventReading]]] = dict
        """What is known of instances' KV events, by pool and instance."""
        self.learning_reports: Callable[[], Mapping[str, LearningReport]] = dict
        """What learning policies have learnt, by pool."""
        self.training = TrainingCounters()
        self.client_errors: Counter[str] = Counter()
        self.key_refusals: Counter[str] = Counter()
        self.report_drops: Counter[str] = Counter()
        self.reports_sent = 0
        self.reports_failed = 0
        self.report_records = 0
        self.spool_bytes = 0
        self.spool_batches = 0
        self.oldest_unsent_report_seconds = 0.0
        self.reports_set_aside = 0
        self.control_plane_connected = 0
        self.live_routers = 1
        self.met_routers = 0
        self.asking_routers = 0
        self.asked_pools = 0
        self.picker_streams: Callable[[], int] = int
        """How many requests of proxies are under way."""
        self.lost_routers = 0
        self.stream_reconnects = 0
        self.tables_refused = 0
        self.scrape_errors = 0
        self.upstream_connections = 0
        self.accounting_errors = 0

    def pool(self, name: str) -> PoolCounters:
        """The counters of a pool, made at first use."""
        counters = self.pools.get(name)
        if counters is None:
            counters = self.pools[name] = PoolCounters()
        return counters

    def forget_pool(self, name: str) -> None:
        """The pool is gone: nothing is told of it any more."""
        self.pools.pop(name, None)
        self.training.forget_pool(name)

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._pool_families()
        yield from self._instance_families()
        yield from event_families(self.event_readings())
        yield from belief_families({pool: counters.beliefs for pool, counters in self.pools.items()})
        yield from token_families({pool: (counters.known_prompts, counters.tokenizing) for pool, counters in self.pools.items()})
        yield from learning_families(self.training, self.learning_reports())
        drops = CounterMetricFamily(
            "fairlead_router_report_records_dropped", "Records dropped because the spool was full or the API refused them.", labels=["kind"]
        )
        for kind, count in self.report_drops.items():
            drops.add_metric([kind], count)
        yield drops
        errors = CounterMetricFamily("fairlead_router_client_errors", "Requests that could not be used, by error code.", labels=["code"])
        for code, count in self.client_errors.items():
            errors.add_metric([code], count)
        yield errors
        keys = CounterMetricFamily(
            "fairlead_router_key_refusals", "Requests refused because of their API key, by reason.", labels=["reason"]
        )
        for reason, count in self.key_refusals.items():
            keys.add_metric([reason], count)
        yield keys
        for name, text, value in (
            ("reports_sent", "Report batches acknowledged by the control API.", self.reports_sent),
            ("reports_failed", "Attempts to send a report that failed.", self.reports_failed),
            ("report_records", "Records put into reports.", self.report_records),
            ("stream_reconnects", "Times the table stream was opened again.", self.stream_reconnects),
            ("tables_refused", "Routing tables that could not be used; the one before stayed in force.", self.tables_refused),
            ("engine_scrape_errors", "Failed readings of engine metrics.", self.scrape_errors),
            ("lost_routers", "Other routers that could be asked and went away, or did not answer any more.", self.lost_routers),
            ("upstream_connections", "Connections opened to engines.", self.upstream_connections),
            (
                "accounting_errors",
                "Scheduler answers for requests this router no longer holds; always 0 unless there is a bug.",
                self.accounting_errors,
            ),
        ):
            yield CounterMetricFamily(f"fairlead_router_{name}", text, value=value)
        gauges: tuple[tuple[str, str, float], ...] = (
            ("spool_bytes", "Bytes of reports on disk that are not acknowledged yet.", self.spool_bytes),
            ("spool_batches", "Reports on disk that are not acknowledged yet.", self.spool_batches),
            ("oldest_unsent_report_seconds", "Age of the oldest report not acknowledged yet.", self.oldest_unsent_report_seconds),
            ("reports_set_aside", "Reports the API could not take, kept in the spool's folder `aside`.", self.reports_set_aside),
            ("live_routers", "Live routers as the control API told last, this one among them; 1 until it has.", self.live_routers),
            ("met_routers", "Other routers that this one is connected to and could ask.", self.met_routers),
            ("asking_routers", "Other routers for which this one decides, in at least one pool.", self.asking_routers),
            ("picker_streams", "Requests of proxies at the endpoint picker whose streams are open.", self.picker_streams()),
            ("asked_pools", "Pools for which this router asks another one to decide.", self.asked_pools),
            ("control_plane_connected", "1 while the table stream is open and alive.", self.control_plane_connected),
        )
        for name, text, gauge in gauges:
            yield GaugeMetricFamily(f"fairlead_router_{name}", text, value=gauge)

    def _pool_families(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("fairlead_router_requests", "Requests by how they ended.", labels=["pool", "outcome"])
        submitted = CounterMetricFamily(
            "fairlead_router_submitted", "Requests handed to the scheduler; each ends in exactly one outcome.", labels=["pool"]
        )
        direct = CounterMetricFamily(
            "fairlead_router_direct_requests",
            "Requests sent to an instance past the scheduler, by how they ended.",
            labels=["pool", "outcome"],
        )
        refused = CounterMetricFamily("fairlead_router_refusals", "Refused requests by reason.", labels=["pool", "reason"])
        errors = CounterMetricFamily("fairlead_router_upstream_errors", "Engine failures by kind.", labels=["pool", "kind"])
        retries = CounterMetricFamily(
            "fairlead_router_retries", "Attempts repeated on another instance before the first byte.", labels=["pool"]
        )
        lost = CounterMetricFamily(
            "fairlead_router_lost_moves", "Moves of sessions made here that lost to an earlier writer.", labels=["pool"]
        )
        odd = CounterMetricFamily(
            "fairlead_router_implausible_usages",
            "Token counts and cache usages engines told that cannot be; taken as unknown.",
            labels=["pool"],
        )
        tokens = CounterMetricFamily("fairlead_router_tokens", "Tokens of served requests.", labels=["pool", "kind"])
        ttft = HistogramMetricFamily("fairlead_router_ttft_seconds", "Arrival to first token of streamed requests.", labels=["pool"])
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
        prefill = HistogramMetricFamily(
            "fairlead_router_prefill_seconds", "Sending to a prefill instance to its answer with the KV blocks.", labels=["pool"]
        )
        handover = HistogramMetricFamily(
            "fairlead_router_handover_seconds",
            "Sending to the decode instance to the first token of a streamed chat or completion: transfer of KV blocks and wait.",
            labels=["pool"],
        )
        version = GaugeMetricFamily("fairlead_router_table_version", "Version of the routing table in force.", labels=["pool"])
        for pool, counters in self.pools.items():
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
            lost.add_metric([pool], counters.lost_moves)
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
        for pool, number in self.tables.items():
            version.add_metric([pool], number)
        yield from (
            submitted,
            requests,
            direct,
            refused,
            errors,
            retries,
            lost,
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
        yield from self._class_families()
        yield from self._reading_families()

    def _class_families(self) -> Iterator[Metric]:
        labels = ["pool", "priority_class"]
        submitted = CounterMetricFamily(
            "fairlead_router_class_submitted", "Requests handed to the scheduler, in pools with priority classes.", labels=labels
        )
        refused = CounterMetricFamily("fairlead_router_class_refusals", "Refused requests, in pools with priority classes.", labels=labels)
        ttft = HistogramMetricFamily(
            "fairlead_router_class_ttft_seconds",
            "Arrival to first token of streamed requests, in pools with priority classes.",
            labels=labels,
        )
        for pool, counters in self.pools.items():
            for name, of_class in counters.classes.items():
                submitted.add_metric([pool, name], of_class.submitted)
                refused.add_metric([pool, name], of_class.refused)
                ttft.add_metric([pool, name], of_class.ttft.cumulative(), of_class.ttft.total)
        yield from (submitted, refused, ttft)

    def _reading_families(self) -> Iterator[Metric]:
        held = GaugeMetricFamily("fairlead_router_held", "Requests that wait for the pool to have an instance.", labels=["pool"])
        size = GaugeMetricFamily(
            "fairlead_router_bytes_per_token", "Bytes of prompt text taken as one token, as declared or learnt.", labels=["pool"]
        )
        error = GaugeMetricFamily(
            "fairlead_router_prompt_tokens_error",
            "Mean absolute error of prompts' token counts against the engines' own, over the last 500 told (0.1 = 10 %), with the figure in"
            " use and with the declared one.",
            labels=["pool", "bytes_per_token"],
        )
        seconds = GaugeMetricFamily(
            "fairlead_router_seconds_per_token",
            "Mean time of a token as observed last: of prompts while they are prefilled (uncached tokens), and of answers while decoding.",
            labels=["pool", "phase"],
        )
        off = GaugeMetricFamily(
            "fairlead_router_time_estimate_error",
            "Mean absolute error of predicted times over the last few hundred prefills or answers (0.1 = 10 %), by what was learnt and by"
            " spec.engine.prefillTokensPerSecond.",
            labels=["pool", "phase", "by"],
        )
        for pool, waiting, sizes, *estimates in self.pool_readings:
            held.add_metric([pool], waiting)
            size.add_metric([pool], sizes.bytes_per_token)
            for phase, report in zip(("prefill", "decode"), estimates, strict=True):
                if report.seconds_per_token is not None:
                    seconds.add_metric([pool, phase], report.seconds_per_token)
                for by, value in (("learnt", report.error), ("declared", report.declared_error)):
                    if value is not None:
                        off.add_metric([pool, phase, by], value)
            for of, value in (("in-use", sizes.error), ("declared", sizes.declared_error)):
                if value is not None:
                    error.add_metric([pool, of], value)
        yield from (held, size, error, seconds, off)

    def _instance_families(self) -> Iterator[Metric]:
        in_flight = GaugeMetricFamily(
            "fairlead_router_in_flight",
            "Requests that this router has queued for or sent to an instance and that are not finished; those for which it only decides"
            " count at the router that has them.",
            labels=["pool", "instance"],
        )
        waiting = GaugeMetricFamily(
            "fairlead_router_waiting",
            "Requests queued in this router for an instance, also those of other routers for which it decides.",
            labels=["pool", "instance"],
        )
        usage = GaugeMetricFamily("fairlead_router_kv_usage", "KV cache usage (0-1) as the engine last told.", labels=["pool", "instance"])
        told = GaugeMetricFamily(
            "fairlead_router_engine_requests",
            "Requests in the engine by its own metrics, of all its clients: running, or waiting to.",
            labels=["pool", "instance", "state"],
        )
        sizes = GaugeMetricFamily(
            "fairlead_router_engine_kv_cache_tokens", "Tokens that the engine's KV cache holds, as it told.", labels=["pool", "instance"]
        )
        for reading in self.readings:
            labels = [reading.pool, reading.instance]
            for state, count in (("running", reading.engine.running), ("waiting", reading.engine.waiting)):
                if count is not None:
                    told.add_metric([*labels, state], count)
            if reading.engine.kv_cache_tokens is not None:
                sizes.add_metric(labels, reading.engine.kv_cache_tokens)
            in_flight.add_metric(labels, reading.in_flight)
            waiting.add_metric(labels, reading.waiting)
            if reading.kv_usage is not None:
                usage.add_metric(labels, reading.kv_usage)
        yield from (in_flight, waiting, usage, told, sizes)


def render(metrics: RouterMetrics) -> bytes:
    """The text exposition of all metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return generate_latest(registry)
