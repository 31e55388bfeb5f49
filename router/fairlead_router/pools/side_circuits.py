"""Decides what a failure says about an engine, by the kind of `UpstreamFailure`, and keeps circuits for requests that
bypass the scheduler.

These circuits are separate from the scheduler's: an engine may fail at `/tokenize` and generate well.
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
_NO_FAULT = ("busy", "deadline", "lacking", "rest-refused", "drained")
"""The engine is full, the request's time was over, or the engine got nothing, or was asked to go on with an answer in a
way that it does not know, or drains: no evidence that it is broken.
"""


def fault_of(kind: str) -> Fault | None:
    """The fault that a failure of this kind may show; kinds that are not of the transport concern the answer itself."""
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
        """The instance failed a request, and the request was not at fault."""
        self._circuits.setdefault(instance, Circuit(self._settings)).failed(now)

    def worked(self, instance: str) -> None:
        """The instance answered well."""
        self._circuits.pop(instance, None)

    def keep_only(self, instances: Collection[str]) -> None:
        """Forget all other instances."""
        self._circuits = {instance: circuit for instance, circuit in self._circuits.items() if instance in instances}


class Tries:
    """The attempts of one request that does not use the scheduler, judged as the scheduler judges its own. It ends in
    `served`, `over` or `left`; later calls change nothing.
    """

    __slots__ = ("_circuits", "_faults")

    def __init__(self, circuits: SideCircuits) -> None:
        self._circuits = circuits
        self._faults: list[tuple[str, Fault]] = []

    def failed(self, instance: str, fault: Fault | None, now: float) -> None:
        """The request failed at the other instance too."""
        if fault is Fault.UNREACHED:
            self._circuits.failed(instance, now)
        elif fault is not None:
            self._faults.append((instance, fault))

    @property
    def failed_alike(self) -> bool:
        """Whether two instances failed this request in the same way, so the request may be at fault. A lost instance
        does not count: something else may have ended it.
        """
        last = [fault for _, fault in self._faults[-2:]]
        return len(last) > 1 and last[0].is_like(last[1]) and last[1] is not Fault.LOST

    def served(self, instance: str, now: float) -> None:
        """The request was served there: the instances that failed it before are at fault."""
        self._circuits.worked(instance)
        for other, _ in self._faults:
            self._circuits.failed(other, now)
        self._faults.clear()

    def over(self, now: float) -> None:
        """No instance served it. A failure that no other instance confirmed counts against its instance, unless it was
        a refusal.
        """
        for instance, fault in () if self.failed_alike else self._faults:
            if fault is not Fault.REFUSED:
                self._circuits.failed(instance, now)
        self._faults.clear()

    def left(self) -> None:
        """Its client left before the fault for a failure was known: no instance is blamed."""
        self._faults.clear()
