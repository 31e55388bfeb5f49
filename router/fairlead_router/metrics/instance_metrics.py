"""Metrics of each instance: the requests that this router has sent to it, and the last report of its engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fairlead.routing.knowledge.progress import EngineProgress, Life
from fairlead_router.engines.engine_pages import EngineFigures


class InstanceReading:
    """The gauges of one instance at the time of a scrape."""

    __slots__ = ("engine", "in_flight", "instance", "kv_usage", "lives", "pool", "ranks", "waiting")

    def __init__(
        self,
        pool: str,
        instance: str,
        in_flight: int,
        waiting: int,
        kv_usage: float | None,
        engine: EngineFigures | None = None,
        ranks: Mapping[int, EngineFigures] = MappingProxyType({}),
        lives: Mapping[int | None, EngineProgress] = MappingProxyType({}),
    ) -> None:
        self.pool = pool
        self.instance = instance
        self.in_flight = in_flight
        self.waiting = waiting
        self.kv_usage = kv_usage
        self.engine = EngineFigures() if engine is None else engine
        """The metrics that the engine last reported."""
        self.ranks = ranks
        """By rank index: the metrics of each data-parallel rank; empty for an instance without several ranks."""
        self.lives = lives
        """By rank index: the progress of each rank. The key is None for an engine without ranks."""


def instance_families(readings: Iterable[InstanceReading]) -> Iterator[Metric]:
    """Yield the gauges of each pool and instance. An engine with several ranks also has a sample for each rank index of
    `X-Data-Parallel-Rank`. The gauge of an engine's progress shows the rank in the worst state.
    """
    in_flight = GaugeMetricFamily(
        "fairlead_router_in_flight",
        "Unfinished requests that this router has queued for an instance or sent to it. A request of another router, for which this router"
        " only decides, counts at that other router.",
        labels=["pool", "instance"],
    )
    waiting = GaugeMetricFamily(
        "fairlead_router_waiting",
        "Requests queued in this router for an instance, including requests of other routers for which it decides.",
        labels=["pool", "instance"],
    )
    usage = GaugeMetricFamily(
        "fairlead_router_kv_usage", "KV cache usage (0-1) as the engine last reported it.", labels=["pool", "instance"]
    )
    told = GaugeMetricFamily(
        "fairlead_router_engine_requests",
        "Requests of all clients in the engine, by its own metrics: running or waiting.",
        labels=["pool", "instance", "state"],
    )
    sizes = GaugeMetricFamily(
        "fairlead_router_engine_kv_cache_tokens",
        "Size of the engine's KV cache in tokens, as the engine reports it.",
        labels=["pool", "instance"],
    )
    life = GaugeMetricFamily(
        "fairlead_router_engine_life",
        "1 for the state of the engine's work: unknown (it reports no steps), idle, unmeasured, active, slow or stalled.",
        labels=["pool", "instance", "state"],
    )
    still = GaugeMetricFamily(
        "fairlead_router_engine_still_seconds",
        "Seconds for which the engine has made no visible progress although it has requests of this router.",
        labels=["pool", "instance"],
    )
    allowed = GaugeMetricFamily(
        "fairlead_router_engine_allowed_still_seconds",
        "Seconds without progress after which the engine counts as stalled; derived from the duration of its steps.",
        labels=["pool", "instance"],
    )
    rank_requests = GaugeMetricFamily(
        "fairlead_router_rank_requests",
        "Requests in one data-parallel rank of an engine with several ranks, by its own metrics: running or waiting.",
        labels=["pool", "instance", "rank", "state"],
    )
    rank_usage = GaugeMetricFamily(
        "fairlead_router_rank_kv_usage",
        "KV cache usage (0-1) of a data-parallel rank, as the engine last reported it.",
        labels=["pool", "instance", "rank"],
    )
    rank_life = GaugeMetricFamily(
        "fairlead_router_rank_life", "1 for the state of a data-parallel rank's work.", labels=["pool", "instance", "rank", "state"]
    )
    for reading in readings:
        labels = [reading.pool, reading.instance]
        for rank, told_of_rank in reading.ranks.items():
            for state, count in (("running", told_of_rank.running), ("waiting", told_of_rank.waiting)):
                if count is not None:
                    rank_requests.add_metric([*labels, str(rank), state], count)
            if told_of_rank.kv_usage is not None:
                rank_usage.add_metric([*labels, str(rank)], told_of_rank.kv_usage)
        for its_rank, progress in reading.lives.items():
            if its_rank is not None:
                rank_life.add_metric([*labels, str(its_rank), progress.life], 1)
        for state, count in (("running", reading.engine.running), ("waiting", reading.engine.waiting)):
            if count is not None:
                told.add_metric([*labels, state], count)
        if reading.engine.kv_cache_tokens is not None:
            sizes.add_metric(labels, reading.engine.kv_cache_tokens)
        if (worst := max(reading.lives.values(), key=_trouble, default=None)) is not None:
            life.add_metric([*labels, worst.life], 1)
            still.add_metric(labels, worst.still_seconds)
            allowed.add_metric(labels, worst.allowed_seconds)
        in_flight.add_metric(labels, reading.in_flight)
        waiting.add_metric(labels, reading.waiting)
        if reading.kv_usage is not None:
            usage.add_metric(labels, reading.kv_usage)
    yield from (in_flight, waiting, usage, told, sizes, life, still, allowed, rank_requests, rank_usage, rank_life)


def _trouble(progress: EngineProgress) -> tuple[int, float]:
    """Return a sort key that is larger for an engine in a worse state."""
    return tuple(Life).index(progress.life), progress.still_seconds
