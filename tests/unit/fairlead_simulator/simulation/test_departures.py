"""Drained instances leave a simulated pool when nothing needs them any more."""

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.simulation.pool_changes import PoolChanges
from fairlead_simulator.simulation.pools import SimulatedPool

POOL = SimulatedPool(preset=preset("dualmap-910b4-qwen7b"), instances=3, policy="fairlead", prefill_tokens_per_second=1.0)


def test_a_drained_instance_that_is_held_stays_until_it_is_let_go() -> None:
    table = POOL.first_table()
    first, second = (entry.id for entry in table.instances[:2])
    held = {first}
    changes = PoolChanges(POOL, (), held=held)
    table = changes.drain([first, second], table).table or table
    table = changes.apply(changes.departures((), 1.0), table, 1.0).table or table
    assert first in (there := {entry.id for entry in table.instances})
    assert second not in there
    held.clear()
    table = changes.apply(changes.departures((), 2.0), table, 2.0).table or table
    assert first not in {entry.id for entry in table.instances}
