"""Circuits: instances that fail are not chosen for a while, and what waits for them is placed elsewhere."""

from fairlead.routing.knowledge.circuit import Circuit
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.routing.scheduling.waiting import Waiting


class Circuits:
    """Opens and closes the circuits of a pool's instances."""

    def __init__(self, state: SchedulerState, waiting: Waiting) -> None:
        self._state = state
        self._waiting = waiting

    def failed(self, instance: str, now: float) -> None:
        """A connection error or 5xx.

        When the circuit opens, queued requests leave; the next outcomes taken tell where to.
        """
        state = self._state
        load = state.loads.get(instance)
        if load is None:
            return
        state.view.now = now
        circuit = state.circuits.setdefault(instance, Circuit(state.settings.circuit))
        circuit.failed(now)
        state.sync_circuit(load, circuit)
        if load.broken_until > now and instance in state.queues:
            self._waiting.place_again(tuple(state.queues[instance].in_order(now)), now)

    def worked(self, instance: str) -> None:
        """It answered: its circuit closes."""
        circuit = self._state.circuits.pop(instance, None)
        load = self._state.loads.get(instance)
        if circuit is not None and load is not None:
            circuit.worked()
            self._state.sync_circuit(load, circuit)
