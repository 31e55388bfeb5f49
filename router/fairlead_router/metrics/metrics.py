"""Prometheus metrics of the router, `fairlead_router_*`.

The page's text is made only when the page is scraped. The values of labels are bounded: pools and instances come from
routing tables, all other values from enums. No session name, model name or header that a client chose becomes a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlead.predictors.reports import LearningReport
from fairlead_router.kv_events.instances import EventReading
from fairlead_router.kv_events.metrics import belief_families, event_families, token_families
from fairlead_router.metrics.instance_metrics import InstanceReading, instance_families
from fairlead_router.metrics.pool_counters import PoolCounters
from fairlead_router.metrics.pool_metrics import (
    PoolReading,
    TrainingCounters,
    class_families,
    learning_families,
    pool_families,
    reading_families,
)


class RouterMetrics(Collector):
    """All counters of the process. It is registered once with the Prometheus client."""

    def __init__(self) -> None:
        self.pools: dict[str, PoolCounters] = {}
        self.tables: dict[str, int] = {}
        self.readings: list[InstanceReading] = []
        self.pool_readings: list[PoolReading] = []
        self.event_readings: Callable[[], Mapping[tuple[str, str], Sequence[EventReading]]] = dict
        """A function that returns the state of the KV events of each instance, by pool and instance."""
        self.unknown_kv_events: Callable[[], int] = int
        """A function that returns the number of messages at the central port for KV events whose topic belongs to no
        followed instance.
        """
        self.learning_reports: Callable[[], Mapping[str, LearningReport]] = dict
        """A function that returns the reports of learning policies, by pool."""
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
        self.body_bytes: Callable[[], int] = int
        """A function that returns the bytes of memory that the bodies of requests in flight take."""
        self.picker_streams: Callable[[], int] = int
        """A function that returns the number of requests in flight at the endpoint picker."""
        self.spans: Callable[[], Mapping[str, int]] = dict
        """A function that returns the number of trace spans by outcome; empty if no spans are exported."""
        self.lost_routers = 0
        self.stream_reconnects = 0
        self.tables_refused = 0
        self.scrape_errors = 0
        self.upstream_connections = 0
        self.accounting_errors = 0

    def pool(self, name: str) -> PoolCounters:
        """Return the counters of a pool; make them at the first call."""
        counters = self.pools.get(name)
        if counters is None:
            counters = self.pools[name] = PoolCounters()
        return counters

    def forget_pool(self, name: str) -> None:
        """Stop exporting the metrics of a deleted pool."""
        self.pools.pop(name, None)
        self.training.forget_pool(name)

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from pool_families(self.pools, self.tables)
        yield from class_families(self.pools)
        yield from reading_families(self.pool_readings)
        yield from instance_families(self.readings)
        yield from event_families(self.event_readings())
        yield GaugeMetricFamily(
            "fairlead_router_kv_events_of_unknown_pods",
            "Messages received at the port for KV events, for topics that name no current instance.",
            self.unknown_kv_events(),
        )
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
        spans = CounterMetricFamily(
            "fairlead_router_spans",
            "Spans of traces by outcome: sent, dropped (too many waited), or failed (the collector did not accept them).",
            labels=["fate"],
        )
        for fate, count in self.spans().items():
            spans.add_metric([fate], count)
        yield spans
        for name, text, value in (
            ("reports_sent", "Report batches acknowledged by the control API.", self.reports_sent),
            ("reports_failed", "Attempts to send a report that failed.", self.reports_failed),
            ("report_records", "Records put into reports.", self.report_records),
            ("stream_reconnects", "Times the table stream was opened again.", self.stream_reconnects),
            ("tables_refused", "Routing tables that could not be used; the previous table stayed in force.", self.tables_refused),
            ("engine_scrape_errors", "Failed readings of engine metrics.", self.scrape_errors),
            ("lost_routers", "Other routers that this router was connected to and that left or stopped responding.", self.lost_routers),
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
            (
                "live_routers",
                "Live routers as last reported by the control API, this one included; before its first report, the number from before the restart, or 1.",
                self.live_routers,
            ),
            ("met_routers", "Other routers that are connected to this router and respond.", self.met_routers),
            ("asking_routers", "Other routers for which this one decides, in at least one pool.", self.asking_routers),
            ("body_bytes", "Memory that the bodies of all requests in progress take (FAIRLEAD_BODY_MEMORY_BYTES).", self.body_bytes()),
            ("picker_streams", "Requests of proxies at the endpoint picker whose streams are open.", self.picker_streams()),
            ("asked_pools", "Pools for which this router lets another router decide.", self.asked_pools),
            ("control_plane_connected", "1 while the table stream is open and alive.", self.control_plane_connected),
        )
        for name, text, gauge in gauges:
            yield GaugeMetricFamily(f"fairlead_router_{name}", text, value=gauge)


def render(metrics: RouterMetrics) -> bytes:
    """Return all metrics as the text of a Prometheus page."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return generate_latest(registry)
