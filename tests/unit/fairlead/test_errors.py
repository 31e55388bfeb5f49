"""Errors keep their fields when they are sent between processes."""

import pickle

import pytest

from fairlead.errors import FairleadError, InvalidInput, UnknownName


@pytest.mark.parametrize(
    "error", [InvalidInput("spec.replicas", -1, "write 0 or more"), UnknownName("policy", "fastest", ("ear", "dualmap"))]
)
def test_an_error_comes_back_whole_from_another_process(error: FairleadError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_an_invalid_input_knows_the_parameter_it_is_about() -> None:
    assert InvalidInput("spec.routing.parameters.slo_fraction", 0, "").parameter == "slo_fraction"
    assert InvalidInput("--rates", 0, "").parameter == "--rates"


def test_an_input_without_a_value_is_told_without_one() -> None:
    error = InvalidInput("--engine", None, "name an engine")
    assert (str(error), error.told) == ("--engine: name an engine", "--engine cannot be used")


def test_a_long_value_is_cut_so_that_the_remedy_is_read() -> None:
    said = str(InvalidInput("spec.routing.parameters.config", "plugins: " * 100, "write an object"))
    assert len(said) < 250
    assert "(902 characters) cannot be used; write an object" in said
