"""The coupling law of a closed loop: more sessions make turns slower, and slower turns keep more turns in flight.

If sessions begin at rate Λ (per second) with N turns each, the number of turns in flight is L = Λ·N·W(L). W(L) is a
turn's time in the system (seconds) at that concurrency. It follows that dL/dε = L* / (1 - Λ·N·W'(L*)) for a load of (1
+ ε)·Λ: the effect of additional load grows without bound when Λ·N·W' approaches 1. Source: the EAR draft's section on
closed-loop load.
"""

from collections.abc import Sequence
from math import inf

import numpy as np


def concurrency(offered: float, alone: float, slope: float) -> float:
    """Return the L for which L = Λ·N·W(L), where W(L) = `alone` + `slope` · L seconds and `offered` is Λ·N in turns per
    second.

    Return inf if Λ·N·`slope` is 1 or more.
    """
    remaining = 1.0 - offered * slope
    return offered * alone / remaining if remaining > 0 else inf


def sensitivity(offered: float, concurrency_now: float, slope: float) -> float:
    """Return dL/dε at ε = 0, in turns; `slope` is W'(L*) in seconds per turn in flight.

    Return inf if Λ·N·W' is 1 or more, because then there is no equilibrium nearby.
    """
    remaining = 1.0 - offered * slope
    return concurrency_now / remaining if remaining > 0 else inf


def slope_at_last(concurrencies: Sequence[float], times: Sequence[float]) -> float:
    """Return W' at the last of at least three measured points of W(L), from the least-squares parabola through them."""
    parabola = np.polynomial.Polynomial.fit(concurrencies, times, 2)
    return float(parabola.deriv()(concurrencies[-1]))
