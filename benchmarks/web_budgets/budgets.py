"""Figures beside their targets."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

HEADING = "| what | figure | target | of it | |\n|---|---|---|---|---|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A figure and its target, the maximum `most`, in the same unit; None if the figure has no target.

    `told` is an explanation. `unsure` means that the figure is too inexact to show whether it meets the target.
    """

    what: str
    figure: float
    unit: str
    most: float | None = None
    told: str = ""
    unsure: bool = False

    @property
    def missed(self) -> bool:
        return self.most is not None and self.figure > self.most and not self.unsure

    def __str__(self) -> str:
        told = f" ({self.told})" if self.told else ""
        figure = f"{self.figure:,.{digits(self.figure)}f} {self.unit}".strip() + told
        if self.most is None:
            return f"| {self.what} | {figure} | – | – | |"
        verdict = "unsure" if self.unsure else "**missed**" if self.missed else "ok"
        ratio = f"{self.figure / self.most:.0%}" if self.most else "–"
        return f"| {self.what} | {figure} | ≤ {self.most:g} {self.unit}".rstrip() + f" | {ratio} | {verdict} |"


def digits(figure: float) -> int:
    return 0 if figure == int(figure) or abs(figure) >= 100 else 1 if abs(figure) >= 1 else 2


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile of the values by nearest rank. It is the smallest of the values for which at least this
    share of the values is not larger.
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope of the least-squares line through points (x, y), and twice its standard error.

    The true slope is probably within this range. Needs three points with different x.
    """
    count = len(points)
    middle_x, middle_y = (sum(point[axis] for point in points) / count for axis in (0, 1))
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    found = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
    rest = sum((y - middle_y - found * (x - middle_x)) ** 2 for x, y in points)
    return found, 2 * math.sqrt(rest / (count - 2) / spread)


def say(words: str) -> None:
    """Print progress to stderr, because the table goes to stdout."""
    print(words, file=sys.stderr, flush=True)
