"""What failures of engines are evidence of, by the kinds of `UpstreamFailure`; and the circuits of requests that go
past the scheduler.

Those open no circuit for chats, nor the other way round: an engine may answer no `/tokenize` and generate well.
"""

from __future__ import annotations

from collections.abc import Collection

from fairlead.routing.contracts.faults import Fault
from fairlead.routing.knowledge.circuit import Circuit, CircuitSettings

_FAULTS = {
    "refused": Fault.UNREACHED,
    "unreachable": Fault.UNREACHED,
    "lost": Fault.LOST,
    "protocol": Fault.LOST,
    "passed-over": Fault.LOST,
    "status": Fault.STATUS,
    "timeout": Fault.TIMEOUT,
    "stalled": Fault.STALLED,
    "credential": Fault.REFUSED,
}
_NO_FAULT = ("busy", "deadline", "lacking")
"""It is full, the request's time was over, or it was sent nothing: none of these says that an engine is broken."""


def fault_of(kind: str) -> Fault | None:
    """What a failure of this kind may be evidence of; kinds that are not of the transport are of the answer itself."""
    return None if kind in _NO_FAULT else _FAULTS.get(kind, Fault.ANSWER)


class SideCircuits:
    """Circuits by instance. All times are Unix seconds."""

    __slots__ = ("_circuits", "_settings")

    def __init__(self) -> None:
        self._circuits: dict[str, Circuit] = {}
        self._settings = CircuitSettings()

    def broken(self, now: float) -> Collection[str]:
        """Instances whose circuit is open."""
        return [instance for instance, circuit in self._circuits.items() if not circuit.admits(now)]

    def failed(self, instance: str, now: float) -> None:
        """It failed a request that was not the fault of the request."""
        self._circuits.setdefault(instance, Circuit(self._settings)).failed(now)

    def worked(self, instance: str) -> None:
        """It answered well."""
        self._circuits.pop(instance, None)

    def keep_only(self, instances: Collection[str]) -> None:
        """Forget all other instances."""
        self._circuits = {instance: circuit for instance, circuit in self._circuits.items() if instance in instances}


class Tries:
    """How one request past the scheduler fared at each instance it was sent to, judged as the scheduler judges its own.
    It ends in `served`, `over` or `left`; what is said after that changes nothing.
    """

    __slots__ = ("_circuits", "_faults")

    def __init__(self, circuits: SideCircuits) -> None:
        self._circuits = circuits
        self._faults: list[tuple[str, Fault]] = []

    def failed(self, instance: str, fault: Fault | None, now: float) -> None:
        """It failed there."""
        if fault is Fault.UNREACHED:
            self._circuits.failed(instance, now)
        elif fault is not None:
            self._faults.append((instance, fault))

    @property
    def failed_alike(self) -> bool:
        """Whether two instances failed it in the same way: that speaks of the request. Those that were lost may have
        died of something else.
        """
        last = [fault for _, fault in self._faults[-2:]]
        return len(last) > 1 and last[0].is_like(last[1]) and last[1] is not Fault.LOST

    def served(self, instance: str, now: float) -> None:
        """It was served there: those that failed it before are at fault."""
        self._circuits.worked(instance)
        for other, _ in self._faults:
            self._circuits.failed(other, now)
        self._faults.clear()

    def over(self, now: float) -> None:
        """It was served nowhere. What no other instance confirmed is held against the one that failed, but for
        refusals.
        """
        for instance, fault in () if self.failed_alike else self._faults:
            if fault is not Fault.REFUSED:
                self._circuits.failed(instance, now)
        self._faults.clear()

    def left(self) -> None:
        """Its client went away before it was known whose fault a failure was: that is held against nobody."""
        self._faults.clear()
