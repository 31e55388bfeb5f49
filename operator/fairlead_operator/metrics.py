"""The operator's metrics: its steps, the causes of failed steps, and its present state."""

from prometheus_client import Counter, Gauge, Histogram

from fairlead_process.process_metrics import process_registry

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class OperatorMetrics:
    """Metrics of this process, `fairlead_operator_*`; they outlive a loss of the Lease."""

    def __init__(self) -> None:
        self.registry = process_registry()
        self.steps = Histogram(
            "fairlead_operator_step_seconds",
            "Time of one step for a pool: to reconcile it, or to finalize or report a deleted one.",
            ("step", "outcome"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.failed = Counter(
            "fairlead_operator_failed_steps_total", "Steps that failed; each is repeated.", ("pool", "outcome"), registry=self.registry
        )
        self.pools = Gauge("fairlead_operator_pools", "Pools that this operator reconciles; 0 while it stands by.", registry=self.registry)
        self.leading = Gauge("fairlead_operator_leading", "1 while this operator holds the Lease and acts.", registry=self.registry)
        self.ready = Gauge("fairlead_operator_ready", "1 while this operator leads, or would take over at once.", registry=self.registry)
        self.refused_reads = Gauge(
            "fairlead_operator_refused_reads",
            "Paths that the Kubernetes API does not let the operator list or watch.",
            registry=self.registry,
        )
        self.waiting = Gauge(
            "fairlead_operator_waiting_for_device",
            "Instances of a pool that wait until others leave the devices that they share (`roles[].warm.turns`).",
            ("pool",),
            registry=self.registry,
        )

    def taken(self, step: str, pool: str, outcome: str, seconds: float) -> None:
        """Record that a step of a pool ended with this outcome after this many seconds."""
        self.steps.labels(step, outcome).observe(seconds)
        if outcome != "ok":
            self.failed.labels(pool, outcome).inc()
