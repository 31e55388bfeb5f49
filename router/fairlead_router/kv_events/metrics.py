"""Metrics of KV events: how completely each instance's events are received, and how well the router's predictions of
cached tokens match the engine's reports.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fairlead_router.kv_events.instances import STATES, EventReading

_LABELS = ("pool", "instance", "rank")
_COUNTERS: tuple[tuple[str, str, Callable[[EventReading], float]], ...] = (
    ("events", "KV events that were applied to the index of cached blocks.", lambda reading: reading.events),
    ("event_gaps", "Gaps in the batches of KV events.", lambda reading: reading.gaps),
    ("event_replays", "Requests to an engine to send KV events again (replays).", lambda reading: reading.replays),
    ("event_restarts", "Restarts of engines, as seen in their KV events.", lambda reading: reading.restarts),
    ("event_batches_lost", "Batches of KV events that were missed and that no replay contained.", lambda reading: reading.batches_lost),
    ("event_messages_unreadable", "Messages that are not a batch of KV events.", lambda reading: reading.unreadable),
)


class Belief:
    """The predicted cached prompt tokens of requests, compared with the numbers that the engine reported."""

    __slots__ = ("difference_tokens", "exact", "predicted_tokens", "reported_tokens", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.exact = 0
        self.predicted_tokens = 0
        self.reported_tokens = 0
        self.difference_tokens = 0
        """Sum over all requests of the absolute difference between predicted and reported tokens."""

    def compare(self, predicted_tokens: int, reported_tokens: int) -> None:
        """Add one request to the comparison."""
        self.requests += 1
        self.exact += predicted_tokens == reported_tokens
        self.predicted_tokens += predicted_tokens
        self.reported_tokens += reported_tokens
        self.difference_tokens += abs(predicted_tokens - reported_tokens)


def event_families(readings: Mapping[tuple[str, str], Sequence[EventReading]]) -> Iterator[Metric]:
    """Yield the metrics of the readings, which are keyed by pool and instance. The metric families have no samples if
    no instance sends events.
    """
    rows = [((pool, instance, str(one.rank)), one) for (pool, instance), ranks in readings.items() for one in ranks]
    for name, text, read in _COUNTERS:
        counter = CounterMetricFamily(f"fairlead_router_kv_{name}", text, labels=_LABELS)
        for labels, one in rows:
            counter.add_metric(labels, read(one))
        yield counter
    blocks = GaugeMetricFamily("fairlead_router_kv_blocks", "Blocks that the instance holds, by its events.", labels=_LABELS)
    lag = GaugeMetricFamily(
        "fairlead_router_kv_event_lag_seconds",
        "Seconds from the creation of the newest batch of KV events (engine's clock) to its arrival (router's clock).",
        labels=_LABELS,
    )
    state = GaugeMetricFamily("fairlead_router_kv_event_state", "1 for the state of the source's KV events.", labels=(*_LABELS, "state"))
    for labels, one in rows:
        blocks.add_metric(labels, one.blocks)
        if one.lag_seconds is not None:
            lag.add_metric(labels, one.lag_seconds)
        for each in STATES:
            state.add_metric((*labels, each), float(each == one.state))
    yield from (blocks, lag, state)


def belief_families(beliefs: Mapping[str, Mapping[tuple[str, str], Belief]]) -> Iterator[Metric]:
    """Yield the metrics of predicted cached tokens. `beliefs` is keyed by pool, then by instance and basis of the
    prediction (`events`, `expected` or `history`).
    """
    labels = ("pool", "instance", "basis")
    requests = CounterMetricFamily(
        "fairlead_router_cache_beliefs", "Answered requests whose engine reported how many prompt tokens were cached.", labels=labels
    )
    exact = CounterMetricFamily(
        "fairlead_router_cache_beliefs_exact", "Answered requests whose cached tokens the router had predicted exactly.", labels=labels
    )
    tokens = CounterMetricFamily(
        "fairlead_router_cache_belief_tokens",
        "Cached prompt tokens of answered requests: predicted, reported by the engine, and the sum of the differences.",
        labels=(*labels, "kind"),
    )
    for pool, by_instance in beliefs.items():
        for (instance, basis), belief in by_instance.items():
            row = (pool, instance, basis)
            requests.add_metric(row, belief.requests)
            exact.add_metric(row, belief.exact)
            tokens.add_metric((*row, "predicted"), belief.predicted_tokens)
            tokens.add_metric((*row, "reported"), belief.reported_tokens)
            tokens.add_metric((*row, "difference"), belief.difference_tokens)
    yield from (requests, exact, tokens)


def token_families(pools: Mapping[str, tuple[Mapping[str, int], Mapping[str, int]]]) -> Iterator[Metric]:
    """Yield the metrics of tokenizing for each pool: the number of prompts by the known part of their tokens, and the
    number of requests to tokenize by outcome.
    """
    prompts = CounterMetricFamily(
        "fairlead_router_known_prompts",
        "Requests to pools with KV events, by how much of the prompt's tokens was known when they were routed.",
        labels=("pool", "known"),
    )
    asked = CounterMetricFamily(
        "fairlead_router_tokenizing", "Prompts that an engine was asked to tokenize for the router, by outcome.", labels=("pool", "outcome")
    )
    for pool, (known, outcomes) in pools.items():
        for share, count in known.items():
            prompts.add_metric((pool, share), count)
        for outcome, count in outcomes.items():
            asked.add_metric((pool, outcome), count)
    yield from (prompts, asked)
