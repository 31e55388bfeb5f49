import numpy as np
import pytest

from fairlead.predictors.fitting import FitSettings, fit
from fairlead.predictors.networks import Network, gradients
from fairlead.predictors.samples import Floats


def rows(count: int, width: int = 3, seed: int = 5) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def in_double(network: Network) -> Network:
    return Network(
        weights=tuple(one.astype(np.float64) for one in network.weights),
        biases=tuple(one.astype(np.float64) for one in network.biases),
    )


def test_derivatives_are_those_of_the_squared_error() -> None:
    network = in_double(Network.initial(3, 6, np.random.default_rng(1)))
    inputs, targets = rows(9).astype(np.float64), rows(9, 1)[:, 0].astype(np.float64)
    found = gradients(network, inputs, targets, ())  # type: ignore[arg-type]
    parts = [part for pair in zip(network.weights, network.biases, strict=True) for part in pair]
    step = 1e-6
    for part, derivative in zip(parts, found, strict=True):
        for place in np.ndindex(part.shape):
            before = part[place]
            errors = []
            for moved in (before + step, before - step):
                part[place] = moved
                errors.append(float(np.mean((network.outputs(inputs) - targets) ** 2)))  # type: ignore[arg-type]
            part[place] = before
            assert derivative[place] == pytest.approx((errors[0] - errors[1]) / (2 * step), abs=1e-5)


def test_instances_that_change_places_change_their_answers_with_them() -> None:
    network, inputs = Network.initial(3, 16, np.random.default_rng(1)), rows(8)
    order = np.random.default_rng(2).permutation(8)
    assert network.outputs(inputs)[order] == pytest.approx(network.outputs(inputs[order]), rel=1e-5)


def test_weights_begin_within_their_bound_and_biases_at_a_hundredth() -> None:
    network = Network.initial(8, 128, np.random.default_rng(3))
    assert [one.shape for one in network.weights] == [(8, 128), (128, 128), (128, 128), (128, 1)]
    assert float(np.abs(network.weights[0]).max()) <= np.sqrt(6 / 136)
    assert all((one == np.float32(0.01)).all() for one in network.biases)


def test_a_network_learns_what_depends_on_its_inputs_and_the_one_before_stays() -> None:
    inputs = rows(600)
    targets = (np.maximum(inputs[:, 0], 0) * 2 - inputs[:, 1]).astype(np.float32)
    first = Network.initial(3, 32, np.random.default_rng(4))
    before = first.weights[0].copy()
    fitted = fit(first, inputs, targets, FitSettings(least_steps=400), np.random.default_rng(4))
    fresh = rows(200, seed=9)
    wanted = np.maximum(fresh[:, 0], 0) * 2 - fresh[:, 1]
    assert float(np.abs(fitted.outputs(fresh) - wanted).mean()) < 0.3 * float(np.abs(wanted - wanted.mean()).mean())
    assert (first.weights[0] == before).all()


def test_the_same_seed_gives_the_same_network() -> None:
    inputs, targets = rows(100), rows(100, 1)[:, 0]
    settings = FitSettings(least_steps=0, epochs=2)
    one, two = (fit(Network.initial(3, 8, np.random.default_rng(1)), inputs, targets, settings, np.random.default_rng(2)) for _ in range(2))
    assert (one.outputs(inputs) == two.outputs(inputs)).all()


def test_few_samples_are_passed_over_more_often() -> None:
    settings = FitSettings(epochs=20, least_steps=600)
    assert (settings.epochs_of(256), settings.epochs_of(800), settings.epochs_of(10_000)) == (600, 150, 20)
    assert FitSettings(epochs=20, least_steps=0).epochs_of(256) == 20
