"""Metrics by instance: what this router has sent it, and what its engine told last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fairlead.routing.knowledge.progress import EngineProgress
from fairlead_router.engine_pages import EnginePage


class InstanceReading:
    """Gauges of one instance, taken when scraped."""

    __slots__ = ("engine", "in_flight", "instance", "kv_usage", "life", "pool", "waiting")

    def __init__(
        self,
        pool: str,
        instance: str,
        in_flight: int,
        waiting: int,
        kv_usage: float | None,
        engine: EnginePage | None = None,
        life: EngineProgress | None = None,
    ) -> None:
        self.pool = pool
        self.instance = instance
        self.in_flight = in_flight
        self.waiting = waiting
        self.kv_usage = kv_usage
        self.engine = EnginePage() if engine is None else engine
        """What its metrics said last."""
        self.life = life


def instance_families(readings: Iterable[InstanceReading]) -> Iterator[Metric]:
    """Gauges by pool and instance."""
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
    life = GaugeMetricFamily(
        "fairlead_router_engine_life",
        "1 for the state of the engine's work: unknown (it shows no steps), idle, unmeasured, active, slow or stalled.",
        labels=["pool", "instance", "state"],
    )
    still = GaugeMetricFamily(
        "fairlead_router_engine_still_seconds",
        "For how long nothing of the engine has moved though it has requests of this router.",
        labels=["pool", "instance"],
    )
    allowed = GaugeMetricFamily(
        "fairlead_router_engine_allowed_still_seconds",
        "How long that may be, by the engine's own steps, until it is taken to be stalled.",
        labels=["pool", "instance"],
    )
    for reading in readings:
        labels = [reading.pool, reading.instance]
        for state, count in (("running", reading.engine.running), ("waiting", reading.engine.waiting)):
            if count is not None:
                told.add_metric([*labels, state], count)
        if reading.engine.kv_cache_tokens is not None:
            sizes.add_metric(labels, reading.engine.kv_cache_tokens)
        if reading.life is not None:
            life.add_metric([*labels, reading.life.life], 1)
            still.add_metric(labels, reading.life.still_seconds)
            allowed.add_metric(labels, reading.life.allowed_seconds)
        in_flight.add_metric(labels, reading.in_flight)
        waiting.add_metric(labels, reading.waiting)
        if reading.kv_usage is not None:
            usage.add_metric(labels, reading.kv_usage)
    yield from (in_flight, waiting, usage, told, sizes, life, still, allowed)
