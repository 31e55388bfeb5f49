"""Metrics of the source of `fairlead serve`: rounds, engines, and the reports that could not be delivered."""

from prometheus_client import Counter, Gauge, Histogram

from fairlead_process.process_metrics import process_registry

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class SourceMetrics:
    """Metrics of this process, `fairlead_source_*`."""

    def __init__(self) -> None:
        self.registry = process_registry()
        self.rounds = Histogram(
            "fairlead_source_round_seconds",
            "Time of one round: files, health, and the report to the control API.",
            ("outcome",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.untaken = Counter(
            "fairlead_source_reports_failed_total",
            "States that the control API did not accept; each is sent again.",
            registry=self.registry,
        )
        self.engines = Gauge("fairlead_source_engines", "Engines of the pool, by state.", ("state",), registry=self.registry)
        self.file_refused = Gauge(
            "fairlead_source_file_refused",
            "1 while the pool's file cannot be used and the last good one is in force.",
            registry=self.registry,
        )
        self.untold_events = Gauge("fairlead_source_untold_events", "Events that wait for the control API.", registry=self.registry)
