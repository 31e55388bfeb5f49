import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.predictors.fitting import FitSettings
from fairlead.predictors.learners import Learner, LearnerSettings
from fairlead.predictors.model_bytes import from_bytes, to_bytes
from fairlead.predictors.models import Model, Scales
from fairlead.predictors.refusals import ModelFault, ModelRefused
from fairlead.predictors.samples import Samples

SETTINGS = LearnerSettings(
    feature_names=("a", "b", "c"),
    first_samples=20,
    round_samples=10,
    width=8,
    longest_ttft_seconds=15.0,
    fit=FitSettings(least_steps=20, epochs=1),
)


def samples(count: int, seed: int = 1, ttft: float = 1.0) -> Samples:
    dice = np.random.default_rng(seed)
    return Samples(
        features=dice.uniform(0, 10, (count, 3)).astype(np.float32), ttft_seconds=dice.uniform(ttft, 2 * ttft, count).astype(np.float32)
    )


def model() -> Model:
    learner = Learner(SETTINGS, 3)
    learner.add(samples(40))
    return learner.train()


CONTENT = to_bytes(model())


def test_a_feature_that_never_varied_is_divided_by_one_and_is_never_out_of_range() -> None:
    rows = np.array([[1, 7], [3, 7]], dtype=np.float32)
    scales = Scales.of(rows)
    assert scales.normalised(rows).tolist() == [[-1, 0], [1, 0]]
    one = Model(**{**{name: getattr(model(), name) for name in Model.__slots__}, "scales": scales})
    assert one.within(np.array([[1, 99], [3.5, 7], [3, 7]], dtype=np.float32)).tolist() == [[True, True], [False, True], [True, True]]


def test_drift_is_the_shift_of_the_mean_in_deviations_of_the_training() -> None:
    scales = Scales(*(np.array(one, dtype=np.float32) for one in ([0, 0], [1, 2], [-9, -9], [9, 9])))
    one = Model(**{**{name: getattr(model(), name) for name in Model.__slots__}, "scales": scales})
    assert one.drift(np.array([[1, 4], [1, -4]], dtype=np.float32)) == pytest.approx(0.5)


def test_rounds_come_after_the_first_samples_and_then_after_so_many_new_ones() -> None:
    learner = Learner(SETTINGS, 1)
    learner.add(samples(19))
    assert not learner.due
    learner.add(samples(1))
    assert learner.due
    first = learner.train()
    assert (first.round, first.samples_seen, first.trained_on, first.evaluation.samples) == (1, 20, 16, 4)
    assert not learner.due
    learner.add(samples(10, seed=2))
    assert learner.due
    assert learner.train().round == 2


def test_what_was_very_late_is_seen_and_not_learnt_from() -> None:
    learner = Learner(SETTINGS, 1)
    learner.add(samples(30, ttft=16.0))
    assert (learner.samples_seen, learner.due) == (30, False)
    with pytest.raises(ValueError, match="nothing"):
        learner.train()


def test_the_same_samples_and_seed_give_the_same_model() -> None:
    assert to_bytes(model()) == to_bytes(model())


def test_a_model_comes_back_whole() -> None:
    one, two = model(), from_bytes(to_bytes(model()))
    rows = samples(5).features
    assert (one.ttft_seconds(rows) == two.ttft_seconds(rows)).all()
    assert (one.feature_names, one.round, one.evaluation, one.samples_seen) == (
        two.feature_names,
        two.round,
        two.evaluation,
        two.samples_seen,
    )
    assert two.finite


@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_a_model_with_any_damaged_byte_is_refused(place: int, change: int) -> None:
    damaged = bytearray(CONTENT)
    damaged[place] ^= change
    with pytest.raises(ModelRefused) as refusal:
        from_bytes(bytes(damaged))
    assert refusal.value.fault is ModelFault.CORRUPT


@given(st.integers(0, len(CONTENT) - 1))
def test_a_model_cut_short_is_refused(length: int) -> None:
    with pytest.raises(ModelRefused):
        from_bytes(CONTENT[:length])
