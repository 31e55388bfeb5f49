from collections.abc import Sequence

from fairlead.routing.contracts.predictors import InstanceFeatures, Predictor, candidate_features
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import load_of, request, table, view_over


class Notebook:
    """A predictor that only writes down what it is told."""

    ready = False

    def __init__(self) -> None:
        self.seen: list[tuple[int, InstanceFeatures, float]] = []

    def predict(self, prompt_tokens: int, instances: Sequence[InstanceFeatures]) -> Sequence[float]:
        return [prompt_tokens / 6250 for _ in instances]

    def observe(self, prompt_tokens: int, chosen: InstanceFeatures, ttft_seconds: float) -> None:
        self.seen.append((prompt_tokens, chosen, ttft_seconds))


def test_a_predictor_is_told_the_features_of_the_moment_of_choice_and_the_ttft() -> None:
    notebook = Notebook()
    predictor: Predictor = notebook
    scheduler = PoolScheduler(table(1), "router-0", 1, predictor=predictor)
    scheduler.submit(request("r1", 2_000), 0.0)
    scheduler.submit(request("r2", 1_024, blocks=(1, 2), at=0.5), 0.5)
    scheduler.first_token("r1", 1.0)
    scheduler.first_token("r2", 3.0)
    (first, second) = notebook.seen
    assert first == (
        2_000,
        InstanceFeatures(running=0, waiting=0, prefill_tokens=0, decode_tokens=0, kv_usage=0.0, hit_share=0.0),
        1.0,
    )
    assert (second[0], second[1].running, second[1].waiting, second[1].prefill_tokens, second[2]) == (1_024, 1, 0, 2_000, 2.5)


def test_refused_and_cancelled_requests_teach_nothing() -> None:
    notebook = Notebook()
    scheduler = PoolScheduler(table(1), "router-0", 1, predictor=notebook)
    scheduler.submit(request("r1"), 0.0)
    scheduler.cancel("r1", 1.0)
    scheduler.first_token("r1", 2.0)
    assert notebook.seen == []


def test_features_name_no_instance_and_follow_the_order_of_candidates() -> None:
    loads = [load_of("i1", requests=3, pending=500, kv_usage=0.4), load_of("i2", waiting=2, decode_tokens=119_837)]
    first, second = candidate_features(request("r", 1_000), view_over(loads, {"i2": 250}))
    assert (first.running, first.prefill_tokens, first.kv_usage, first.hit_share) == (3, 500, 0.4, 0.0)
    assert (second.waiting, round(second.kv_usage, 3), second.hit_share) == (2, 0.1, 0.25)
