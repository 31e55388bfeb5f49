import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.predictors import learners
from fairlead.predictors.coresets import Selection, coreset, gradient_features
from fairlead.predictors.fitting import FitSettings
from fairlead.predictors.learners import Learner, LearnerSettings, TwoPools
from fairlead.predictors.models import Evaluation, Model, Scales, evaluate
from fairlead.predictors.networks import Network
from fairlead.predictors.samples import Floats, Samples

QUICK = FitSettings(epochs=2, least_steps=30)


def numbered(begin: int, end: int) -> Samples:
    """Return samples whose only feature is their number."""
    numbers = np.arange(begin, end, dtype=np.float32)
    return Samples(features=numbers[:, None], ttft_seconds=np.ones(end - begin, dtype=np.float32))


def regime(count: int, centre: float, ttft: float, seed: int) -> Samples:
    """Return samples of one regime: features near the same point, and TTFTs that belong to it."""
    dice = np.random.default_rng(seed)
    features = dice.normal(centre, 1.0, (count, 2)).astype(np.float32)
    return Samples(features=features, ttft_seconds=(ttft + np.abs(features[:, 0] - centre)).astype(np.float32))


def trained(samples: Samples, seed: int = 1) -> Model:
    learner = Learner(LearnerSettings(feature_names=("a", "b"), first_samples=10, width=16, fit=QUICK), seed)
    learner.add(samples)
    return learner.train()


def unit(rows: Floats) -> Floats:
    lengths: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return lengths


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(1, 20), st.integers(0, 20), st.data())
def test_the_newest_are_exactly_the_newest_and_the_replay_holds_none_of_them(
    batches: list[int], recent: int, replay: int, data: st.DataObject
) -> None:
    pools = TwoPools(1, recent, replay, Selection.CORRECTED)
    seen = 0
    for count in batches:
        pools.add(numbered(seen, seen + count))
        seen += count
        if data.draw(st.booleans()):
            pools.choose_replay(None, np.random.default_rng(seen))
    newest = pools.recent.features[:, 0].tolist()
    assert newest == list(range(max(0, seen - recent), seen))
    kept = pools.replay.features[:, 0].tolist()
    assert len(kept) <= replay
    assert len(set(kept)) == len(kept)
    assert not set(kept) & set(newest)


def test_nothing_is_kept_for_replay_before_the_newest_are_full() -> None:
    pools = TwoPools(1, 100, 50, Selection.CORRECTED)
    pools.add(numbered(0, 100))
    pools.choose_replay(None, np.random.default_rng(1))
    assert len(pools.replay) == 0
    pools.add(numbered(100, 110))
    pools.choose_replay(None, np.random.default_rng(1))
    assert pools.replay.features[:, 0].tolist() == list(range(10))


def test_memory_is_bounded_however_long_no_round_is_run() -> None:
    pools = TwoPools(1, 10, 10, Selection.CORRECTED)
    for begin in range(0, 60_000, 5_000):
        pools.add(numbered(begin, begin + 5_000))
    assert len(pools.recent) + len(pools.replay) + len(pools.leaving) <= 10_020


def test_as_many_samples_are_replayed_as_were_asked_for() -> None:
    pools = TwoPools(1, 10, 25_000, Selection.CORRECTED)
    pools.add(numbered(0, 30_010))
    pools.choose_replay(None, np.random.default_rng(1))
    assert len(pools.replay) == 25_000


def test_fifo_alone_keeps_no_replay() -> None:
    pools = TwoPools(1, 10, 10, Selection.FIFO)
    pools.add(numbered(0, 40))
    pools.choose_replay(None, np.random.default_rng(1))
    assert (len(pools.recent), len(pools.replay), len(pools.leaving)) == (10, 0, 0)


def test_a_coreset_is_spread_at_least_as_wide_as_a_random_choice() -> None:
    dice = np.random.default_rng(7)
    directions = unit(dice.normal(0, 1, (400, 8)).astype(np.float32))

    def spread(rows: Floats) -> float:
        nearest = rows @ rows.T - 2 * np.eye(len(rows), dtype=np.float32)
        return float((1 - nearest.max(axis=1)).mean())

    chosen = directions[coreset(directions, np.ones(400, dtype=np.float32), 20, Selection.PUBLISHED)]
    by_chance = [spread(directions[dice.choice(400, 20, replace=False)]) for _ in range(10)]
    assert spread(chosen) >= max(by_chance)


def test_published_selection_asks_of_residuals_only_for_its_first_pick_and_corrected_for_all() -> None:
    """Two samples have directions of their own, and a third one with a large residual is close to the first pick."""
    directions = unit(np.array([[1, 0.0], [0.9, 0.436], [0, 1.0], [-1, 0.0]], dtype=np.float32))
    sizes = np.array([10, 9.0, 0.1, 0.2], dtype=np.float32)
    assert coreset(directions, sizes, 2, Selection.PUBLISHED).tolist() == [0, 3]
    assert coreset(directions, sizes, 2, Selection.CORRECTED).tolist() == [0, 1]


def test_samples_that_the_model_predicts_exactly_have_no_direction_and_do_no_harm() -> None:
    model = trained(regime(50, 0.0, 1.0, 3))
    samples = regime(30, 0.0, 1.0, 4)
    exact = Samples(features=samples.features, ttft_seconds=model.ttft_seconds(samples.features))
    directions, sizes = gradient_features(model, exact)
    assert np.isfinite(directions).all()
    assert float(sizes.max()) < 1e-3
    assert len(coreset(np.zeros_like(directions), np.zeros_like(sizes), 7, Selection.CORRECTED)) == 7


def test_what_is_held_out_once_is_never_trained_on_in_any_round(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = LearnerSettings(
        feature_names=("a",), first_samples=100, round_samples=37, recent_samples=100, replay_samples=60, width=4, fit=QUICK
    )
    fitted: set[float] = set()
    held_out: set[float] = set()

    def evaluated(scales: Scales, network: Network, samples: Samples) -> Evaluation:
        held_out.update(samples.features[:, 0].tolist())
        return evaluate(scales, network, samples)

    monkeypatch.setattr(learners, "evaluate", evaluated)
    learner = Learner(settings, 1)
    for begin in range(0, 28 * 37, 37):
        learner.add(numbered(begin, begin + 37))
        if learner.due:
            learner.train()
            fitted.update(learner.remembered.features[:, 0].tolist())
    assert learner.model is not None and learner.model.round > 20
    assert not fitted & held_out
    assert held_out == set(range(4, 28 * 37, 5)), "every fifth, whatever batches they came in"


def test_after_a_shift_the_replay_still_holds_the_old_regime() -> None:
    settings = LearnerSettings(
        feature_names=("a", "b"), first_samples=100, round_samples=100, recent_samples=100, replay_samples=60, width=16, fit=QUICK
    )
    learner = Learner(settings, 1)
    for batch in range(3):
        learner.add(regime(100, 0.0, 1.0, batch))
        learner.train()
    for batch in range(3, 8):
        learner.add(regime(100, 8.0, 4.0, batch))
        learner.train()
    replayed = learner.remembered.features[:48, 0]
    assert float((replayed < 4.0).mean()) > 0.1
    assert len(learner.remembered) == 128, "every fifth of them is held out"
