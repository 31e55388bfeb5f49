import pytest
from benchmarks.warm_bench import held

from fairlead.instances import Role
from fairlead_simulator.simulation.autoscaling import SizeChange


def change(at: float, replicas: int) -> SizeChange:
    return SizeChange(at=at, role=Role.BOTH, replicas=replicas)


def test_hours_awake_and_asleep_follow_the_sizes() -> None:
    hour = 3600.0
    changes = [change(hour, 6), change(2 * hour, 2), change(3 * hour, 4), change(9 * hour, 1)]
    assert held(changes, 4, 4 * hour, 0) == pytest.approx((16.0, 0.0))
    assert held(changes, 4, 4 * hour, 3) == pytest.approx((16.0, 4.0)), "three sleep for an hour, then one"
