"""The coupling law of a closed loop: more sessions make turns slower, and slower turns keep more sessions' turns in
flight.

With sessions beginning at rate Λ (per second) and N turns each, the turns in flight are L = Λ·N·W(L), where W(L) is a
turn's time in the system (seconds) at that concurrency. From it follows dL/dε = L* / (1 - Λ·N·W'(L*)) for a load of (1
+ ε)·Λ: the effect of an ε more load grows without bound as Λ·N·W' nears 1. Source: the EAR draft's section on
closed-loop load.
"""

from collections.abc import Sequence
from math import inf

import numpy as np


def concurrency(offered: float, alone: float, slope: float) -> float:
    """L where L = Λ·N·W(L) with W(L) = `alone` + `slope` · L seconds; `offered` is Λ·N in turns per second.

    inf when Λ·N·`slope` is 1 or more.
    """
    remaining = 1.0 - offered * slope
    return offered * alone / remaining if remaining > 0 else inf


def sensitivity(offered: float, concurrency_now: float, slope: float) -> float:
    """dL/dε at ε = 0, turns; `slope` is W'(L*) in seconds per turn in flight.

    inf when Λ·N·W' is 1 or more: there is no equilibrium nearby.
    """
    remaining = 1.0 - offered * slope
    return concurrency_now / remaining if remaining > 0 else inf


def slope_at_last(concurrencies: Sequence[float], times: Sequence[float]) -> float:
    """W' at the last of at least three measured points of W(L): of the least-squares parabola through them."""
    parabola = np.polynomial.Polynomial.fit(concurrencies, times, 2)
    return float(parabola.deriv()(concurrencies[-1]))
