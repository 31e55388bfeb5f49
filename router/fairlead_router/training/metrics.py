"""Metrics of learning policies: who chooses and why, how wrong the model is, and how fresh."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fairlead.predictors.reports import LearningReport


class TrainingCounters:
    """What happened between a router and its trainer since the router started."""

    __slots__ = ("refused", "rounds", "trainers_lost")

    def __init__(self) -> None:
        self.trainers_lost = 0
        self.rounds: Counter[str] = Counter()
        """Models adopted, by pool."""
        self.refused: Counter[tuple[str, str]] = Counter()
        """Models refused, by pool and fault."""

    def forget_pool(self, pool: str) -> None:
        """Keep nothing of a pool that is gone."""
        self.rounds.pop(pool, None)
        for key in [key for key in self.refused if key[0] == pool]:
            del self.refused[key]


def learning_families(counters: TrainingCounters, reports: Mapping[str, LearningReport]) -> Iterator[Metric]:
    """Reports by pool; families without samples where no pool's policy learns."""
    choices = CounterMetricFamily(
        "fairlead_router_learning_choices",
        "Choices of a learning policy: by its model, or by its heuristic and why.",
        labels=["pool", "by"],
    )
    samples = CounterMetricFamily("fairlead_router_learning_samples", "Requests whose TTFT was seen.", labels=["pool"])
    dropped = CounterMetricFamily("fairlead_router_learning_samples_dropped", "Of them, lost before a trainer took them.", labels=["pool"])
    rounds = CounterMetricFamily("fairlead_router_learning_models", "Models adopted.", labels=["pool"])
    refused = CounterMetricFamily(
        "fairlead_router_learning_models_refused", "Models refused, by fault; the one before stays in use.", labels=["pool", "fault"]
    )
    behind = GaugeMetricFamily("fairlead_router_learning_samples_behind", "Samples since the model in use was adopted.", labels=["pool"])
    error = GaugeMetricFamily(
        "fairlead_router_learning_error_seconds",
        "Mean absolute error of TTFTs over the last 500 requests, by the model's prediction and by the router's formula; and their mean TTFT.",
        labels=["pool", "of"],
    )
    drift = GaugeMetricFamily(
        "fairlead_router_learning_drift", "Shift of recent features' means from the training's, in its deviations.", labels=["pool"]
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
        "fairlead_router_trainers_lost", "Trainer processes that died or hung, and were started anew.", value=counters.trainers_lost
    )
    yield from (choices, samples, dropped, rounds, refused, behind, error, drift, lost)
