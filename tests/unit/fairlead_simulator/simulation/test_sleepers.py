"""Instances that sleep in a simulated pool."""

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.simulation.pool_changes import PoolChanges
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.timeline import ScaleTo

POOL = SimulatedPool(preset=preset("dualmap-910b4-qwen7b"), instances=4, policy="fairlead", prefill_tokens_per_second=1.0)


def scaled(at: float, instances: int, asleep: int) -> ScaleTo:
    return ScaleTo(at=at, instances=instances, startup_seconds=240.0, asleep=asleep, wake_seconds=5.0)


def starts_after(asleep: int) -> list[tuple[float, int]]:
    """Return the start times and numbers of serving instances of a pool that went from four to one and wants four at
    100 s.
    """
    changes, table = PoolChanges(POOL, ()), POOL.first_table()
    table = changes.apply(scaled(0.0, 1, asleep), table, 0.0).table or table
    table = changes.apply(changes.departures((), 1.0), table, 1.0).table or table
    assert len(table.instances) == 1, "a sleeper is in no table"
    return [(one.at, len(getattr(one, "names", ()))) for one in changes.apply(scaled(100.0, 4, asleep), table, 100.0).later]


def test_those_that_sleep_serve_first_and_the_others_start_cold() -> None:
    assert starts_after(0) == [(340.0, 3)]
    assert starts_after(2) == [(105.0, 2), (340.0, 1)]
    assert starts_after(9) == [(105.0, 3)]
