"""Decides by the kind of an `UpstreamFailure` whether the engine may be at fault, and has the circuit breakers for
requests that bypass the scheduler.

These circuit breakers are separate from the scheduler's circuit breakers, because an engine may fail at `/tokenize` and
still generate well.
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
"""Kinds of failure for which the engine is not at fault: the engine is full or drains, the time of the request was
over, the engine lacks the model's name, or it cannot continue an answer in the requested way.
"""


def fault_of(kind: str) -> Fault | None:
    """Return the fault of an engine that a failure of this kind may show; None if it shows no fault. An unknown kind is
    a fault of the answer.
    """
    return None if kind in _NO_FAULT else _FAULTS.get(kind, Fault.ANSWER)


class SideCircuits:
    """Circuit breakers by instance, for requests that bypass the scheduler. All times are Unix seconds."""

    __slots__ = ("_circuits", "_settings")

    def __init__(self) -> None:
        self._circuits: dict[str, Circuit] = {}
        self._settings = CircuitSettings()

    def broken(self, now: float) -> Collection[str]:
        """Return the instances whose circuits are open."""
        return [instance for instance, circuit in self._circuits.items() if not circuit.admits(now)]

    def failed(self, instance: str, now: float) -> None:
        """Record a failure of the instance that was not the request's fault."""
        self._circuits.setdefault(instance, Circuit(self._settings)).failed(now)

    def worked(self, instance: str) -> None:
        """Record that the instance served a request."""
        self._circuits.pop(instance, None)

    def keep_only(self, instances: Collection[str]) -> None:
        """Forget all instances that are not among `instances`."""
        self._circuits = {instance: circuit for instance, circuit in self._circuits.items() if instance in instances}


class Tries:
    """The attempts of one request that bypasses the scheduler. It decides which instances are at fault, by the rules
    that the scheduler has for its own requests. After `served`, `over` or `left`, further calls of these methods change
    nothing.
    """

    __slots__ = ("_circuits", "_faults")

    def __init__(self, circuits: SideCircuits) -> None:
        self._circuits = circuits
        self._faults: list[tuple[str, Fault]] = []

    def failed(self, instance: str, fault: Fault | None, now: float) -> None:
        """Record that this instance failed the request. `fault` is None if the instance is not at fault."""
        if fault is Fault.UNREACHED:
            self._circuits.failed(instance, now)
        elif fault is not None:
            self._faults.append((instance, fault))

    @property
    def failed_alike(self) -> bool:
        """Whether the last two instances failed this request in the same way, so that the request may be at fault. Lost
        connections do not count, because they may have another cause.
        """
        last = [fault for _, fault in self._faults[-2:]]
        return len(last) > 1 and last[0].is_like(last[1]) and last[1] is not Fault.LOST

    def served(self, instance: str, now: float) -> None:
        """Record that this instance served the request. Therefore the instances that failed it are at fault."""
        self._circuits.worked(instance)
        for other, _ in self._faults:
            self._circuits.failed(other, now)
        self._faults.clear()

    def over(self, now: float) -> None:
        """Record that no instance served the request. If the last two instances failed in the same way, no failure
        counts against an instance. Otherwise each failure counts against its instance, unless it was a refusal.
        """
        for instance, fault in () if self.failed_alike else self._faults:
            if fault is not Fault.REFUSED:
                self._circuits.failed(instance, now)
        self._faults.clear()

    def left(self) -> None:
        """Record that the client closed the connection before the cause of a failure was known, so that no instance is
        at fault.
        """
        self._faults.clear()
