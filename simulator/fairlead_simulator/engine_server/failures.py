"""Injected failures. A client asks for a failure with the header `x-sim-fail`."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead_simulator.engine_server.request_errors import RequestInvalid

HEADER = b"x-sim-fail"


class FailureKind(StrEnum):
    """The kind of failure to inject."""

    REFUSE = "refuse"
    """The connection is cut before the response begins."""
    ERROR_500 = "error-500"
    HANG = "hang"
    """The engine never responds; the request ends only when the client disconnects."""
    DIE_MID_STREAM = "die-mid-stream"
    """The connection is cut when half of the answer's tokens (at least one) have been produced."""
    SLOW = "slow"
    """The prefill and the fixed cost of the request's decode steps take `factor` times as long."""


_WITHOUT_ARGUMENT = {kind.value: kind for kind in FailureKind if kind is not FailureKind.SLOW}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A requested failure. `factor` has an effect only for SLOW."""

    kind: FailureKind
    factor: float = 1.0


def parse_failure(value: bytes) -> Failure:
    """Return the failure that the value of the header `x-sim-fail` requests. Raises RequestInvalid."""
    text = value.decode("latin-1").strip()
    name, colon, argument = text.partition(":")
    if name == FailureKind.SLOW and colon:
        try:
            factor = float(argument)
        except ValueError:
            factor = 0.0
        if 0.0 < factor <= 1e6:
            return Failure(kind=FailureKind.SLOW, factor=factor)
    elif not colon and name in _WITHOUT_ARGUMENT:
        return Failure(kind=_WITHOUT_ARGUMENT[name])
    raise RequestInvalid(f"x-sim-fail: {text!r} is unknown; use refuse, error-500, hang, die-mid-stream or slow:<factor>", "x-sim-fail")
