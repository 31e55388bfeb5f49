"""Decides what a failure says about an engine, by the kind of `UpstreamFailure`, and keeps circuits for requests that
bypass the scheduler.

These circuits are separate from the scheduler's: an engine may fail at `/tokenize` and still generate well.
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
"""Kinds of failure that do not show that the engine is broken: it is full or drains, the request's time was over, the
engine got nothing, or it does not know the way in which it was asked to continue an answer.
"""


def fault_of(kind: str) -> Fault | None:
    """Return the fault that a failure of this kind may show; None if it shows no fault. Kinds that are not of the
    transport concern the answer itself.
    """
    return None if kind in _NO_FAULT else _FAULTS.get(kind, Fault.ANSWER)


class SideCircuits:
    """Circuits by instance, for requests that bypass the scheduler. All times are Unix seconds."""

    __slots__ = ("_circuits", "_settings")

    def __init__(self) -> None:
        self._circuits: dict[str, Circuit] = {}
        self._settings = CircuitSettings()

    def broken(self, now: float) -> Collection[str]:
        """Instances whose circuit is open."""
        return [instance for instance, circuit in self._circuits.items() if not circuit.admits(now)]

    def failed(self, instance: str, now: float) -> None:
        """Record that the instance failed a request that was not at fault."""
        self._circuits.setdefault(instance, Circuit(self._settings)).failed(now)

    def worked(self, instance: str) -> None:
        """Record that the instance answered well."""
        self._circuits.pop(instance, None)

    def keep_only(self, instances: Collection[str]) -> None:
        """Forget all other instances."""
        self._circuits = {instance: circuit for instance, circuit in self._circuits.items() if instance in instances}


class Tries:
    """The attempts of one request that bypasses the scheduler, judged as the scheduler judges the attempts of its
    requests. The record ends with `served`, `over` or `left`; later calls change nothing.
    """

    __slots__ = ("_circuits", "_faults")

    def __init__(self, circuits: SideCircuits) -> None:
        self._circuits = circuits
        self._faults: list[tuple[str, Fault]] = []

    def failed(self, instance: str, fault: Fault | None, now: float) -> None:
        """Record that the request failed at this instance."""
        if fault is Fault.UNREACHED:
            self._circuits.failed(instance, now)
        elif fault is not None:
            self._faults.append((instance, fault))

    @property
    def failed_alike(self) -> bool:
        """Whether two instances failed this request in the same way, so that the request may be at fault. A lost
        instance does not count: something else may have ended it.
        """
        last = [fault for _, fault in self._faults[-2:]]
        return len(last) > 1 and last[0].is_like(last[1]) and last[1] is not Fault.LOST

    def served(self, instance: str, now: float) -> None:
        """Record that this instance served the request: the instances that failed it before are at fault."""
        self._circuits.worked(instance)
        for other, _ in self._faults:
            self._circuits.failed(other, now)
        self._faults.clear()

    def over(self, now: float) -> None:
        """Record that no instance served the request. A failure that no other instance confirmed counts against its
        instance, unless it was a refusal.
        """
        for instance, fault in () if self.failed_alike else self._faults:
            if fault is not Fault.REFUSED:
                self._circuits.failed(instance, now)
        self._faults.clear()

    def left(self) -> None:
        """Record that the client left before the cause of a failure was known: no instance is blamed."""
        self._faults.clear()
