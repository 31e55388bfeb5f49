"""The stated benefit of a host cache, and when it is not confirmed."""

import pytest

from fairlead.scaling.host_caches import TOLERANCE, HostCache


@pytest.mark.parametrize(
    ("simulated", "is_confirmed"), [(None, False), (0.2, True), (0.2 - 0.05 - TOLERANCE + 1e-9, True), (0.11, False), (0.3, False)]
)
def test_a_prediction_is_confirmed_by_a_simulation_within_its_error(simulated: float | None, is_confirmed: bool) -> None:
    assert HostCache(tokens=1, predicted=0.2, error=0.05, simulated=simulated).is_confirmed is is_confirmed
