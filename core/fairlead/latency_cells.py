"""Counts latencies of requests in cells of a fixed grid, so that other targets can be tried on the counts later. Pure.

A request belongs to one cell: the step of its TTFT and the step of its TPOT. Steps end at round numbers (1, 1.1, … 9
times a power of ten, 25 to the decade, from a millisecond to a hundred minutes). For a target at such a number, the
count is exact. Any other target cuts through one step, and the count is a range between two numbers of requests.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_MANTISSAS = (10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 25, 28, 30, 33, 36, 40, 45, 50, 55, 60, 65, 70, 75, 80, 90)
_SMALLEST, _DECADES = -4, 7  # the mantissas are tenths: 10e-4 is a millisecond

EDGES: tuple[float, ...] = tuple(float(f"{mantissa}e{_SMALLEST + decade}") for decade in range(_DECADES) for mantissa in _MANTISSAS)
"""Upper ends of the steps, in seconds, ascending. Step 0 is below the first edge; step `n` begins at `EDGES[n - 1]`."""

NO_TPOT = 255
"""The TPOT step of a response of one token, which has no TPOT and is never late by TPOT."""
WIDTH = 256
"""Number of TPOT steps per TTFT step: a cell is TTFT step * WIDTH + TPOT step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InTime:
    """The number of requests that meet two targets: between `least` and `most`, out of `requests`. `least` and `most`
    are equal if the number is exact.
    """

    requests: int
    least: int
    most: int


def cell_of(ttft_seconds: float, tpot_seconds: float | None) -> int:
    """Return the cell of a request, 0 to 65,535."""
    return bisect_right(EDGES, ttft_seconds) * WIDTH + (NO_TPOT if tpot_seconds is None else bisect_right(EDGES, tpot_seconds))


def in_time(counts: Mapping[int, int], ttft_seconds: float, tpot_seconds: float) -> InTime:
    """Return the range of the number of requests that meet both targets: a TTFT below `ttft_seconds` and a TPOT below
    `tpot_seconds`. `counts` has the number of requests in each cell.
    """
    ttft_least, ttft_most = _steps_below(ttft_seconds)
    tpot_least, tpot_most = _steps_below(tpot_seconds)
    requests = least = most = 0
    for cell, count in counts.items():
        ttft, tpot = divmod(cell, WIDTH)
        requests += count
        if ttft < ttft_most and (tpot == NO_TPOT or tpot < tpot_most):
            most += count
            if ttft < ttft_least and (tpot == NO_TPOT or tpot < tpot_least):
                least += count
    return InTime(requests=requests, least=least, most=most)


def quantile(steps: Mapping[int, int], share: float) -> float | None:
    """Return the latency in seconds below which `share` (0-1) of the requests lie; None without requests. `steps`
    counts requests by step.

    Within a step the result is interpolated as if the requests were spread evenly, so its error is less than a step: a
    tenth of the latency. Only two digits are significant, and no more should be shown. A latency beyond the last edge
    is reported as that edge.
    """
    known = sorted((step, count) for step, count in steps.items() if step != NO_TPOT and count > 0)
    before, wanted = 0.0, share * sum(count for _, count in known)
    for step, count in known:
        if before + count >= wanted:
            return latency_within(step, (wanted - before) / count)
        before += count
    return None


def latency_within(step: int, part: float) -> float:
    """Return the latency in seconds below which this share (0-1) of a step's requests lie, if the requests are spread
    evenly over the step.
    """
    low = EDGES[min(step, len(EDGES)) - 1] if step else 0.0
    high = EDGES[step] if step < len(EDGES) else low
    return low + (high - low) * part


def added(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Add up the counts of several classes or periods."""
    total: dict[int, int] = {}
    for part in parts:
        for cell, count in part.items():
            total[cell] = total.get(cell, 0) + count
    return total


def is_edge(seconds: float) -> bool:
    """Return whether a target of this many seconds gets an exact count."""
    least, most = _steps_below(seconds)
    return least == most


def _steps_below(target: float) -> tuple[int, int]:
    """Return two steps: the first that does not lie entirely below the target, and the first that lies entirely above
    it.
    """
    step = bisect_right(EDGES, target)
    return step, step if step and target == EDGES[step - 1] else step + 1
